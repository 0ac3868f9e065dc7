//! The real engine beside its reference: carries an event out on both and compares what is to be seen.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::mapping::Mapping;
use engine::clock::Clock;
use engine::{follow_up, outbox_worker, poll, run_monitor};
use fake_vendors::{
    FakeService, FaultRates, InjectedFault, LinearTicket as TownTicket, RunSnapshot,
};
use store::outbox;

use super::event::{ModelEvent, ModelFault};
use super::poll_limited::PollLimited;
use super::reference::{ModelResult, ModelTeam, ModelTicket, ReferenceModel, SLOTS};
use crate::gap_fill::TRIGGER_SECRET;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping, planning_mapping};
use crate::webhooks;

pub const TEAMS: [&str; 2] = ["ENG", "PLN"];

/// The engine's clock begins so long before the town's that it never gets past it: what a host lists
/// since some time of ours is then all that it has.
const HEAD_START: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// How much time may pass until nothing is owed?
const PATIENCE: u32 = 60;

pub struct SystemUnderTest {
    /// None only while its service is stopped.
    world: Option<TestEnv>,
    clock: Clock,
    pub client: reqwest::Client,
    pub token: String,
    pub model: ReferenceModel,
    pub slots: [usize; SLOTS],
    filed: usize,
    /// Reasons that were told, by ticket or not.
    pub reasons_seen: BTreeMap<String, u64>,
}

/// What the service did in a step.
#[derive(Clone, Copy, PartialEq)]
pub enum StepActivity {
    Nothing,
    Poll,
    Watch,
    /// A part of a turn.
    Partial,
    /// A person asked for work on a pull request.
    GapFillRequested,
}

fn making(mappings: Vec<Mapping>, clock: &Clock) -> TestEnvOptions {
    TestEnvOptions {
        mappings,
        extra_flags: vec![
            ("--gap-fill-trigger-secret", TRIGGER_SECRET.to_owned()),
            ("--scm-webhook-secret", webhooks::WEBHOOK_SECRET.to_owned()),
        ],
        engine: EngineMode::Manual(clock.clone()),
        fake_runs: true,
        ..TestEnvOptions::default()
    }
}

fn team_mapping(team: usize) -> Mapping {
    match team {
        0 => Mapping {
            max_in_progress: 2,
            ..mapping()
        },
        _ => Mapping {
            team_key: "PLN".into(),
            max_in_progress: 1,
            ..planning_mapping()
        },
    }
}

impl SystemUnderTest {
    pub async fn start() -> Self {
        let real = Clock::System.now();
        let clock = Clock::manual(real - HEAD_START);
        let world =
            TestEnv::with_options(making(vec![team_mapping(0), team_mapping(1)], &clock)).await;
        world.vendors.linear().ensure_team("PLN", "Planning");
        let team = |plans, cap| ModelTeam {
            mapped: true,
            paused: false,
            planning_enabled: plans,
            max_in_progress: cap,
        };
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .no_proxy();
        let mut system = Self {
            world: Some(world),
            clock,
            client: client.build().unwrap(),
            token: String::new(),
            model: ReferenceModel {
                teams: vec![team(false, 2), team(true, 1)],
                ..ReferenceModel::default()
            },
            slots: [0; SLOTS],
            filed: 0,
            reasons_seen: BTreeMap::new(),
        };
        for slot in 0..SLOTS {
            system.create_ticket(slot);
        }
        system
    }

    pub async fn stop(mut self) {
        let asleep = self.world.take().unwrap().stop_service().await;
        asleep.vendors.stop_and_kill_runs().await;
    }

    pub fn world(&self) -> &TestEnv {
        self.world.as_ref().unwrap()
    }

    /// A new ticket, and one that may block it.
    pub fn create_ticket(&mut self, slot: usize) {
        self.filed += 1;
        let team = usize::from(slot >= SLOTS - 2);
        let key = format!("{}-{}", TEAMS[team], self.filed);
        let linear = self.world().vendors.linear();
        let blocker = format!("{}-{}", TEAMS[team], 1_000 + self.filed);
        linear.issue(&blocker).title("First this").complete();
        linear
            .issue(&key)
            .title("Work")
            .describe("Please.")
            .blocked_by(&blocker);
        self.slots[slot] = self.model.tickets.len();
        self.model.tickets.push(ModelTicket {
            key,
            team,
            ..ModelTicket::default()
        });
    }

    pub fn ticket(&self, at: usize) -> TownTicket {
        self.world()
            .vendors
            .linear()
            .issue(&self.model.tickets[at].key)
    }

    pub fn blocker(&self, at: usize) -> TownTicket {
        let (team, number) = self.model.tickets[at].key.split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        self.world()
            .vendors
            .linear()
            .issue(&format!("{team}-{}", 1_000 + number))
    }

    pub fn outbox_entries(&self, at: usize) -> Vec<outbox::OutboxEntry> {
        let Some(ticket) = self.ticket(at).snapshot() else {
            return Vec::new();
        };
        let lane = format!("ticket:{}", ticket.id);
        self.world()
            .app
            .store
            .read(|tx| outbox::of_queue_key(tx, &lane))
            .unwrap()
    }

    /// Carries an event out; whether it applied.
    pub async fn step(&mut self, event: &ModelEvent) -> Result<bool, String> {
        self.model.now = self.clock.now().as_millis();
        let did = match event {
            ModelEvent::Flag(slot)
            | ModelEvent::Unflag(slot)
            | ModelEvent::Strip(slot)
            | ModelEvent::Close(slot)
            | ModelEvent::Reopen(slot)
            | ModelEvent::Delete(slot)
            | ModelEvent::Block(slot)
            | ModelEvent::Unblock(slot) => self
                .change_ticket(event, *slot)
                .then_some(StepActivity::Nothing),
            ModelEvent::Pause(..)
            | ModelEvent::Remove(_)
            | ModelEvent::Add(_)
            | ModelEvent::Cap(..)
            | ModelEvent::ClearDedup(_)
            | ModelEvent::Unpark(_) => {
                self.operate(event).await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Begin(which)
            | ModelEvent::Progress(which, _)
            | ModelEvent::Result(which, _)
            | ModelEvent::Forge(which, _)
            | ModelEvent::End(which, ..) => {
                let Some(run) = self.select_run(*which) else {
                    return Ok(false);
                };
                self.perform_run_event(event, &run)
                    .await?
                    .then_some(StepActivity::Nothing)
            }
            ModelEvent::Tick => {
                self.turn().await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Poll => Some(self.poll().await),
            ModelEvent::ProcessOutbox => Some(self.deliver().await),
            ModelEvent::Watch => Some(self.watch().await),
            ModelEvent::Settle => {
                self.settle().await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Wait(seconds) => {
                self.wait(*seconds);
                Some(StepActivity::Nothing)
            }
            ModelEvent::Fault(trouble) => {
                self.trouble(*trouble);
                Some(StepActivity::Nothing)
            }
            ModelEvent::GapFill(slot) => return self.trigger_gap_fill(*slot).await,
            ModelEvent::Webhook(slot) => {
                self.send_webhook_twice(*slot).await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Restart => {
                self.restart().await;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Kill(looks) => Some(self.kill(*looks).await),
        };
        match did {
            Some(did) => self.check_observed(did).map(|()| true),
            None => Ok(false),
        }
    }

    pub fn has_pending_faults(&self) -> bool {
        let town = &self.world().vendors;
        [FakeService::Linear, FakeService::GitHub]
            .iter()
            .any(|vendor| town.faults(*vendor).pending() > 0)
    }

    fn trouble(&mut self, trouble: ModelFault) {
        let town = &self.world().vendors;
        let (linear, github) = (
            town.faults(FakeService::Linear).clone(),
            town.faults(FakeService::GitHub).clone(),
        );
        let dispatch = |fault| github.inject_on_match("/dispatches", fault);
        match trouble {
            ModelFault::Refused(status) => {
                self.model.refusals_left += 1;
                dispatch(InjectedFault::ErrorStatus(status));
            }
            ModelFault::DispatchFails => {
                self.model.failures_left += 1;
                dispatch(InjectedFault::ErrorStatus(500));
            }
            ModelFault::DispatchLost => {
                self.model.failures_left += 1;
                dispatch(InjectedFault::DropResponse);
            }
            ModelFault::DispatchForgotten => dispatch(InjectedFault::ErrorStatus(204)),
            ModelFault::DispatchNameless => dispatch(InjectedFault::ReplaceResponseStatus(204)),
            ModelFault::TicketFails => {
                linear.inject_on_match("mutation(", InjectedFault::ErrorStatus(500))
            }
            ModelFault::TicketLost => {
                linear.inject_on_match("mutation(", InjectedFault::DropResponse)
            }
            ModelFault::PollFails => {
                linear.inject_on_match("orderBy: createdAt", InjectedFault::ErrorStatus(500))
            }
            ModelFault::ListFails => {
                github.inject_on_match("/actions/runs?", InjectedFault::ErrorStatus(500))
            }
        }
    }

    /// Time passes; not much while something is owed, because nobody would wait so long to try again.
    fn wait(&mut self, seconds: u64) {
        let owed = !self
            .world()
            .app
            .store
            .read(outbox::queue_keys)
            .unwrap()
            .is_empty();
        let seconds = if owed { seconds.min(300) } else { seconds };
        self.clock.advance(Duration::from_secs(seconds));
        self.model.now = self.clock.now().as_millis();
    }

    fn owes(&self) -> bool {
        let lanes = self.world().app.store.read(outbox::queue_keys).unwrap();
        !lanes.is_empty()
    }

    async fn poll(&mut self) -> StepActivity {
        poll::run_once(&self.world().app).await.unwrap();
        StepActivity::Poll
    }

    async fn deliver(&mut self) -> StepActivity {
        outbox_worker::drain(&self.world().app).await.unwrap();
        StepActivity::Nothing
    }

    async fn watch(&mut self) -> StepActivity {
        follow_up::run_once(&self.world().app).await.unwrap();
        run_monitor::run_once(&self.world().app).await.unwrap();
        StepActivity::Watch
    }

    async fn turn(&mut self) -> ModelResult {
        let did = self.poll().await;
        self.check_observed(did)?;
        let did = self.deliver().await;
        self.check_observed(did)?;
        let did = self.watch().await;
        self.check_observed(did)?;
        let did = self.deliver().await;
        self.check_observed(did)
    }

    async fn restart(&mut self) {
        let asleep = self.world.take().unwrap().stop_service().await;
        self.world = Some(asleep.start_service(making(Vec::new(), &self.clock)).await);
    }

    /// The service goes away in the middle of a turn. What the vendors were asked for, they still do.
    async fn kill(&mut self, looks: usize) -> StepActivity {
        PollLimited::new(looks, self.world().tick()).await;
        self.world().vendors.wait_idle().await;
        self.restart().await;
        StepActivity::Partial
    }

    /// Nothing goes wrong any more, and the engine is turned until nothing is owed and nothing changes.
    async fn settle(&mut self) -> ModelResult {
        let town = &self.world().vendors;
        for vendor in [FakeService::Linear, FakeService::GitHub] {
            town.faults(vendor).clear();
            town.faults(vendor).set_rates(FaultRates::default());
        }
        (self.model.refusals_left, self.model.failures_left) = (0, 0);
        for _ in 0..PATIENCE {
            let before = (self.owes(), self.job_statuses());
            self.turn().await?;
            if before == (false, self.job_statuses()) && !self.owes() {
                return self.check_quiescent().await;
            }
            if self.owes() {
                self.clock.advance(Duration::from_secs(61));
                self.model.now = self.clock.now().as_millis();
            }
        }
        let owed = self.world().app.store.read(outbox::pending).unwrap();
        Err(format!("it never comes to rest: {owed:#?}"))
    }
}

pub fn input_text<'r>(run: &'r RunSnapshot, input: &str) -> &'r str {
    run.inputs[input].as_str().unwrap()
}
