//! Load test: mixed traffic against the real binary, with fake vendors in the test process. See
//! `../README.md` for the traffic, the measurements and the results.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a load test fails where an expectation is not met"
)]

#[path = "../it/process.rs"]
#[allow(
    dead_code,
    reason = "shared with the integration tests, which use more of it"
)]
mod process;

mod connection_flood;
mod fake_runs;
mod http_client;
mod load_env;
mod measurements;
mod operator;
mod plot;
mod process_stats;
mod report;
mod verify;
mod webhooks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use load_env::LoadEnv;
use measurements::LoadRecorder;
use process_stats::ProcessSampler;
use report::LoadReport;

/// Load and its duration.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    pub seed: u64,
    /// Time between the start of all runs and the first measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub duration: Duration,
    /// Length of a window of the statistics over time.
    pub window: Duration,
    pub poll_interval: Duration,
    /// Webhooks of the repository host per second.
    pub webhooks_per_second: u32,
    /// Shortest and longest duration of a run, in seconds.
    pub run_duration_secs: (u64, u64),
    /// Interval between change requests on our pull requests.
    pub feedback_interval: Duration,
    /// Interval between webhooks of a ticketing system.
    pub ticket_event_interval: Duration,
    /// Maximum resident memory of the service, in bytes.
    pub max_resident_bytes: u64,
    /// Maximum ratio of the last quarter's median memory to the second quarter's.
    pub max_growth: f64,
}

/// Number of Linear mappings; half of all issues are eligible to run.
pub const LINEAR_TEAMS: usize = 160;
pub const JIRA_PROJECTS: usize = 40;
pub const REPOSITORIES: usize = 20;
pub const ISSUES_PER_MAPPING: usize = 25;
/// Number of concurrent runs: one per mapping that is neither paused nor blocked.
pub const ACTIVE_RUNS: usize = 100;

/// Maximum 99th percentile of callback latency. Checked in release builds only.
const MAX_P99: Duration = Duration::from_millis(50);

/// Maximum 99th percentile of the latency of requests for which a person waits. Checked in release builds only.
const MAX_PANEL_P99: Duration = Duration::from_millis(250);

/// Returns the memory limit of the measured program, in bytes. What operators install is held to the published limit. Of a
/// release build, 20 MiB more of the code are in memory. The limit of the debug build only detects unbounded growth.
fn max_resident() -> u64 {
    let mib = match load_env::is_program_named() {
        true => 64,
        false if cfg!(debug_assertions) => 160,
        false => 84,
    };
    mib << 20
}

impl LoadPlan {
    fn minute() -> Self {
        Self {
            seed: 20_261_121,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 60 }),
            window: Duration::from_secs(2),
            poll_interval: Duration::from_secs(10),
            webhooks_per_second: 50,
            run_duration_secs: (15, 60),
            feedback_interval: Duration::from_secs(5),
            ticket_event_interval: Duration::from_secs(20),
            max_resident_bytes: max_resident(),
            // Caches are still filling in such a short time.
            max_growth: 1.25,
        }
    }

    /// The webhooks of an hour in ten minutes; fills all bounded caches.
    fn ten_minutes() -> Self {
        Self {
            warm_up: Duration::from_secs(20),
            duration: Duration::from_secs(600),
            window: Duration::from_secs(10),
            webhooks_per_second: 300,
            ..Self::minute()
        }
    }

    fn hour() -> Self {
        Self {
            warm_up: Duration::from_secs(60),
            duration: Duration::from_secs(3600),
            window: Duration::from_secs(60),
            poll_interval: Duration::from_secs(15),
            run_duration_secs: (120, 600),
            feedback_interval: Duration::from_secs(20),
            ticket_event_interval: Duration::from_secs(60),
            max_growth: 1.05,
            ..Self::minute()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_a_minute_of_mixed_traffic() {
    run_load(LoadPlan::minute()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than ten minutes"]
async fn serves_ten_minutes_with_six_times_the_webhooks() {
    run_load(LoadPlan::ten_minutes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than an hour"]
async fn serves_an_hour_of_mixed_traffic() {
    run_load(LoadPlan::hour()).await;
}

/// Lock that gives each measurement the machine for itself.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

async fn run_load(plan: LoadPlan) {
    let _guard = EXCLUSIVE.lock().await;
    let (env, service) = LoadEnv::start(plan.clone()).await;
    let sampler = ProcessSampler::start(service.pid());
    let mut traffic = JoinSet::new();
    traffic.spawn(fake_runs::drive_all(Arc::clone(&env)));
    env.wait_until_all_active().await;
    webhooks::spawn_senders(&env, &mut traffic);
    operator::spawn_clients(&env, &mut traffic);
    tokio::time::sleep(plan.warm_up).await;
    let from = env.recorder.start_measuring();
    tokio::time::sleep_until((from + plan.duration).into()).await;
    let until = Instant::now();
    let samples = sampler.stop();
    env.stop();
    while let Some(ended) = traffic.join_next().await {
        ended.expect("a client has panicked");
    }
    verify::check_durability(&env).await;
    let metrics = operator::scrape_metrics(&env).await;
    assert_eq!(service.stop(), 0, "the service stops gracefully");
    verify::check_log(&env);
    let report = LoadReport::collect(&env, samples, (from, until), &metrics);
    report.print();
    plot::write_svg(&report);
    report.assert_limits();
}

/// Records an I/O error of a client.
fn record_error(recorder: &LoadRecorder, what: &str, error: &std::io::Error) {
    recorder.record_error(format!("{what}: {error}"));
}
