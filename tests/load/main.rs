//! The load proof: an hour of mixed traffic against the real binary, beside stand-in vendors that
//! live in this process. What is sent, what is measured and what it shows stands in `../README.md`.

#![allow(
    clippy::unwrap_used,
    reason = "a proof that cannot go on fails where it stands"
)]

#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with the stories, which need more of it")]
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

/// How heavy the load is, and for how long it lasts.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    pub seed: u64,
    /// How long after all runs have begun before anything is measured.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// Figures over time are by window.
    pub window: Duration,
    pub poll_interval: Duration,
    /// Webhooks of the repository host in a second.
    pub webhooks_per_second: u32,
    /// Shortest and longest life of a run, in seconds.
    pub run_duration_secs: (u64, u64),
    /// How often does somebody ask for a change on a pull request of ours?
    pub feedback_interval: Duration,
    /// How often does a ticketing system tell of a change?
    pub ticket_event_interval: Duration,
    /// The service may hold that much memory.
    pub max_resident_bytes: u64,
    /// The last quarter's median may be that many times the second quarter's.
    pub max_growth: f64,
}

/// Mappings, half of whose issues may run.
pub const LINEAR_TEAMS: usize = 160;
pub const JIRA_PROJECTS: usize = 40;
pub const REPOSITORIES: usize = 20;
pub const ISSUES_PER_MAPPING: usize = 25;
/// Runs that are active at a time: one of each mapping that is neither paused nor blocked.
pub const ACTIVE_RUNS: usize = 100;

/// No callback may take longer, but for one in a hundred. Of the release build alone.
const MAX_P99: Duration = Duration::from_millis(50);

/// Of the release build. What a debug build needs says nothing of the product, but that it does not
/// grow without end.
const MAX_RESIDENT: u64 = if cfg!(debug_assertions) { 160 } else { 64 } << 20;

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
            max_resident_bytes: MAX_RESIDENT,
            // In so short a time caches are still being filled.
            max_growth: 1.25,
        }
    }

    /// An hour's webhooks in a sixth of it: fills what has a size of its own.
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
async fn a_minute_of_mixed_traffic() {
    prove(LoadPlan::minute()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than ten minutes"]
async fn ten_minutes_with_six_times_the_webhooks() {
    prove(LoadPlan::ten_minutes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than an hour"]
async fn an_hour_of_mixed_traffic() {
    prove(LoadPlan::hour()).await;
}

/// What measures has the machine for itself.
static TURN: Mutex<()> = Mutex::const_new(());

async fn prove(plan: LoadPlan) {
    let _turn = TURN.lock().await;
    let (scene, service) = LoadEnv::start(plan.clone()).await;
    let watch = ProcessSampler::start(service.pid());
    let mut traffic = JoinSet::new();
    traffic.spawn(fake_runs::drive_all(Arc::clone(&scene)));
    scene.wait_until_all_active().await;
    webhooks::spawn_senders(&scene, &mut traffic);
    operator::spawn_clients(&scene, &mut traffic);
    tokio::time::sleep(plan.warm_up).await;
    let from = scene.recorder.start_measuring();
    tokio::time::sleep_until((from + plan.duration).into()).await;
    let until = Instant::now();
    let samples = watch.stop();
    scene.stop();
    while let Some(ended) = traffic.join_next().await {
        ended.expect("a client has panicked");
    }
    verify::check_durability(&scene).await;
    let metrics = operator::scrape_metrics(&scene).await;
    assert_eq!(service.stop(), 0, "it stops in order");
    verify::check_log(&scene);
    let figures = LoadReport::collect(&scene, samples, (from, until), &metrics);
    figures.print();
    plot::write_svg(&figures);
    figures.assert_limits();
}

/// Counts what went wrong, for whoever has no better word for it.
fn record_error(book: &LoadRecorder, what: &str, error: &std::io::Error) {
    book.record_error(format!("{what}: {error}"));
}
