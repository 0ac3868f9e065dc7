//! Harness of the model-based tests: random cases of events, several at once, and the search for the shortest case that
//! fails.
//!
//! A case is a plain list of events. Events that do not apply are skipped, so any sublist of a case is a valid case, and
//! a failing case can be shrunk.

pub mod poll_limited;
pub mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

/// Time limit for shrinking a failing case.
const SHRINK_TIME_LIMIT: Duration = Duration::from_secs(300);

/// The real engine with fake vendors, and what must hold after each event.
pub trait Model: Sized {
    /// Event of a case.
    type Event: Clone + fmt::Debug;

    /// Environment variables with the first seed and the number of steps.
    const VARIABLES: [&'static str; 2];

    /// Cases that run at once: they wait for the disk more than they compute.
    const WORKERS: usize = 4;

    /// Returns the possible cases.
    fn cases() -> BoxedStrategy<Vec<Self::Event>>;

    /// Returns the event at the end of every case, which checks what holds at rest.
    fn last_event() -> Self::Event;

    /// Returns the name of an event in the statistics.
    fn event_name(event: &Self::Event) -> String;

    /// Starts the case of a seed.
    async fn start(seed: u64) -> Self;

    /// Applies an event and checks what must hold. Returns whether the event applied.
    async fn step(&mut self, event: &Self::Event) -> Result<bool, String>;

    /// Counts what happened in the case.
    fn milestones(&self) -> BTreeMap<String, u64>;

    /// Stops everything.
    async fn stop(self);
}

/// Statistics of many cases.
#[derive(Default)]
pub struct Stats {
    cases: u64,
    steps: u64,
    /// Applied, skipped, and time spent, by event.
    events: BTreeMap<String, (u64, u64, Duration)>,
    milestones: BTreeMap<String, u64>,
}

impl Stats {
    fn count(&mut self, event: String, is_applied: bool, elapsed: Duration) {
        let (applied, skipped, duration) = self.events.entry(event).or_default();
        *if is_applied { applied } else { skipped } += 1;
        *duration += elapsed;
        self.steps += u64::from(is_applied);
    }

    fn print(&self, seed: u64, elapsed: Duration) {
        let rate = self.steps as f64 / elapsed.as_secs_f64();
        println!(
            "seed {seed}: {} cases, {} steps in {elapsed:.0?}, {rate:.0} per second",
            self.cases, self.steps
        );
        println!("events (applied, skipped, time): {:.0?}", self.events);
        println!("milestones: {:?}", self.milestones);
    }

    /// Asserts that this has happened: a model that never parks a ticket proves nothing about parking.
    pub fn assert_covered(&self, required: &[&str]) {
        let is_missing = |name: &&&str| !self.milestones.contains_key(**name);
        let missing: Vec<_> = required.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "never exercised: {missing:?}");
    }
}

/// Step and message of a failed case.
struct Failure {
    step: usize,
    why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fails at step {}: {}", self.step, self.why)
    }
}

async fn run_case<M: Model>(
    seed: u64,
    events: &[M::Event],
    stats: &Mutex<Stats>,
) -> Result<(), Failure> {
    let mut model = M::start(seed).await;
    let mut outcome = Ok(());
    for (step, event) in events.iter().chain([&M::last_event()]).enumerate() {
        let started = Instant::now();
        match model.step(event).await {
            Ok(is_applied) => {
                let name = M::event_name(event);
                let mut stats = stats.lock().unwrap();
                stats.count(name, is_applied, started.elapsed());
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
        for (name, count) in model.milestones() {
            *stats.milestones.entry(name).or_default() += count;
        }
    }
    model.stop().await;
    outcome
}

/// Runs the case of a seed. The error describes the shortest failing case found.
fn run_seed<M: Model>(seed: u64, runtime: &Runtime, stats: &Mutex<Stats>) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let events = M::cases().new_tree(&mut runner).unwrap().current();
    let Err(failure) = runtime.block_on(run_case::<M>(seed, &events, stats)) else {
        return Ok(());
    };
    let name = M::VARIABLES[0];
    let steps = stats.lock().unwrap().steps;
    eprintln!("{name}={seed} {failure}\nafter {steps} steps in all; shrinking");
    let discarded = Mutex::default();
    let run = |events: &[M::Event]| {
        runtime
            .block_on(run_case::<M>(seed, events, &discarded))
            .err()
    };
    let (events, failure) = shrink(events, failure, run);
    Err(format!("{name}={seed} {failure}\n{events:?}"))
}

/// Removes events that the failure does not need: first those after it, then ever smaller parts. One
/// trial takes as long as a case, so parts are tried before single events; proptest's shrinking goes one
/// by one.
fn shrink<E: Clone>(
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

/// Runs cases from this seed on, several at once, until this many steps are done or a case fails.
fn run_seeds<M: Model>(seed: u64, steps: u64) -> Stats {
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
            if let Err(failure) = run_seed::<M>(seed, &runtime, &stats) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..M::WORKERS {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    stats.into_inner().unwrap()
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn run<M: Model>(seed: u64, steps: u64) -> Stats {
    let [seed_variable, steps_variable] = M::VARIABLES;
    let (started, seed) = (Instant::now(), env_number(seed_variable, seed));
    let stats = run_seeds::<M>(seed, env_number(steps_variable, steps));
    stats.print(seed, started.elapsed());
    stats
}

/// Runs the short form: the same cases each time.
pub fn run_short<M: Model>(steps: u64) -> Stats {
    run::<M>(1, steps)
}

/// Runs the long form: other cases each time.
pub fn run_long<M: Model>(steps: u64) -> Stats {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    run::<M>(now.as_secs(), steps)
}
