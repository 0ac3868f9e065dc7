//! Model-based test of questions, plans and commands: random events of people, runs, operators and vendors, with a
//! check of what must hold after each of them. Every case runs on one of the ticketing systems.

mod checks;
mod event;
mod people;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

use crate::engine_model::{Failure, env_number, shrink};
use crate::test_ticket::SYSTEMS;
use domain::issue::System;
use event::{ConversationEvent, event_sequence};
use world::World;

/// Events per case: enough for two rounds of questions and another plan.
const EVENTS_PER_CASE: usize = 120;

/// Cases that run at once: they wait for the disk more than they compute.
const WORKERS: usize = 4;

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

/// Statistics of many cases.
#[derive(Default)]
struct Stats {
    cases: u64,
    steps: u64,
    events: BTreeMap<String, u64>,
    milestones: BTreeMap<String, u64>,
}

impl Stats {
    fn print(&self, seed: u64, started: Instant) {
        let elapsed = started.elapsed();
        let rate = self.steps as f64 / elapsed.as_secs_f64();
        println!(
            "seed {seed}: {} cases, {} steps in {elapsed:.0?}, {rate:.0} per second",
            self.cases, self.steps
        );
        println!("events: {:?}", self.events);
        println!("milestones: {:?}", self.milestones);
    }
}

async fn run_case(
    system: System,
    events: &[ConversationEvent],
    stats: &Mutex<Stats>,
) -> Result<(), Failure> {
    let mut world = World::start(system).await;
    let mut outcome = Ok(());
    let end = [ConversationEvent::Settle];
    for (step, event) in events.iter().chain(&end).enumerate() {
        match world.step(event).await {
            Ok(false) => {}
            Ok(true) => {
                let mut stats = stats.lock().unwrap();
                stats.steps += 1;
                *stats.events.entry(event.name()).or_default() += 1;
            }
            Err(why) => {
                outcome = Err(Failure { step, why });
                break;
            }
        }
    }
    {
        let mut stats = stats.lock().unwrap();
        stats.cases += 1;
        for (name, count) in world.milestones() {
            *stats.milestones.entry(name).or_default() += count;
        }
    }
    world.stop().await;
    outcome
}

/// Runs the case of a seed. The error describes the shortest failing case found.
fn run_seed(seed: u64, runtime: &Runtime, stats: &Mutex<Stats>) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = event_sequence(EVENTS_PER_CASE).new_tree(&mut runner);
    let events = tree.unwrap().current();
    let system = SYSTEMS[usize::try_from(seed % 3).unwrap()];
    let Err(failure) = runtime.block_on(run_case(system, &events, stats)) else {
        return Ok(());
    };
    let steps = stats.lock().unwrap().steps;
    eprintln!(
        "CONVERSATION_SEED={seed} {system:?} {failure}\nafter {steps} steps in all; shrinking"
    );
    let discarded = Mutex::default();
    let run =
        |events: &[ConversationEvent]| runtime.block_on(run_case(system, events, &discarded)).err();
    let (events, failure) = shrink(events, failure, run);
    Err(format!(
        "CONVERSATION_SEED={seed} {system:?} {failure}\n{events:?}"
    ))
}

/// Runs cases from this seed on, several at once, until this many steps are done or a case fails.
fn run_seeds(seed: u64, steps: u64) -> Stats {
    let threads = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let (runtime, stats) = (threads.unwrap(), Mutex::new(Stats::default()));
    let (next, failures) = (AtomicU64::new(seed), Mutex::new(Vec::new()));
    let is_done = || stats.lock().unwrap().steps >= steps || !failures.lock().unwrap().is_empty();
    let work = || {
        while !is_done() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if let Err(failure) = run_seed(seed, &runtime, &stats) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    stats.into_inner().unwrap()
}

#[test]
fn conversations_keep_their_invariants() {
    let (started, seed) = (Instant::now(), env_number("CONVERSATION_SEED", 1));
    let stats = run_seeds(seed, env_number("CONVERSATION_STEPS", 300));
    stats.print(seed, started);
}

#[test]
#[ignore = "the long form: minutes"]
fn conversations_keep_their_invariants_for_long() {
    let started = Instant::now();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = env_number("CONVERSATION_SEED", now.as_secs());
    let stats = run_seeds(seed, env_number("CONVERSATION_STEPS", 20_000));
    stats.print(seed, started);
    let missing = REQUIRED.map(|name| (name, stats.milestones.contains_key(name)));
    assert!(missing.iter().all(|(_, seen)| *seen), "{missing:?}");
}
