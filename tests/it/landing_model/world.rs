//! The real engine with fake vendors, and what people, runs and operators have done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::ids::JobId;
use domain::job::Job;
use domain::time::Timestamp;
use engine::pull_requests::{follow_up, reconcile};
use engine::{outbox_worker, poll};
use fake_vendors::{FakeService, InjectedFault, PullSnapshot, WebhookFaults};
use store::{jobs, outbox, pull_feedback};

use super::event::{Delivery, LandingEvent, LandingFault};
use super::invariants::Observation;
use super::projects::{self, PROJECTS, SLOTS};
use crate::model::service::ModelService;
use crate::test_env::TestEnv;
use crate::webhooks::WEBHOOK_SECRET;

/// Requests of [`LandingEvent::Fault`] that change nothing.
const READS: [&str; 3] = ["mergeStateStatus", "/check-runs", "/statuses"];

/// Ticket of a place.
pub struct ModelTicket {
    pub key: String,
    pub project: usize,
    /// Files that its plan declares.
    pub files: Vec<String>,
    pub is_taken: bool,
}

/// Pull request with what was done to it.
pub struct ModelPull {
    pub project: usize,
    pub number: u64,
    pub ticket: usize,
    pub branch: String,
    /// Heads so far.
    pub heads: Vec<String>,
    /// Head that a person pushed last, with the engine's time.
    pub pushed_by_person: Option<(String, Timestamp)>,
    /// Runs for failing checks since then.
    pub repairs: u32,
    /// Head and base of each run for a conflict.
    pub conflicts: BTreeSet<(String, String)>,
    /// Reviews: id, login, opinion and head.
    pub reviews: Vec<(u64, &'static str, &'static str, String)>,
    /// Conversations that nobody has resolved.
    pub threads: Vec<u64>,
}

/// What the host shows of a pull request.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenPull {
    pub shown: PullSnapshot,
    /// Whether it is armed or in the merge queue.
    pub is_armed: bool,
}

pub struct World {
    pub service: ModelService,
    pub tickets: Vec<ModelTicket>,
    /// Current ticket of each place.
    pub slots: [Option<usize>; SLOTS],
    pub pulls: Vec<ModelPull>,
    /// Number of changes by people and runs, which makes each of them different.
    pub changes: u64,
    /// Jobs seen so far, and those that have ended.
    pub seen: BTreeSet<JobId>,
    pub ended: BTreeSet<JobId>,
    /// Commit of each workflow run that checks one, and its attempts so far.
    pub checking: BTreeMap<(usize, u64), (String, u64)>,
    pub milestones: BTreeMap<String, u64>,
    /// State after the last step.
    observed: Observation,
}

impl World {
    pub async fn start() -> Self {
        let flags = vec![("--scm-webhook-secret", WEBHOOK_SECRET.to_owned())];
        let service = ModelService::start(projects::mappings(), flags).await;
        projects::set_up(service.env());
        projects::register_webhooks(service.env());
        let mut world = Self {
            service,
            tickets: Vec::new(),
            slots: [None; SLOTS],
            pulls: Vec::new(),
            changes: 0,
            seen: BTreeSet::new(),
            ended: BTreeSet::new(),
            checking: BTreeMap::new(),
            milestones: BTreeMap::new(),
            observed: Observation::default(),
        };
        world.observed = world.observe();
        world.note_checking_runs();
        world
    }

    pub fn env(&self) -> &TestEnv {
        self.service.env()
    }

    pub fn now(&self) -> Timestamp {
        self.service.clock.now()
    }

    pub fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    pub fn add_milestone(&mut self, name: &str) {
        *self.milestones.entry(name.to_owned()).or_default() += 1;
    }

    /// Jobs, oldest first.
    pub fn jobs(&self) -> Vec<Job> {
        let read = self.env().store.read(|tx| jobs::latest(tx, 10_000));
        let mut jobs = read.unwrap();
        jobs.sort_by(|one, other| (one.reserved_at, &one.id).cmp(&(other.reserved_at, &other.id)));
        jobs
    }

    pub fn pull_id(&self, at: usize) -> PullRequestId {
        PullRequestId {
            repo: self.repo_id(self.pulls[at].project),
            number: self.pulls[at].number,
        }
    }

    pub fn record(&self, at: usize) -> PullRequestRecord {
        let id = self.pull_id(at);
        let read = self.env().store.read(|tx| pull_feedback::get_pull(tx, &id));
        read.unwrap()
    }

    /// What the host shows of all pull requests, in the order of [`Self::pulls`].
    pub fn seen_pulls(&self) -> Vec<SeenPull> {
        let of_project = (0..PROJECTS).map(|project| {
            let repo = self.repo(project);
            let armed = [repo.armed_pulls(), repo.queued_pulls()].concat();
            (repo.pulls(), armed)
        });
        let of_project: Vec<_> = of_project.collect();
        let seen = self.pulls.iter().map(|pull| {
            let (shown, armed) = &of_project[pull.project];
            let shown = shown.iter().find(|shown| shown.number == pull.number);
            SeenPull {
                shown: shown.unwrap().clone(),
                is_armed: armed.contains(&pull.number),
            }
        });
        seen.collect()
    }

    /// Positions of the pull requests that the host shows like this.
    pub fn pulls_where(&self, matches: impl Fn(&PullSnapshot) -> bool) -> Vec<usize> {
        let seen = self.seen_pulls();
        let matching = seen
            .iter()
            .enumerate()
            .filter(|(_, seen)| matches(&seen.shown));
        matching.map(|(at, _)| at).collect()
    }

    /// Applies an event and checks what must always hold. Returns whether the event applied.
    pub async fn apply(&mut self, event: &LandingEvent) -> Result<bool, String> {
        // Jobs are in the order of their times.
        self.service.clock.advance(Duration::from_millis(1));
        if *event == LandingEvent::Settle {
            self.settle().await?;
            return Ok(true);
        }
        let is_applied = match event {
            LandingEvent::File(slot) => self.file(*slot).await,
            LandingEvent::Run(run, end) => self.end_run(*run, *end).await,
            LandingEvent::Take(slot) => self.take(*slot).await,
            LandingEvent::GiveBack(slot) => self.give_back(*slot).await,
            LandingEvent::Project(project, change) => self.change_project(*project, *change).await,
            LandingEvent::Wait(minutes) => {
                self.wait(*minutes);
                true
            }
            LandingEvent::Fault(request, fault) => self.inject(request, *fault),
            LandingEvent::Webhooks(delivery) => self.set_delivery(*delivery),
            LandingEvent::Restart => {
                self.service.restart().await;
                projects::register_webhooks(self.env());
                true
            }
            LandingEvent::Kill(polls) => {
                self.service.kill(*polls).await;
                projects::register_webhooks(self.env());
                true
            }
            LandingEvent::Tick
            | LandingEvent::Poll
            | LandingEvent::ProcessOutbox
            | LandingEvent::Decide
            | LandingEvent::Sweep => self.drive(event).await,
            of_host => self.act(of_host),
        };
        self.check_step().await?;
        Ok(is_applied)
    }

    /// Lets the engine work.
    pub async fn drive(&self, event: &LandingEvent) -> bool {
        let app = &self.env().app;
        match event {
            LandingEvent::Tick => self.env().tick().await,
            LandingEvent::Poll => poll::run_once(app).await.unwrap(),
            LandingEvent::ProcessOutbox => outbox_worker::drain(app).await.unwrap(),
            LandingEvent::Decide => follow_up::run_once(app).await.unwrap(),
            LandingEvent::Sweep => reconcile::run_once(app).await.unwrap(),
            _ => unreachable!("{event:?}"),
        }
        true
    }

    /// Waits for webhooks, starts the checks of new heads, and checks what must hold.
    pub async fn check_step(&mut self) -> Result<(), String> {
        self.wait_for_webhooks().await;
        for project in 0..PROJECTS {
            self.repo(project).start_checking_runs();
        }
        self.wait_for_webhooks().await;
        let after = self.observe();
        let before = std::mem::take(&mut self.observed);
        self.check_always(&before, &after)?;
        self.note_checking_runs();
        for (pull, seen) in self.pulls.iter_mut().zip(&after.pulls) {
            if pull.heads.last() != Some(&seen.shown.head_sha) {
                pull.heads.push(seen.shown.head_sha.clone());
            }
        }
        self.observed = after;
        Ok(())
    }

    pub async fn wait_for_webhooks(&self) {
        while !self.env().vendors.github().webhooks().is_idle() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Records the commit of each workflow run that checks one.
    fn note_checking_runs(&mut self) {
        for project in 0..PROJECTS {
            let repo = self.repo(project);
            for run in repo.runs() {
                if run.workflow == super::ci::WORKFLOW {
                    let sha = || repo.branch_head(&run.branch).unwrap_or_default();
                    let known = self.checking.entry((project, run.id));
                    known.or_insert_with(|| (sha(), 0)).1 = run.attempt;
                }
            }
        }
    }

    /// Advances the clock. Retries of effects happen much sooner than most spans.
    fn wait(&self, minutes: u64) {
        let queues = self.env().store.read(outbox::queue_keys).unwrap();
        let minutes = if queues.is_empty() {
            minutes
        } else {
            5.min(minutes)
        };
        self.service
            .clock
            .advance(Duration::from_secs(minutes * 60));
    }

    fn inject(&self, request: &str, fault: LandingFault) -> bool {
        let fault = match fault {
            // The client repeats a read at once, unless its failure seems permanent.
            LandingFault::Fails if READS.contains(&request) => InjectedFault::ErrorStatus(400),
            LandingFault::Fails => InjectedFault::ErrorStatus(500),
            LandingFault::ResponseLost => InjectedFault::DropResponse,
        };
        let service = match request {
            "mutation(" => FakeService::Linear,
            _ => FakeService::GitHub,
        };
        self.env()
            .vendors
            .faults(service)
            .inject_on_match(request, fault);
        true
    }

    pub fn set_delivery(&self, delivery: Delivery) -> bool {
        let faults = match delivery {
            Delivery::InOrder => WebhookFaults::default(),
            Delivery::Lossy => WebhookFaults {
                loss_rate: 0.5,
                ..WebhookFaults::default()
            },
            Delivery::Repeated => WebhookFaults {
                duplicate_rate: 0.5,
                ..WebhookFaults::default()
            },
            Delivery::Shuffled => WebhookFaults {
                reorder: true,
                ..WebhookFaults::default()
            },
        };
        self.env().vendors.github().webhooks().set_faults(faults);
        true
    }

    pub fn clear_faults(&self) {
        self.set_delivery(Delivery::InOrder);
        for service in [FakeService::Linear, FakeService::GitHub] {
            self.env().vendors.faults(service).clear();
        }
    }
}
