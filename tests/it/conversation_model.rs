//! Model-based test of questions, plans and commands: random events of people, runs, operators and vendors, with a
//! check of what must hold after each of them. Every case runs on one of the ticketing systems.

mod checks;
mod event;
mod people;
mod world;

use std::collections::BTreeMap;

use proptest::strategy::{BoxedStrategy, Strategy};

use crate::model::{self, Model};
use crate::test_ticket::SYSTEMS;
use event::{ConversationEvent, event_sequence};
use world::World;

/// Events per case: enough for two rounds of questions and another plan.
const EVENTS_PER_CASE: usize = 120;

/// What a proof must have exercised.
const REQUIRED: [&str; 9] = [
    "question-answered",
    "plan-approved",
    "plan-rejected",
    "plan-asked",
    "approval-refused",
    "ticket-command",
    "third round",
    "answered by comment",
    "answered by nobody",
];

impl Model for World {
    type Event = ConversationEvent;

    const VARIABLES: [&'static str; 2] = ["CONVERSATION_SEED", "CONVERSATION_STEPS"];

    fn cases() -> BoxedStrategy<Vec<ConversationEvent>> {
        event_sequence(EVENTS_PER_CASE).boxed()
    }

    fn last_event() -> ConversationEvent {
        ConversationEvent::Settle
    }

    fn event_name(event: &ConversationEvent) -> String {
        event.name()
    }

    async fn start(seed: u64) -> Self {
        World::start(SYSTEMS[usize::try_from(seed % 3).unwrap()]).await
    }

    async fn step(&mut self, event: &ConversationEvent) -> Result<bool, String> {
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
fn conversations_keep_their_invariants() {
    model::run_short::<World>(300);
}

#[test]
#[ignore = "the long form: minutes"]
fn conversations_keep_their_invariants_for_long() {
    model::run_long::<World>(20_000).assert_covered(&REQUIRED);
}
