//! Speed and traffic of the panel with 10,000 runs and 5,000 issues. docs/proofs.md has the measured figures.

use std::time::{Duration, Instant};

use domain::job::JobState;
use requires::requires;
use serde_json::{Value, json};
use store::jobs;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::busy_env;
use crate::test_env::TestEnv;

/// Panels with the most data.
const MEASURED_PANELS: [&str; 3] = ["overview", "pipelines", "issues"];

/// Time of each measurement of traffic.
const MEASURED: Duration = Duration::from_secs(15);
/// What the opened event stream may have missed is fetched once more within this time.
const CATCH_UP: Duration = Duration::from_secs(7);

/// Maximum traffic per minute when nothing happens, and when 100 runs report, in bytes.
const MAX_QUIET: u64 = 100_000;
const MAX_BUSY: u64 = 1_000_000;

/// Maximum time until a panel is shown after a cold start, and maximum length of a task of the page, in milliseconds.
/// They hold on a machine that does nothing else.
const MAX_SHOWN: f64 = 1000.0;
const MAX_TASK: f64 = 100.0;

/// Observes long tasks from the next page on.
const OBSERVE_TASKS: &str = "window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((one) => one.duration))).observe({ type: 'longtask', buffered: true });";

/// What was measured of one panel.
#[derive(Debug)]
struct Figures {
    /// Time until the panel was shown, with an empty cache, in milliseconds.
    shown: f64,
    /// Longest task until then, in milliseconds. Tasks of less than 50 ms are not reported and count as 0.
    loading_task: f64,
    /// Bytes received per minute.
    quiet: u64,
    busy: u64,
    /// Longest task during these measurements, in milliseconds.
    task: f64,
}

async fn open_browser(env: &TestEnv) -> Browser {
    let browser = Browser::start_with_network_log().await;
    browser.open_view(&env.address, "settings").await;
    let script = json!({ "source": OBSERVE_TASKS });
    browser
        .devtools("Page.addScriptToEvaluateOnNewDocument", script)
        .await;
    browser
}

async fn longest_task(browser: &Browser) -> f64 {
    let tasks: Value = browser.eval("return window.tasks.splice(0)").await;
    let tasks = tasks.as_array().unwrap().iter();
    tasks.filter_map(Value::as_f64).fold(0.0, f64::max)
}

/// Loads a panel with an empty cache. Returns the time until it was shown, and the longest task until then.
async fn load(env: &TestEnv, browser: &Browser, panel: &str) -> (f64, f64) {
    browser.goto("about:blank").await;
    browser
        .devtools("Network.clearBrowserCache", json!({}))
        .await;
    let url = format!("{}/admin/{panel}", env.address);
    browser.goto(&url).await;
    browser.wait_for_view().await;
    let mark = format!("return performance.getEntriesByName('shown:{panel}')[0].startTime");
    let shown = browser.eval(&mark).await.as_f64().unwrap();
    (shown, longest_task(browser).await)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// Measures a panel, with the medians of some loads.
async fn measure(env: &TestEnv, browser: &Browser, panel: &str, loads: usize) -> Figures {
    let (mut shown, mut loading_tasks) = (Vec::new(), Vec::new());
    for _ in 0..loads {
        let figures = load(env, browser, panel).await;
        shown.push(figures.0);
        loading_tasks.push(figures.1);
    }
    let (shown, loading_task) = (median(shown), median(loading_tasks));
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    tokio::time::sleep(CATCH_UP).await;
    browser.received_bytes().await;
    longest_task(browser).await;
    let per_minute = |bytes: u64| bytes * 60 / MEASURED.as_secs();
    tokio::time::sleep(MEASURED).await;
    let quiet = per_minute(browser.received_bytes().await);
    report(env, MEASURED).await;
    let busy = per_minute(browser.received_bytes().await);
    let task = longest_task(browser).await;
    Figures {
        shown,
        loading_task,
        quiet,
        busy,
        task,
    }
}

fn check_traffic(panel: &str, figures: &Figures) {
    assert!(figures.quiet <= MAX_QUIET, "{panel}: {figures:?}");
    assert!(figures.busy <= MAX_BUSY, "{panel}: {figures:?}");
}

fn check_times(panel: &str, figures: &Figures) {
    assert!(figures.shown <= MAX_SHOWN, "{panel}: {figures:?}");
    assert!(figures.loading_task <= MAX_TASK, "{panel}: {figures:?}");
    assert!(figures.task <= MAX_TASK, "{panel}: {figures:?}");
}

/// Lets 100 active runs report one after the other for a time.
async fn report(env: &TestEnv, time: Duration) {
    let started = Instant::now();
    let active = env.store.read(|tx| jobs::latest(tx, 100)).unwrap();
    for job in active.iter().cycle() {
        if started.elapsed() >= time {
            break;
        }
        let mut job = job.clone();
        job.state = JobState::Running;
        let stored = env.store.write(move |tx| jobs::put(tx, &job));
        stored.await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Views cost little traffic while nothing happens and while 100 runs report.
#[requires("browser")]
#[tokio::test]
async fn large_services_cost_little_traffic() {
    let env = busy_env().await;
    let browser = open_browser(&env).await;
    for panel in MEASURED_PANELS {
        let figures = measure(&env, &browser, panel, 1).await;
        check_traffic(panel, &figures);
    }
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// Measures the figures of docs/proofs.md.
#[requires("browser")]
#[tokio::test]
#[ignore = "needs an otherwise idle machine"]
async fn a_large_service_is_shown_within_a_second() {
    let env = busy_env().await;
    let browser = open_browser(&env).await;
    let mut measured = Vec::new();
    for panel in MEASURED_PANELS {
        let figures = measure(&env, &browser, panel, 5).await;
        println!("{panel}: {figures:?}");
        measured.push((panel, figures));
    }
    for (panel, figures) in &measured {
        check_traffic(panel, figures);
        check_times(panel, figures);
    }
    browser.quit().await;
    env.stop().await;
}
