//! Model-based test of the engine: random events of tickets, runs, operators and vendors are applied to
//! the real engine and to [`reference`], and every observable result is compared.
//!
//! A case is a plain list of events, and the reference follows the engine instead of predicting it. The
//! engine decides when a run is started or given up, so a model that is executed before the system (as
//! in `proptest-state-machine`) would have to copy the engine. Events that do not apply are skipped, so
//! any sublist of a case is a valid case, and a failing case can be shrunk.

mod compare;
mod control;
mod event;
mod job_end;
pub mod poll_limited;
mod reference;
mod runs;
mod system_under_test;
mod users_and_operator;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

use event::{ModelEvent, event_sequence};
use system_under_test::SystemUnderTest;

/// Events per case: enough to park a ticket, release it and park it again.
const EVENTS_PER_CASE: usize = 150;

/// Time limit for shrinking a failing case.
const SHRINK_TIME_LIMIT: Duration = Duration::from_secs(300);

/// Statistics of many cases.
#[derive(Default)]
struct CaseStats {
    cases: u64,
    steps: u64,
    /// Applied, skipped, and time spent, by event.
    events: BTreeMap<String, (u64, u64, Duration)>,
    milestones: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
}

impl CaseStats {
    fn add(&mut self, system: &SystemUnderTest) {
        self.cases += 1;
        for (name, count) in &system.model.milestones {
            *self.milestones.entry(name.clone()).or_default() += count;
        }
        for (reason, count) in &system.reasons_seen {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    fn count(&mut self, event: &ModelEvent, applied: bool, elapsed: Duration) {
        let (done, skipped, duration) = self.events.entry(event.name()).or_default();
        *if applied { done } else { skipped } += 1;
        *duration += elapsed;
        self.steps += u64::from(applied);
    }

    fn print(&self, seed: u64, elapsed: Duration) {
        let rate = self.steps as f64 / elapsed.as_secs_f64();
        println!(
            "seed {seed}: {} cases, {} steps in {elapsed:.0?}, {rate:.0} a second",
            self.cases, self.steps
        );
        println!("events (applied, skipped, time): {:.0?}", self.events);
        println!("milestones: {:?}", self.milestones);
        println!("reasons shown when quiescent: {:?}", self.reasons);
    }
}

/// Step and message of a failed case.
pub struct Failure {
    pub step: usize,
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fails at step {}: {}", self.step, self.why)
    }
}

async fn run_case(events: &[ModelEvent], stats: &Mutex<CaseStats>) -> Result<(), Failure> {
    let mut system = SystemUnderTest::start().await;
    let mut outcome = Ok(());
    for (step, event) in events.iter().chain([&ModelEvent::Settle]).enumerate() {
        let started = Instant::now();
        match system.step(event).await {
            Ok(applied) => stats
                .lock()
                .unwrap()
                .count(event, applied, started.elapsed()),
            Err(why) => {
                outcome = Err(Failure { step, why });
                break;
            }
        }
    }
    stats.lock().unwrap().add(&system);
    system.stop().await;
    outcome
}

/// Runs the case of a seed. Panics with the shortest failing case found.
fn run_seed(seed: u64, runtime: &Runtime, stats: &Mutex<CaseStats>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let events = event_sequence(EVENTS_PER_CASE)
        .new_tree(&mut runner)
        .unwrap()
        .current();
    let Err(failure) = runtime.block_on(run_case(&events, stats)) else {
        return;
    };
    eprintln!("MODEL_SEED={seed} {failure}\nshrinking");
    let discarded = Mutex::default();
    let run = |events: &[ModelEvent]| runtime.block_on(run_case(events, &discarded)).err();
    let (events, failure) = shrink(events, failure, run);
    panic!("MODEL_SEED={seed} {failure}\n{events:?}");
}

/// Removes events that the failure does not need: first those after it, then ever smaller parts. One
/// trial takes as long as a case, so parts are tried before single events; proptest's shrinking goes one
/// by one.
pub fn shrink<E: Clone>(
    mut events: Vec<E>,
    mut failure: Failure,
    run: impl Fn(&[E]) -> Option<Failure>,
) -> (Vec<E>, Failure) {
    let started = Instant::now();
    events.truncate(failure.step + 1);
    let mut part = events.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        while from < events.len() && started.elapsed() < SHRINK_TIME_LIMIT {
            let mut candidate: Vec<E> = events.clone();
            candidate.drain(from..(from + part).min(events.len()));
            match run(&candidate) {
                Some(other) => {
                    candidate.truncate(other.step + 1);
                    (events, failure) = (candidate, other);
                }
                None => from += part,
            }
        }
        part /= 2;
    }
    (events, failure)
}

/// Runs cases from this seed on until this many steps are done.
fn run_seeds(seed: u64, steps: u64) -> CaseStats {
    let threads = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let (runtime, stats) = (threads.unwrap(), Mutex::new(CaseStats::default()));
    for seed in seed.. {
        if stats.lock().unwrap().steps >= steps {
            break;
        }
        run_seed(seed, &runtime, &stats);
    }
    stats.into_inner().unwrap()
}

pub fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn engine_matches_its_reference_model() {
    let started = Instant::now();
    let seed = env_number("MODEL_SEED", 1);
    let stats = run_seeds(seed, env_number("MODEL_STEPS", 200));
    stats.print(seed, started.elapsed());
}

#[test]
#[ignore = "the long form: minutes"]
fn engine_matches_its_reference_model_for_long() {
    let started = Instant::now();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = env_number("MODEL_SEED", now.as_secs());
    let stats = run_seeds(seed, env_number("MODEL_STEPS", 100_000));
    stats.print(seed, started.elapsed());
    // A model that never parks a ticket proves nothing about parking.
    let parked = stats.milestones.get("parked").copied().unwrap_or_default();
    assert!(parked > 0, "no ticket was ever parked");
    let missing = control::missing_coverage(&stats.milestones);
    assert!(missing.is_empty(), "never exercised: {missing:?}");
}
