//! The real engine and its reference model: applies each event to both and compares the observable
//! results.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::effect::Effect;
use domain::mapping::Mapping;
use engine::pull_requests::follow_up;
use engine::{outbox_worker, poll, run_monitor};
use fake_vendors::{FakeService, FaultRates, InjectedFault, LinearTicket, RunSnapshot};
use store::outbox;

use super::event::{ModelEvent, ModelFault};
use super::reference::{ModelResult, ModelTeam, ModelTicket, ReferenceModel, SLOTS};
use crate::gap_fill::TRIGGER_SECRET;
use crate::model::service::ModelService;
use crate::test_env::{TestEnv, mapping, planning_mapping};
use crate::webhooks;

pub const TEAMS: [&str; 2] = ["ENG", "PLN"];

/// Maximum number of ticks until the outbox is empty.
const MAX_SETTLE_TICKS: u32 = 60;

pub struct SystemUnderTest {
    pub service: ModelService,
    pub client: reqwest::Client,
    pub token: String,
    pub model: ReferenceModel,
    pub slots: [usize; SLOTS],
    created: usize,
    /// Counts of the reasons shown for tickets.
    pub reasons_seen: BTreeMap<String, u64>,
}

/// Activity of the service in a step.
#[derive(Clone, Copy, PartialEq)]
pub enum StepActivity {
    Nothing,
    Poll,
    Watch,
    /// Part of a tick.
    Partial,
    /// A user requested a gap fill.
    GapFillRequested,
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
        let flags = vec![
            ("--gap-fill-trigger-secret", TRIGGER_SECRET.to_owned()),
            ("--scm-webhook-secret", webhooks::WEBHOOK_SECRET.to_owned()),
        ];
        let service = ModelService::start(vec![team_mapping(0), team_mapping(1)], flags).await;
        let env = service.env();
        env.vendors.linear().ensure_team("PLN", "Planning");
        let team = |planning, cap| ModelTeam {
            mapped: true,
            paused: false,
            planning_enabled: planning,
            max_in_progress: cap,
        };
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .no_proxy();
        let mut system = Self {
            service,
            client: client.build().unwrap(),
            token: String::new(),
            model: ReferenceModel {
                teams: vec![team(false, 2), team(true, 1)],
                ..ReferenceModel::default()
            },
            slots: [0; SLOTS],
            created: 0,
            reasons_seen: BTreeMap::new(),
        };
        for slot in 0..SLOTS {
            system.create_ticket(slot);
        }
        system
    }

    pub fn env(&self) -> &TestEnv {
        self.service.env()
    }

    /// Creates a ticket, and one that may block it.
    pub fn create_ticket(&mut self, slot: usize) {
        self.created += 1;
        let team = usize::from(slot >= SLOTS - 2);
        let key = format!("{}-{}", TEAMS[team], self.created);
        let linear = self.env().vendors.linear();
        let blocker = format!("{}-{}", TEAMS[team], 1_000 + self.created);
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

    pub fn ticket(&self, at: usize) -> LinearTicket {
        self.env()
            .vendors
            .linear()
            .issue(&self.model.tickets[at].key)
    }

    pub fn blocker(&self, at: usize) -> LinearTicket {
        let (team, number) = self.model.tickets[at].key.split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        self.env()
            .vendors
            .linear()
            .issue(&format!("{team}-{}", 1_000 + number))
    }

    /// Returns the pending changes of a ticket, in their order. Log excerpts, which wait in the queues of their runs,
    /// are the last.
    pub fn outbox_entries(&self, at: usize) -> Vec<outbox::OutboxEntry> {
        let Some(ticket) = self.ticket(at).snapshot() else {
            return Vec::new();
        };
        let (store, queue_key) = (&self.env().store, format!("ticket:{}", ticket.id));
        let mut entries = store
            .read(|tx| outbox::of_queue_key(tx, &queue_key))
            .unwrap();
        let mut excerpts = store.read(outbox::pending).unwrap();
        excerpts.retain(|entry| match &entry.effect {
            Effect::LogExcerpt { issue, .. } => issue.id.as_str() == ticket.id,
            _ => false,
        });
        entries.append(&mut excerpts);
        entries
    }

    /// Applies an event and returns whether it applied.
    pub async fn apply(&mut self, event: &ModelEvent) -> Result<bool, String> {
        // What happens after an end has a later time than the end.
        self.service.clock.advance(Duration::from_millis(1));
        self.model.now = self.service.clock.now().as_millis();
        let activity = match event {
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
                self.apply_operator_event(event).await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Cancel(slot, retry) => {
                self.cancel_run(*slot, *retry).await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Retry(slot) => {
                self.retry_run(*slot).await?;
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
                self.tick().await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Poll => Some(self.poll().await),
            ModelEvent::ProcessOutbox => Some(self.process_outbox().await),
            ModelEvent::Watch => Some(self.watch().await),
            ModelEvent::Settle => {
                self.settle().await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Wait(seconds) => {
                self.wait(*seconds);
                Some(StepActivity::Nothing)
            }
            ModelEvent::Fault(fault) => {
                self.inject_fault(*fault);
                Some(StepActivity::Nothing)
            }
            ModelEvent::GapFill(slot) => return self.trigger_gap_fill(*slot).await,
            ModelEvent::Webhook(slot) => {
                self.send_webhook_twice(*slot).await?;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Restart => {
                self.service.restart().await;
                Some(StepActivity::Nothing)
            }
            ModelEvent::Kill(polls) => {
                self.service.kill(*polls).await;
                Some(StepActivity::Partial)
            }
        };
        match activity {
            Some(activity) => self.check_observed(activity).map(|()| true),
            None => Ok(false),
        }
    }

    pub fn has_pending_faults(&self) -> bool {
        let vendors = &self.env().vendors;
        [FakeService::Linear, FakeService::GitHub]
            .iter()
            .any(|vendor| vendors.faults(*vendor).pending() > 0)
    }

    fn inject_fault(&mut self, fault: ModelFault) {
        let vendors = &self.env().vendors;
        let (linear, github) = (
            vendors.faults(FakeService::Linear).clone(),
            vendors.faults(FakeService::GitHub).clone(),
        );
        let dispatch = |fault| github.inject_on_match("/dispatches", fault);
        match fault {
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
            ModelFault::CancelFails => {
                github.inject_on_match("/cancel", InjectedFault::ErrorStatus(500))
            }
            ModelFault::CancelLost => {
                github.inject_on_match("/cancel", InjectedFault::DropResponse)
            }
        }
    }

    /// Advances the clock. The span is limited while the outbox has entries, because retries happen much
    /// sooner.
    pub fn wait(&mut self, seconds: u64) {
        let pending = !self
            .env()
            .store
            .read(outbox::queue_keys)
            .unwrap()
            .is_empty();
        let seconds = if pending { seconds.min(300) } else { seconds };
        self.service.clock.advance(Duration::from_secs(seconds));
        self.model.now = self.service.clock.now().as_millis();
    }

    fn has_outbox_entries(&self) -> bool {
        let queue_keys = self.env().store.read(outbox::queue_keys).unwrap();
        !queue_keys.is_empty()
    }

    async fn poll(&mut self) -> StepActivity {
        poll::run_once(&self.env().app).await.unwrap();
        StepActivity::Poll
    }

    async fn process_outbox(&mut self) -> StepActivity {
        outbox_worker::drain(&self.env().app).await.unwrap();
        StepActivity::Nothing
    }

    async fn watch(&mut self) -> StepActivity {
        follow_up::run_once(&self.env().app).await.unwrap();
        run_monitor::run_once(&self.env().app).await.unwrap();
        StepActivity::Watch
    }

    async fn tick(&mut self) -> ModelResult {
        let activity = self.poll().await;
        self.check_observed(activity)?;
        let activity = self.process_outbox().await;
        self.check_observed(activity)?;
        let activity = self.watch().await;
        self.check_observed(activity)?;
        let activity = self.process_outbox().await;
        self.check_observed(activity)
    }

    /// Ends all faults and ticks the engine until the outbox is empty and nothing changes.
    async fn settle(&mut self) -> ModelResult {
        let vendors = &self.env().vendors;
        for vendor in [FakeService::Linear, FakeService::GitHub] {
            vendors.faults(vendor).clear();
            vendors.faults(vendor).set_rates(FaultRates::default());
        }
        (self.model.refusals_left, self.model.failures_left) = (0, 0);
        for _ in 0..MAX_SETTLE_TICKS {
            let before = (self.has_outbox_entries(), self.job_statuses());
            self.tick().await?;
            if before == (false, self.job_statuses()) && !self.has_outbox_entries() {
                return self.check_quiescent().await;
            }
            if self.has_outbox_entries() {
                self.service.clock.advance(Duration::from_secs(61));
                self.model.now = self.service.clock.now().as_millis();
            }
        }
        let pending = self.env().store.read(outbox::pending).unwrap();
        Err(format!("not quiescent: {pending:#?}"))
    }
}

pub fn input_text<'r>(run: &'r RunSnapshot, input: &str) -> &'r str {
    run.inputs[input].as_str().unwrap()
}
