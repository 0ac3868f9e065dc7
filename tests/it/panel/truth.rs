//! What the panel says about the state of the service: incidents, counts, charts, logs and scores.

use std::time::{Duration, SystemTime};

use domain::report::StepRecord;
use domain::time::Timestamp;
use fake_vendors::FakeService;
use requires::requires;
use serde_json::{Value, json};
use store::{run_logs, steps};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::{RUNNING_JOB_ID, populated_env};
use super::run_records::append_log;
use super::untrusted_text::UntrustedText;
use crate::test_env::{TestEnv, mapping};

const ENTER: &str = "\u{E007}";
const HOME: &str = "\u{E011}";
const RIGHT: &str = "\u{E014}";

/// Longer than any delay between two attempts of an effect.
const LONGER_THAN_RETRY_DELAY: Duration = Duration::from_secs(5 * 60);

async fn text_of(browser: &Browser, selector: &str) -> String {
    let script = "return document.querySelector(arguments[0]).innerText.replace(/\\s+/g, ' ')";
    let text = browser.eval_with(script, json!([selector])).await;
    text.as_str().unwrap().to_owned()
}

/// While Linear does not answer, every panel says what waits and since when, and the time of the last poll is that of the
/// last successful one. The incident ends with the next successful poll. A rate limit has a known end.
#[requires("browser")]
#[tokio::test(flavor = "multi_thread")]
async fn incidents_are_shown_on_every_panel() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    env.vendors
        .linear()
        .issue("ENG-9")
        .title("Stands in the way");
    let blocked = env.vendors.linear().issue("ENG-1").title("Waits");
    blocked.blocked_by("ENG-9").add_label("Agent-Implement");
    env.tick().await;
    let after_first_poll = env.app.core.now();
    let linear = env.vendors.faults(FakeService::Linear);
    linear.set_outage(true);
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;

    let browser = Browser::start().await;
    browser.open_view(&env.address, "overview").await;
    browser.wait_for_text("Linear is unreachable since").await;
    let times = text_of(&browser, ".poll-times").await;
    assert!(
        times.starts_with("Linear: polled ") && times.contains(", failed "),
        "{times}"
    );
    let polled_at = "return document.querySelector('.poll-times time').dateTime";
    let polled_at = browser.eval(polled_at).await;
    let polled_at = Timestamp::parse(polled_at.as_str().unwrap()).unwrap();
    assert!(polled_at <= after_first_poll, "{polled_at}");
    linear.set_outage(false);
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    browser
        .wait_until("!document.querySelector('.strip').innerText")
        .await;

    let until = SystemTime::now() + Duration::from_secs(44 * 60);
    linear.rate_limit_until(Some(until));
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    browser.switch_panel("secrets").await;
    browser.wait_for_text("Linear is rate limited until").await;
    let strip = text_of(&browser, ".strip").await;
    assert!(
        strip.contains("min)") && strip.contains("1 issue waits."),
        "{strip}"
    );
    browser.quit().await;
    env.stop().await;
}

/// The tile, the chart, the title and the list behind the tile agree about what has failed.
#[requires("browser")]
#[tokio::test]
async fn failed_means_the_same_everywhere() {
    let env = populated_env(&UntrustedText::plain()).await;
    let summary = env.admin_get("/api/summary?window=24h").await;
    let count = |name: &str| summary["ended"][name].as_u64().unwrap();
    let failed = count("failed") + count("timed_out") + count("review_failed");
    assert!(failed > count("failed"), "{summary}");
    let browser = Browser::start().await;
    browser.open_view(&env.address, "overview").await;
    let tile = text_of(&browser, ".tile").await;
    assert!(tile.starts_with(&format!("Failed {failed} ")), "{tile}");
    let legend = text_of(&browser, ".chart-foot").await;
    assert!(legend.contains(&format!("Failed {failed}")), "{legend}");
    let title = browser.eval("return document.title").await;
    assert!(
        title.as_str().unwrap().starts_with(&format!("({failed}) ")),
        "{title}"
    );
    browser.click_selector(".tile").await;
    browser
        .wait_until(
            "location.pathname === '/admin/pipelines' && location.search.includes('status=failed')",
        )
        .await;
    browser
        .wait_until(&format!(
            "document.querySelectorAll('tbody tr').length === {failed}"
        ))
        .await;
    browser.quit().await;
    env.stop().await;
}

/// The values of a chart are read with the arrow keys, and Enter opens the runs of an hour.
#[requires("browser")]
#[tokio::test]
async fn charts_are_read_by_keyboard() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "overview").await;
    let plot = "document.querySelector('.plot')";
    browser.eval(&format!("{plot}.focus()")).await;
    let value = format!("return {plot}.getAttribute('aria-valuetext')");
    let now = format!("return {plot}.getAttribute('aria-valuenow')");
    browser.press_keys(HOME).await;
    let first = browser.eval(&value).await;
    assert_eq!(browser.eval(&now).await, "0");
    browser.press_keys(RIGHT).await;
    assert_eq!(browser.eval(&now).await, "1");
    assert_ne!(browser.eval(&value).await, first);
    // What is read aloud is also shown.
    let series = env.admin_get("/api/summary?window=24h").await["series"].clone();
    let completed = &series[1]["completed"];
    let foot = text_of(&browser, ".chart-foot").await;
    assert!(foot.contains(&format!("Completed {completed}")), "{foot}");
    let spoken = browser.eval(&value).await;
    assert!(
        spoken.as_str().unwrap().contains(&completed.to_string()),
        "{spoken}"
    );
    browser.press_keys(ENTER).await;
    browser
        .wait_until("location.pathname === '/admin/pipelines'")
        .await;
    let query = browser
        .eval("return Object.fromEntries(new URLSearchParams(location.search))")
        .await;
    assert_eq!(
        (&query["from"], &query["to"]),
        (&series[1]["at"], &series[2]["at"])
    );
    browser.quit().await;
    env.stop().await;
}

/// Lines of a log with increasing numbers, and the number after the last one.
fn numbered_lines(from: u64, bytes: usize) -> (String, u64) {
    let mut text = String::new();
    let mut number = from;
    while text.len() < bytes {
        text.push_str(&format!(
            "2026-11-23T08:00:00.000Z line {number} of a long log\n"
        ));
        number += 1;
    }
    (text, number)
}

async fn append(env: &TestEnv, text: String, order: u64) {
    let step = json!({"id": format!("implement.{order}"), "type": "implement", "status": "running", "started_at": env.app.core.now()});
    let step = StepRecord::parse(Some(step)).unwrap();
    let stored = env.store.write(move |tx| {
        append_log(tx, &RUNNING_JOB_ID.into(), &text)?;
        // The event of the step makes the page read on.
        steps::put(tx, &RUNNING_JOB_ID.into(), &step, 100 + order)
    });
    stored.await.unwrap();
}

/// The page of a run shows a log whose oldest part was removed: the mark, every kept line once, and what is appended
/// later, also if more was removed meanwhile than the page has read.
#[requires("browser")]
#[tokio::test]
async fn shows_a_stored_and_cut_log() {
    let env = populated_env(&UntrustedText::plain()).await;
    let (text, next) = numbered_lines(0, 1_300_000);
    append(&env, text, 1).await;
    let log = env
        .store
        .read(|tx| run_logs::get(tx, &RUNNING_JOB_ID.into()))
        .unwrap()
        .unwrap();
    assert!(log.start > 0, "{log:?}");
    let browser = Browser::start().await;
    let view = format!("runs/{RUNNING_JOB_ID}");
    browser.open_view(&env.address, &view).await;
    let shown = |text: String| {
        format!(
            "[...document.querySelectorAll('.log-lines .line')].filter((el) => el.innerText.includes({})).length",
            json!(text)
        )
    };
    let last = |next: u64| shown(format!("line {} of", next - 1));
    browser.wait_until(&format!("{} === 1", last(next))).await;
    let mark = "The oldest ".to_owned();
    browser
        .eval("document.querySelector('.log-lines').scrollTop = 0")
        .await;
    browser
        .wait_until(&format!("{} === 1", shown(mark.clone())))
        .await;
    let removed = format!("{} bytes of this log were removed", log.start);
    browser.wait_for_text(&removed).await;

    // A little more, then more than is kept.
    let (text, next) = numbered_lines(next, 500);
    append(&env, text, 2).await;
    browser
        .eval("document.querySelector('.log-lines').scrollTop = 1e9")
        .await;
    browser.wait_until(&format!("{} === 1", last(next))).await;
    let (text, next) = numbered_lines(next, 1_300_000);
    append(&env, text, 3).await;
    browser.wait_until(&format!("{} === 1", last(next))).await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// The scoreboard shows what the service counted, for every grouping.
#[requires("browser")]
#[tokio::test]
async fn the_scoreboard_shows_the_counted_runs() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    for by in ["team", "agent", "model", "kind"] {
        let view = format!("scoreboard?by={by}");
        browser.open_view(&env.address, &view).await;
        let scores = env.admin_get(&format!("/api/scoreboard?by={by}")).await;
        let expected = |row: &Value| {
            let counted = [&row["runs"], &row["pullRequests"]];
            counted.map(|number| number.to_string())
        };
        let cells = "return [...document.querySelectorAll('.board tbody tr, .board tfoot tr')].map((row) => [...row.children].slice(1, 3).map((el) => el.innerText.trim()))";
        let cells = browser.eval(cells).await;
        let mut rows: Vec<&Value> = scores["rows"].as_array().unwrap().iter().collect();
        assert!(!rows.is_empty(), "{by}: {scores}");
        rows.push(&scores["total"]);
        let mut expected: Vec<Value> = rows.into_iter().map(|row| json!(expected(row))).collect();
        let mut cells = cells.as_array().unwrap().clone();
        assert_eq!(cells.last(), expected.last(), "{by}");
        // The page orders groups by their number of runs.
        for rows in [&mut cells, &mut expected] {
            rows.sort_by_key(Value::to_string);
        }
        assert_eq!(cells, expected, "{by}");
    }
    let total = env.admin_get("/api/scoreboard").await["total"].clone();
    let merged = total["mergedShare"].as_f64().unwrap();
    let text = text_of(&browser, ".board tfoot").await;
    let percent = format!("{}%", (merged * 100.0).round());
    assert!(text.contains(&percent), "{percent}: {text}");
    browser.quit().await;
    env.stop().await;
}

/// Names of all actions, as their declaration has them.
fn audited_actions() -> Vec<&'static str> {
    let source = include_str!("../../../src/domain/audit.rs");
    let (_, declared) = source.split_once("\nactions! {").unwrap();
    let (declared, _) = declared.split_once("\n}").unwrap();
    let lines = declared.lines();
    lines
        .filter_map(|line| line.split_once(" = \"")?.1.strip_suffix("\","))
        .collect()
}

/// Filters of the audit log narrow the entries, and the export has the same ones.
#[requires("browser")]
#[tokio::test]
async fn the_audit_log_is_filtered_and_exported() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "audit").await;
    let rows = "document.querySelectorAll('tbody tr').length";
    let all = browser.eval(&format!("return {rows}")).await;
    // Actions of entries that are not loaded can be chosen as well.
    let choices =
        "return [...document.querySelectorAll('[name=action] option')].map((el) => el.value)";
    let choices = browser.eval(choices).await;
    let mut choices: Vec<&str> = choices.as_array().unwrap()[1..]
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut actions = audited_actions();
    choices.sort_unstable();
    actions.sort_unstable();
    assert_eq!(choices, actions);
    let entries = env
        .admin_get("/api/audit?action=secret-set&limit=200")
        .await;
    let secrets = entries.as_array().unwrap().len();
    assert!(secrets > 0 && json!(secrets) != all, "{entries}");
    let choose = "const box = document.querySelector('[name=action]'); box.value = 'secret-set'; box.dispatchEvent(new Event('change', { bubbles: true }))";
    browser.eval(choose).await;
    browser.wait_until(&format!("{rows} === {secrets}")).await;
    browser
        .wait_until("location.search === '?action=secret-set'")
        .await;
    browser.fill("Text", "STRIPE").await;
    browser.press_keys(ENTER).await;
    browser.wait_until(&format!("{rows} === 1")).await;

    let keep = "window.saved = []; const create = URL.createObjectURL; URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return create(blob); };";
    browser.eval(keep).await;
    browser.click("Export CSV").await;
    browser.wait_until("window.saved.length === 1").await;
    let saved = browser.eval("return window.saved[0]").await;
    let lines: Vec<&str> = saved.as_str().unwrap().trim().lines().collect();
    assert_eq!(lines.len(), 2, "{saved}");
    assert!(lines[1].contains("STRIPE_KEY"), "{saved}");
    assert!(!saved.as_str().unwrap().contains("hush"), "{saved}");
    browser.click("Clear").await;
    browser.wait_until(&format!("{rows} >= {all}")).await;
    browser.click("Verify").await;
    browser
        .wait_for_text("The log is complete and unchanged")
        .await;
    browser.quit().await;
    env.stop().await;
}
