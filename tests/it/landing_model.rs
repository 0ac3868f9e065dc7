//! Model-based test of open pull requests: random events of reviewers, checks, base branches, runs, operators and the
//! host, with a check of what must hold after each of them.

mod at_rest;
mod ci;
mod event;
mod invariants;
mod merges;
mod people;
mod projects;
mod runs;
mod world;

use std::collections::BTreeMap;

use proptest::strategy::{BoxedStrategy, Strategy};

use crate::model::{self, Model};
use event::{LandingEvent, event_sequence};
use world::World;

/// Events per case: enough for several heads of each pull request.
const EVENTS_PER_CASE: usize = 90;

/// What a proof must have exercised.
const REQUIRED: [&str; 21] = [
    "implementation completed",
    "ci-fix completed",
    "ci-fix failed",
    "conflict completed",
    "conflict failed",
    "follow-up completed",
    "rerun",
    "update-branch",
    "merged by the service",
    "merged by the host",
    "merged by the queue",
    "armed",
    "pull-merged",
    "merge-refused",
    "merge-disarmed",
    "taken-over",
    "given-back",
    "stopped: same-failure",
    "stopped: attempts-used",
    "reason: review-capacity",
    "reason: collision",
];

impl Model for World {
    type Event = LandingEvent;

    const VARIABLES: [&'static str; 2] = ["MODEL_SEED", "MODEL_STEPS"];

    fn cases() -> BoxedStrategy<Vec<LandingEvent>> {
        event_sequence(EVENTS_PER_CASE).boxed()
    }

    fn last_event() -> LandingEvent {
        LandingEvent::Settle
    }

    fn event_name(event: &LandingEvent) -> String {
        event.name()
    }

    async fn start(_seed: u64) -> Self {
        World::start().await
    }

    async fn step(&mut self, event: &LandingEvent) -> Result<bool, String> {
        self.apply(event).await
    }

    fn milestones(&self) -> BTreeMap<String, u64> {
        self.count_all()
    }

    async fn stop(self) {
        self.service.stop().await;
    }
}

#[test]
fn pull_requests_keep_their_invariants() {
    model::run_short::<World>(100);
}

#[test]
#[ignore = "the long form: minutes"]
fn pull_requests_keep_their_invariants_for_long() {
    model::run_long::<World>(20_000).assert_covered(&REQUIRED);
}
