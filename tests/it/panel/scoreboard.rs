//! Scoreboard: ranges, explained numbers, links and downloads.

use std::time::Duration;

use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::Repo;
use domain::issue::IssueRef;
use domain::job::{Job, JobKind, JobState, PullRequestRef, TimeoutReason};
use domain::report::{FailureCode, Usage};
use domain::time::Timestamp;
use requires::requires;
use serde_json::{Value, json};
use store::{decisions, jobs, pull_feedback};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::empty_env;
use super::views::{accessibility_violations, axe_script};
use crate::api_server::dispatched_job;
use crate::test_env::TestEnv;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Key of a project that a spreadsheet takes for a formula.
const FORMULA: &str = "=SUM(A1)";

/// Script that keeps the queries of the scoreboard, and what is downloaded.
const RECORD: &str = r#"
    const original = window.fetch;
    window.asked = [];
    window.saved = [];
    window.fetch = (path, how) => {
        if (path.startsWith("/api/scoreboard?")) window.asked.push(Object.fromEntries(new URLSearchParams(path.split("?")[1])));
        return original(path, how);
    };
    const create = URL.createObjectURL;
    URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return create(blob); };
"#;

/// Run of a project that ended ten days ago.
fn ended(now: Timestamp, number: u32, team: &str, state: JobState, cost: Option<f64>) -> Job {
    let at = now - 24 * 10 * HOUR;
    let id = ulid::Ulid::from_parts(at.as_millis(), u128::from(number)).to_string();
    let issue = IssueRef {
        id: format!("issue-{number}").as_str().into(),
        key: format!("ENG-{number}").as_str().into(),
        ..dispatched_job("0", JobKind::Implementation).issue
    };
    Job {
        issue,
        team: team.into(),
        state,
        reserved_at: at,
        dispatched_at: Some(at),
        finished_at: Some(at),
        triggered_at: Some(at - HOUR / 2),
        usage: cost.map(|cost| Usage {
            cost_usd: Some(cost),
            ..Usage::default()
        }),
        ..dispatched_job(&id, JobKind::Implementation)
    }
}

/// Environment with seven runs and four pull requests of one project, and a run with a pull request of another one.
async fn score_env() -> TestEnv {
    let env = empty_env().await;
    let now = env.app.core.now();
    let pull = |number: u32| {
        PullRequestRef::from_url(&format!("https://github.com/acme/shop/pull/{number}"))
    };
    let failed = |code| JobState::Failed {
        code: Some(code),
        reason: "r".into(),
    };
    let not_found = JobState::TimedOut {
        reason: TimeoutReason::RunNotFound,
    };
    let opened = |number: u32, team: &str, cost: Option<f64>| Job {
        pull: pull(number),
        ..ended(now, number, team, JobState::Completed, cost)
    };
    let mut runs: Vec<Job> = (1..=4).map(|n| opened(n, FORMULA, Some(2.0))).collect();
    runs.push(Job {
        kind: JobKind::FollowUp,
        pull: pull(1),
        ..ended(
            now,
            5,
            FORMULA,
            failed(FailureCode::VerifyFailed),
            Some(1.0),
        )
    });
    runs.push(ended(now, 6, FORMULA, not_found, None));
    runs.push(ended(now, 7, FORMULA, failed(FailureCode::Cancelled), None));
    runs.push(opened(8, "OPS", None));
    let merged = PullRequestStatus::Merged {
        commit: "c".into(),
        at: now - 24 * 9 * HOUR,
    };
    let records = [
        (1, merged.clone(), 3),
        (2, merged, 0),
        (3, PullRequestStatus::Closed, 0),
    ];
    let decision = Decision {
        at: now,
        issue_identifier: "ENG-9".into(),
        team_key: FORMULA.into(),
        outcome: DecisionOutcome::Waiting,
        reason: Some(WaitReason::Concurrency),
        message: "Waiting for a slot.".to_owned(),
        phase: None,
    };
    let stored = env.store.write(move |tx| {
        runs.iter().try_for_each(|job| jobs::put(tx, job))?;
        for (number, status, commits) in &records {
            let id = PullRequestId {
                repo: Repo::new("acme", "shop"),
                number: *number,
            };
            let mut record = pull_feedback::get_pull(tx, &id)?;
            record.status = status.clone();
            record.human_commits = (*commits > 0).then_some(*commits);
            pull_feedback::put_pull(tx, &id, &record)?;
        }
        decisions::record(tx, &runs[0].issue, &decision)
    });
    stored.await.unwrap();
    env
}

/// Opens the scoreboard by its link.
async fn open_scoreboard(env: &TestEnv) -> Browser {
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "secrets").await;
    browser.eval(RECORD).await;
    browser.switch_panel("scoreboard").await;
    browser.wait_for_text("To pull request").await;
    browser
}

async fn last_query(browser: &Browser) -> Value {
    browser.eval("return window.asked.at(-1)").await
}

/// Texts of a row by the heads of the columns.
async fn row(browser: &Browser, row: usize) -> Value {
    let script = format!(
        "return Object.fromEntries([...document.querySelectorAll('.board tbody tr, .board tfoot tr')[{row}].cells].map((cell) => [cell.dataset.label ?? 'name', cell.innerText.replace(/\\s+/g, ' ')]))"
    );
    browser.eval(&script).await
}

#[requires("browser")]
#[tokio::test]
async fn explains_and_downloads_its_numbers() {
    let env = score_env().await;
    let browser = open_scoreboard(&env).await;
    let first = row(&browser, 0).await;
    for (label, expected) in [
        ("name", FORMULA),
        ("Runs", "7"),
        ("Pull requests", "4"),
        ("Merged", "50%"),
        ("Review rounds", "0.3"),
        ("Cost", "$9.00"),
        ("Per merge", "$4.50"),
        ("Commits after", "3"),
    ] {
        assert_eq!(first[label], expected, "{label} of {first}");
    }
    let to_pull = first["To pull request"].as_str().unwrap();
    // A percentile is that of a histogram.
    let [median, percentile] = [to_pull, to_pull.split(" p95 ").nth(1).unwrap()];
    assert!(
        median.starts_with("30 min") && percentile.starts_with("30 min"),
        "{to_pull}"
    );
    // What is not known is no zero.
    let second = row(&browser, 1).await;
    for (label, expected) in [
        ("name", "OPS"),
        ("Runs", "1"),
        ("Merged", "0%"),
        ("Cost", "–"),
    ] {
        assert_eq!(second[label], expected, "{label} of {second}");
    }

    // The focus explains a number in words.
    browser.press_keys("\u{E004}").await;
    browser
        .eval("document.querySelector('.board tbody button.tip').focus({ focusVisible: true })")
        .await;
    let tip = "return getComputedStyle(document.activeElement, '::after').content";
    assert_eq!(
        browser.eval(tip).await,
        json!("\"2 merged, as a share of those merged, closed, or open for 7 days.\"")
    );
    let commits =
        "return document.querySelector('[data-label=\"Commits after\"] .tip').dataset.tip";
    let commits = browser.eval(commits).await;
    assert!(
        commits.as_str().unwrap().contains("first commit of a run"),
        "{commits}"
    );
    let reasons = "return [...document.querySelectorAll('.reasons li')].map((el) => el.innerText.split(/\\s*\\n\\s*/))";
    assert_eq!(
        browser.eval(reasons).await,
        json!([
            ["No workflow run was found within 10 minutes", "1"],
            ["Verify failed", "1"],
            ["At capacity", "1"]
        ])
    );

    browser.click("Download CSV").await;
    browser.wait_until("window.saved.length === 1").await;
    let csv = browser.eval("return window.saved[0]").await;
    let lines: Vec<&str> = csv.as_str().unwrap().split("\r\n").collect();
    assert!(
        lines[0].starts_with("team,Runs,Pull requests,Merged,"),
        "{csv}"
    );
    // A spreadsheet shows the name and does not compute it.
    assert!(lines[1].starts_with("\"'=SUM(A1)\",7,4,2,1,1,50,"), "{csv}");
    assert!(lines[2].starts_with("\"OPS\",1,1,0,0,1,0,"), "{csv}");
    assert!(lines[3].starts_with("\"Total\",8,5,2,1,2,40,"), "{csv}");
    browser.click("Download JSON").await;
    browser.wait_until("window.saved.length === 2").await;
    let saved = browser
        .eval("return JSON.parse(window.saved[1]).total.runs")
        .await;
    assert_eq!(saved, json!(8));
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// A number leads to the list of exactly what it counts.
#[requires("browser")]
#[tokio::test]
async fn leads_to_what_it_counts() {
    let env = score_env().await;
    let browser = open_scoreboard(&env).await;
    let follow = async |link: &str, rows: usize| {
        browser.open_view(&env.address, "scoreboard").await;
        browser.wait_for_text("To pull request").await;
        browser.click_selector(link).await;
        browser
            .wait_until(&format!(
                "!document.querySelector('.board') && document.querySelectorAll('main tbody tr').length === {rows}"
            ))
            .await;
        browser.text().await
    };
    let pulls = follow("[data-label='Pull requests'] a", 4).await;
    assert!(pulls.contains(FORMULA), "{pulls}");
    follow(".board tfoot [data-label='Pull requests'] a", 5).await;
    follow("[data-label='Runs'] a", 7).await;
    let failures = follow("[aria-label='Failures by reason'] a", 2).await;
    assert!(
        failures.contains("ENG-5") && failures.contains("ENG-6"),
        "{failures}"
    );
    browser.quit().await;
    env.stop().await;
}

/// Range and grouping are in the URL: they survive a reload, and Back returns to them.
#[requires("browser")]
#[tokio::test]
async fn keeps_its_range_in_the_url() {
    let env = score_env().await;
    let browser = open_scoreboard(&env).await;
    let days = "const [from, to] = ['from', 'to'].map((name) => Date.parse(window.asked.at(-1)[name])); return from % 86_400_000 === 0 ? Math.ceil((to - from) / 86_400_000) : from";
    assert_eq!(browser.eval(days).await, json!(30));
    assert_eq!(last_query(&browser).await["by"], "team");
    browser.click("7 d").await;
    browser.wait_until("window.asked.length === 2").await;
    assert_eq!(browser.eval(days).await, json!(7));
    browser.click("Model").await;
    browser.wait_until("window.asked.length === 3").await;
    assert_eq!(last_query(&browser).await["by"], "model");
    assert_eq!(browser.eval(days).await, json!(7));
    browser.eval("history.back()").await;
    browser.wait_until("window.asked.length === 4").await;
    assert_eq!(last_query(&browser).await["by"], "team");
    let current =
        "return [...document.querySelectorAll('.chip[aria-current]')].map((el) => el.innerText)";
    browser
        .wait_until("document.querySelector('.chip[aria-current]').innerText === '7 d' && document.querySelectorAll('.chip[aria-current]')[1].innerText === 'Project'")
        .await;
    assert_eq!(browser.eval(current).await, json!(["7 d", "Project"]));

    browser
        .eval("const [from, to] = document.querySelectorAll('.dates input'); from.value = '2026-01-01'; to.value = '2026-01-31'; to.dispatchEvent(new Event('change', { bubbles: true }))")
        .await;
    browser
        .wait_until("location.search.includes('from=2026-01-01')")
        .await;
    browser.wait_until("window.asked.length === 5").await;
    let asked = last_query(&browser).await;
    assert_eq!(
        (asked["from"].as_str(), asked["to"].as_str()),
        (
            Some("2026-01-01T00:00:00.000Z"),
            Some("2026-02-01T00:00:00.000Z")
        )
    );
    browser.click("Label").await;
    browser.wait_for_text("No runs in this range").await;
    // Unknown values in the URL are those that are preset.
    browser
        .open_view(&env.address, "scoreboard?by=constructor&range=constructor")
        .await;
    browser
        .wait_until("document.querySelector('.chip[aria-current]').innerText === '30 d'")
        .await;
    browser.quit().await;
    env.stop().await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn scoreboard_is_accessible_at_every_width() {
    let env = score_env().await;
    let browser = open_scoreboard(&env).await;
    let axe_script = axe_script();
    for width in [360, 768, 1440] {
        browser.resize(width).await;
        let overflow =
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert!(
            browser.eval(overflow).await.as_i64().unwrap() <= 0,
            "at {width}"
        );
    }
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme).await;
        assert_eq!(
            accessibility_violations(&browser, &axe_script, scheme).await,
            [""; 0],
            "{scheme}"
        );
    }
    browser.quit().await;
    env.stop().await;
}
