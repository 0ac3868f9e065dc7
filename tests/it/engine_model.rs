//! Model-based test of the engine: random events of tickets, runs, operators and vendors are applied to
//! the real engine and to [`reference`], and every observable result is compared.
//!
//! The reference follows the engine instead of predicting it. The engine decides when a run is started or
//! given up, so a model that is executed before the system (as in `proptest-state-machine`) would have to
//! copy the engine.

mod compare;
mod control;
mod event;
mod job_end;
mod reference;
mod runs;
mod system_under_test;
mod users_and_operator;

use std::collections::BTreeMap;

use proptest::strategy::{BoxedStrategy, Strategy};

use crate::model::{self, Model};
use event::{ModelEvent, event_sequence};
use system_under_test::SystemUnderTest;

/// Events per case: enough to park a ticket, release it and park it again.
const EVENTS_PER_CASE: usize = 150;

impl Model for SystemUnderTest {
    type Event = ModelEvent;

    const VARIABLES: [&'static str; 2] = ["MODEL_SEED", "MODEL_STEPS"];
    const WORKERS: usize = 1;

    fn cases() -> BoxedStrategy<Vec<ModelEvent>> {
        event_sequence(EVENTS_PER_CASE).boxed()
    }

    fn last_event() -> ModelEvent {
        ModelEvent::Settle
    }

    fn event_name(event: &ModelEvent) -> String {
        event.name()
    }

    async fn start(_seed: u64) -> Self {
        SystemUnderTest::start().await
    }

    async fn step(&mut self, event: &ModelEvent) -> Result<bool, String> {
        self.apply(event).await
    }

    fn milestones(&self) -> BTreeMap<String, u64> {
        let mut all = self.model.milestones.clone();
        for (reason, count) in &self.reasons_seen {
            all.insert(format!("reason at rest: {reason}"), *count);
        }
        all
    }

    async fn stop(self) {
        self.service.stop().await;
    }
}

#[test]
fn engine_matches_its_reference_model() {
    model::run_short::<SystemUnderTest>(200);
}

#[test]
#[ignore = "the long form: minutes"]
fn engine_matches_its_reference_model_for_long() {
    let stats = model::run_long::<SystemUnderTest>(100_000);
    stats.assert_covered(&["parked"]);
    stats.assert_covered(&control::REQUIRED_COVERAGE);
}
