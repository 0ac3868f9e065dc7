//! What must hold after each event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::collision::CollisionRule;
use domain::feedback::{
    FollowUpPolicy, PullRequestId, PullRequestStatus, ReviewDecision, automatic_runs_resume_at,
};
use domain::job::{Job, JobKind};
use fake_vendors::FakeService;
use store::{pull_feedback, take_overs};

use super::projects::PROJECTS;
use super::runs::{BOT, input};
use super::world::{SeenPull, World};

/// Runs for failing checks between two pushes of a person.
const MAX_REPAIRS: u32 = 2;

/// Time in which a branch is left to a person who pushed.
const QUIET_AFTER_PUSH: Duration = Duration::from_secs(10 * 60);

pub type CheckResult = Result<(), String>;

pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(why()) }
}

/// State before or after a step.
#[derive(Default)]
pub struct Observation {
    pub jobs: Vec<Job>,
    pub pulls: Vec<SeenPull>,
    /// Head of each base branch.
    pub bases: Vec<String>,
}

impl World {
    pub fn observe(&self) -> Observation {
        let bases = (0..PROJECTS).map(|project| self.repo(project).branch_head("main"));
        Observation {
            jobs: self.jobs(),
            pulls: self.seen_pulls(),
            bases: bases.map(Option::unwrap).collect(),
        }
    }

    /// Checks what holds at any time, and what the step has done.
    pub fn check_always(&mut self, before: &Observation, after: &Observation) -> CheckResult {
        self.check_runs(&after.jobs)?;
        self.check_take_overs(after)?;
        for job in &after.jobs {
            let is_repeated = self.ended.contains(&job.id) && job.is_active();
            ensure(!is_repeated, || format!("{} goes on after its end", job.id))?;
            if !job.is_active() {
                self.ended.insert(job.id.clone());
            }
        }
        for job in &after.jobs {
            if self.seen.insert(job.id.clone()) {
                self.check_new_job(job, before, after)?;
            }
        }
        self.check_reruns(before, after)?;
        self.check_requests(before)?;
        self.check_merges(before, after)?;
        (0..self.pulls.len()).try_for_each(|at| self.check_comments(at))
    }

    /// At most one run per branch, one run per dispatch, and one run for a conflict per repository.
    fn check_runs(&self, jobs: &[Job]) -> CheckResult {
        let (mut branches, mut conflicts) = (BTreeSet::new(), BTreeSet::new());
        for job in jobs.iter().filter(|job| job.is_active()) {
            ensure(branches.insert((&job.repo, &job.branch)), || {
                format!("two runs on {} of {}: {jobs:#?}", job.branch, job.repo)
            })?;
            let is_conflict = job.kind == JobKind::Conflict;
            ensure(!is_conflict || conflicts.insert(&job.repo), || {
                format!("two runs for conflicts of {}: {jobs:#?}", job.repo)
            })?;
        }
        let mut dispatched = BTreeSet::new();
        for run in (0..PROJECTS).flat_map(|project| self.our_runs(project)) {
            let id = input(&run, "dispatch_id").to_owned();
            ensure(dispatched.insert(id.clone()), || format!("{id} runs twice"))?;
        }
        Ok(())
    }

    /// A take-over ends only with its pull request.
    fn check_take_overs(&mut self, after: &Observation) -> CheckResult {
        let stored = self.env().store.read(take_overs::all).unwrap();
        for at in 0..self.tickets.len() {
            let key = self.tickets[at].key.clone();
            let is_stored = stored.iter().any(|one| one.issue.key.as_str() == key);
            if !self.tickets[at].is_taken || is_stored {
                continue;
            }
            let latest = self.pulls.iter().rposition(|pull| pull.ticket == at);
            let is_open = latest.is_none_or(|pull| after.pulls[pull].shown.open);
            ensure(!is_open, || format!("the take-over of {key} is lost"))?;
            self.tickets[at].is_taken = false;
        }
        Ok(())
    }

    fn check_new_job(
        &mut self,
        job: &Job,
        before: &Observation,
        after: &Observation,
    ) -> CheckResult {
        let key = job.issue.key.as_str();
        let ticket = self
            .tickets
            .iter()
            .position(|ticket| ticket.key == key)
            .unwrap();
        let (project, is_taken) = {
            let ticket = &self.tickets[ticket];
            (ticket.project, ticket.is_taken)
        };
        ensure(!is_taken, || {
            format!("{job:#?} starts although {key} is taken over")
        })?;
        let is_paused = self.mapping(project).paused;
        ensure(!is_paused, || {
            format!("{job:#?} starts although its project is paused")
        })?;
        if job.kind == JobKind::Implementation {
            self.check_capacity(project, after)?;
            return self.check_collisions(job, ticket, after);
        }
        let of_pull = |pull: &super::world::ModelPull| {
            pull.project == project && job.pull.as_ref().is_some_and(|of| of.number == pull.number)
        };
        let at = self.pulls.iter().position(of_pull).unwrap();
        self.check_daily_limit(job, &after.jobs)?;
        match job.kind {
            JobKind::CiFix => {
                self.pulls[at].repairs += 1;
                let count = self.pulls[at].repairs;
                ensure(count <= MAX_REPAIRS, || {
                    format!("run {count} for failing checks since a person pushed: {job:#?}")
                })
            }
            JobKind::Conflict => self.check_conflict(job, at, before),
            _ => Ok(()),
        }
    }

    /// At most four automatic runs in 24 hours.
    fn check_daily_limit(&self, job: &Job, jobs: &[Job]) -> CheckResult {
        let of_pull = jobs
            .iter()
            .filter(|other| other.id != job.id && other.repo == job.repo && other.pull == job.pull);
        let earlier: Vec<Job> = of_pull.cloned().collect();
        let policy = FollowUpPolicy::default();
        let limited = automatic_runs_resume_at(&policy, &earlier, job.reserved_at);
        ensure(limited.is_none(), || {
            format!("{job:#?} exceeds the daily limit")
        })
    }

    /// A run for a conflict starts once per head and base, for the current ones, which are in conflict, and not while a
    /// person works on the branch.
    fn check_conflict(&mut self, job: &Job, at: usize, before: &Observation) -> CheckResult {
        let record = self.record(at);
        let mut attempts = record.updates.attempts.iter();
        let attempt = attempts.find(|attempt| attempt.job == job.id);
        let Some(attempt) = attempt.cloned() else {
            return Err(format!("no attempt is recorded for {job:#?}: {record:#?}"));
        };
        let project = self.pulls[at].project;
        let current = (&before.pulls[at].shown.head_sha, &before.bases[project]);
        ensure(current == (&attempt.head, &attempt.base), || {
            format!("{job:#?} starts for {attempt:?}, but {current:?} is current")
        })?;
        let is_conflict = self
            .repo(project)
            .are_in_conflict(&attempt.base, &attempt.head);
        ensure(is_conflict, || format!("{attempt:?} is no conflict"))?;
        self.check_left_to_person(at, &attempt.head)?;
        let is_new = self.pulls[at]
            .conflicts
            .insert((attempt.head, attempt.base));
        ensure(is_new, || {
            format!("{job:#?} is not the first run for its conflict")
        })
    }

    fn check_left_to_person(&self, at: usize, head: &str) -> CheckResult {
        let Some((pushed, pushed_at)) = &self.pulls[at].pushed_by_person else {
            return Ok(());
        };
        let age = self.now().since(*pushed_at);
        ensure(pushed != head || age >= QUIET_AFTER_PUSH, || {
            format!("a person pushed {head} only {age:?} ago")
        })
    }

    /// A new run that may open a pull request exceeds no limit, as far as the service knows the host.
    fn check_capacity(&self, project: usize, after: &Observation) -> CheckResult {
        let (mapping, repo) = (self.mapping(project), self.repo_id(project));
        let open = self
            .env()
            .store
            .read(|tx| pull_feedback::open_pulls_of(tx, &repo));
        let open = open.unwrap().into_iter().map(|number| {
            let id = PullRequestId {
                repo: repo.clone(),
                number,
            };
            self.env()
                .store
                .read(|tx| pull_feedback::get_pull(tx, &id))
                .unwrap()
        });
        let open: Vec<_> = open.collect();
        let is_approved = |record: &&domain::feedback::PullRequestRecord| {
            record.readiness.review_decision == Some(ReviewDecision::Approved)
        };
        let awaiting = open.len() - open.iter().filter(is_approved).count();
        let running = after.jobs.iter().filter(|job| {
            job.is_active()
                && job.repo == repo
                && job.kind == JobKind::Implementation
                && job.pull.is_none()
                && !self.has_known_pull(&job.issue.key.to_string(), after)
        });
        let running = running.count();
        for (limit, counted) in [
            (mapping.max_open_pulls, open.len()),
            (mapping.max_awaiting_review, awaiting),
        ] {
            let is_exceeded = limit.is_some_and(|limit| counted + running > limit as usize);
            ensure(!is_exceeded, || {
                format!("{counted} pull requests and {running} runs exceed {limit:?} of {repo}")
            })?;
        }
        Ok(())
    }

    /// Whether the service knows an open pull request of a ticket.
    fn has_known_pull(&self, key: &str, after: &Observation) -> bool {
        let of_ticket = after
            .jobs
            .iter()
            .filter(|job| job.issue.key.as_str() == key);
        let mut pulls = of_ticket.filter_map(PullRequestId::of_job);
        pulls.any(|pull| {
            let record = self
                .env()
                .store
                .read(|tx| pull_feedback::get_pull(tx, &pull));
            record.unwrap().status == PullRequestStatus::Open
        })
    }

    /// No other ticket that declares the same file runs or has an open pull request that the service knows.
    fn check_collisions(&self, job: &Job, ticket: usize, after: &Observation) -> CheckResult {
        let of = &self.tickets[ticket];
        if self.mapping(of.project).collisions == CollisionRule::Allow {
            return Ok(());
        }
        for (at, other) in self.tickets.iter().enumerate() {
            let is_other = at != ticket && other.project == of.project;
            if !is_other || !other.files.iter().any(|file| of.files.contains(file)) {
                continue;
            }
            let mut runs = after
                .jobs
                .iter()
                .filter(|other_job| other_job.issue.key.as_str() == other.key);
            let runs_now = runs.any(|job| job.is_active() && job.kind == JobKind::Implementation);
            let mut pulls = self.pulls.iter().zip(&after.pulls);
            let is_open = pulls.any(|(pull, seen)| pull.ticket == at && seen.shown.open)
                && self.has_known_pull(&other.key, after);
            ensure(!runs_now && !is_open, || {
                format!("{job:#?} changes {:?} beside {}", of.files, other.key)
            })?;
        }
        Ok(())
    }

    /// A workflow run runs again at most once, and only for the current head of a pull request.
    fn check_reruns(&mut self, before: &Observation, after: &Observation) -> CheckResult {
        for project in 0..PROJECTS {
            for run in self.repo(project).runs() {
                let known = self.checking.get(&(project, run.id)).cloned();
                let Some((sha, attempt)) = known.filter(|(_, attempt)| *attempt < run.attempt)
                else {
                    continue;
                };
                self.add_milestone("rerun");
                ensure(run.attempt == 2, || {
                    format!("{sha} ran again after attempt {attempt}")
                })?;
                let is_head = |observed: &Observation| {
                    let mut pulls = observed.pulls.iter();
                    pulls.any(|pull| pull.shown.open && pull.shown.head_sha == sha)
                };
                ensure(is_head(before) || is_head(after), || {
                    format!("the checks of {sha} ran again, which is no head: {run:#?}")
                })?;
            }
        }
        Ok(())
    }

    /// Requests that change a branch name the head that they are for. Updates leave a branch to people who pushed.
    fn check_requests(&mut self, before: &Observation) -> CheckResult {
        let requests = self.env().vendors.requests().clone();
        let sent = requests.for_service(FakeService::GitHub);
        requests.clear();
        for request in sent {
            let named = match request.url.rsplit('/').next() {
                Some("update-branch") => &request.body["expected_head_sha"],
                Some("merge") if request.method == "PUT" => &request.body["sha"],
                _ => continue,
            };
            let Some(head) = named.as_str() else {
                return Err(format!("a request names no head: {request:#?}"));
            };
            let is_done = request.status.is_none_or(|status| status < 300);
            let of_head = |pull: &SeenPull| pull.shown.head_sha == head;
            let at = before.pulls.iter().position(of_head);
            if let Some(at) = at.filter(|_| is_done && request.url.ends_with("/update-branch")) {
                self.check_left_to_person(at, head)?;
                self.add_milestone("update-branch");
            }
        }
        Ok(())
    }

    /// Each comment stands once.
    fn check_comments(&self, at: usize) -> CheckResult {
        let pull = &self.pulls[at];
        let comments = self.repo(pull.project).comments(pull.number).into_iter();
        let ours: Vec<String> = comments
            .filter(|comment| comment.author == BOT)
            .map(|comment| comment.body)
            .collect();
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for body in &ours {
            let marker = body.split("<!-- agent-implement:").nth(1);
            *counts.entry(marker.unwrap_or(body)).or_default() += 1;
        }
        let notes = ours
            .iter()
            .filter(|body| body.starts_with("Merged by policy"));
        let is_repeated = counts.values().any(|count| *count > 1) || notes.count() > 1;
        ensure(!is_repeated, || {
            format!("a comment stands twice: {ours:#?}")
        })
    }
}
