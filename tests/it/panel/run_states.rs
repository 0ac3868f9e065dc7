//! Runs beside each other: what lists, drawers, actions and charts make of shadow, cancelled and timed-out runs.

use std::time::Duration;

use domain::decision::DecisionOutcome;
use domain::issue::{IssueRef, System};
use domain::job::{Job, JobKind, JobState, RunnerKind, TimeoutReason};
use domain::report::FailureCode;
use domain::stage::Stage;
use domain::time::Timestamp;
use requires::requires;
use serde_json::json;
use store::{dedup, jobs};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::{empty_env, populated_env, snapshot_issue};
use super::untrusted_text::UntrustedText;
use crate::api_server::dispatched_job;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

fn failed(code: Option<FailureCode>) -> JobState {
    JobState::Failed {
        code,
        reason: "The tests fail".into(),
    }
}

/// Run of an issue that was reserved some seconds ago, with an id that follows from that time.
fn run(env: &TestEnv, issue: &IssueRef, state: JobState, seconds_ago: u64) -> Job {
    let now = env.app.core.now();
    let at = Timestamp::from_millis(now.as_millis() - seconds_ago * 1000);
    let id = ulid::Ulid::from_parts(at.as_millis(), 7).to_string();
    let mut job = Job {
        issue: issue.clone(),
        state,
        reserved_at: at,
        dispatched_at: Some(at),
        started_at: Some(at),
        ..dispatched_job(&id, JobKind::Implementation)
    };
    job.finished_at = (!job.is_active()).then(|| at + Duration::from_secs(30));
    job
}

/// Shadow run of a job: of the same millisecond, with a greater id.
fn shadow_of(job: &Job) -> Job {
    Job {
        id: format!("{}-shadow", job.id.as_str()).as_str().into(),
        runner: RunnerKind::Vm,
        shadow: true,
        ..job.clone()
    }
}

async fn put(env: &TestEnv, runs: Vec<Job>) {
    let stored = env
        .store
        .write(move |tx| runs.iter().try_for_each(|job| jobs::put(tx, job)));
    stored.await.unwrap();
}

fn is_active(env: &TestEnv, job: &Job) -> bool {
    let stored = env.store.read(|tx| jobs::get(tx, &job.id));
    stored.unwrap().unwrap().is_active()
}

fn issue(key: &str) -> IssueRef {
    IssueRef {
        id: format!("id-of-{key}").as_str().into(),
        key: key.into(),
        ..dispatched_job("0", JobKind::Implementation).issue
    }
}

/// Whether the bar of the selection begins with a text.
fn selection(text: &str) -> String {
    format!(
        "document.querySelector('.bulk')?.innerText.replace(/\\s+/g, ' ').startsWith({})",
        json!(text)
    )
}

/// The drawer of an issue cancels and retries the run that counts, and not the shadow run beside it.
#[requires("browser")]
#[tokio::test]
async fn the_drawer_acts_on_the_run_beside_a_shadow_run() {
    let env = populated_env(&UntrustedText::plain()).await;
    let active = run(&env, &issue("SHOP-300"), JobState::Running, 60);
    let ended = run(&env, &issue("SHOP-301"), failed(None), 90);
    let shadow = shadow_of(&active);
    let all = vec![
        active.clone(),
        shadow.clone(),
        ended.clone(),
        shadow_of(&ended),
    ];
    put(&env, all).await;
    let browser = Browser::start().await;
    browser
        .open_view(&env.address, "issues?issue=SHOP-300")
        .await;
    browser.wait_for_text(", shadow").await;
    browser.click("Cancel run of SHOP-300").await;
    browser.wait_for_text("Cancel for good").await;
    browser.click("Cancel run").await;
    browser
        .wait_for_text_anywhere("Cancelled the run of SHOP-300.")
        .await;
    assert!(!is_active(&env, &active) && is_active(&env, &shadow));

    browser
        .open_view(&env.address, "issues?issue=SHOP-301")
        .await;
    browser
        .wait_until("document.querySelector('dialog [aria-label=\"Retry SHOP-301\"]')")
        .await;

    // Shadow runs have rows of their own, which offer no retry.
    browser
        .open_view(&env.address, "pipelines?q=SHOP-301")
        .await;
    let rows = "document.querySelectorAll('[aria-label=\"Select SHOP-301\"]')";
    browser.wait_until(&format!("{rows}.length === 2")).await;
    browser
        .eval(&format!("for (const box of {rows}) box.click()"))
        .await;
    browser
        .wait_until(&selection("2 selected Retry 1 Clear"))
        .await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// A selected issue is retried by its key, also if its latest run is a shadow run or unknown.
#[requires("browser")]
#[tokio::test]
async fn a_selected_issue_is_retried_beside_a_shadow_run() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Keep the cart");
    engine::poll::run_once(&env.app).await.unwrap();
    let mut job = env.jobs("ENG-1")[0].clone();
    job.state = failed(None);
    job.finished_at = Some(env.app.core.now());
    put(&env, vec![job.clone(), shadow_of(&job)]).await;
    let decision = (DecisionOutcome::Failed, None, "Failed: the tests fail.");
    let now = env.app.core.now();
    let row = |issue: IssueRef| snapshot_issue(issue, Stage::Triggered, decision, now);
    let snapshots = &env.app.live.poll_snapshots;
    let unknown = IssueRef {
        id: "no-run".into(),
        key: "ENG-2".into(),
        ..job.issue.clone()
    };
    let rows = vec![row(job.issue.clone()), row(unknown)];
    snapshots.record(System::Linear, rows, &[], now);
    assert_eq!(env.store.read(dedup::all).unwrap().len(), 1);

    let browser = Browser::start().await;
    browser.open_view(&env.address, "issues").await;
    for key in ["ENG-1", "ENG-2"] {
        browser
            .click_selector(&format!("[aria-label='Select {key}']"))
            .await;
    }
    browser.click("Retry 2").await;
    browser.wait_for_text("as soon as there is capacity").await;
    browser.click("Retry").await;
    browser.wait_for_text_anywhere("Job not found").await;
    // The results of both retries arrive in any order.
    env.wait_until("the other issue is retried", || {
        env.store.read(dedup::all).unwrap().is_empty()
    })
    .await;
    let mut errors = console_errors(browser.take_console_log().await);
    errors.retain(|line| !line.contains("404 (Not Found)"));
    assert_eq!(errors, [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// A run is cancelled by its failure code. GitHub also ends a workflow run at its time limit as `cancelled`.
#[requires("browser")]
#[tokio::test]
async fn a_run_at_its_time_limit_is_not_cancelled() {
    let env = populated_env(&UntrustedText::plain()).await;
    let cut_off = Job {
        conclusion: Some("cancelled".into()),
        ..run(
            &env,
            &issue("SHOP-310"),
            JobState::TimedOut {
                reason: TimeoutReason::TimedOut,
            },
            50,
        )
    };
    // A machine has no conclusion.
    let stopped = run(
        &env,
        &issue("SHOP-311"),
        failed(Some(FailureCode::Cancelled)),
        60,
    );
    put(&env, vec![cut_off, stopped]).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "pipelines?q=SHOP-31").await;
    let words = "return [...document.querySelectorAll('tbody tr')].map((row) => [row.querySelector('.key').innerText, row.querySelector('.badge').dataset.word])";
    let expected = json!([["SHOP-310", "timed_out"], ["SHOP-311", "cancelled"]]);
    assert_eq!(browser.eval(words).await, expected);
    browser
        .click_selector("[aria-label='Select SHOP-310']")
        .await;
    browser
        .wait_until(&selection("1 selected Retry 1 Clear"))
        .await;

    browser.open_view(&env.address, "overview").await;
    browser.wait_for_text("Last failed runs").await;
    browser.wait_for_text("SHOP-310").await;
    let lists = "return [...document.querySelectorAll('[aria-label=\"Last failed runs\"] li')].some((row) => row.innerText.includes('SHOP-311'))";
    assert_eq!(browser.eval(lists).await, json!(false));
    browser.quit().await;
    env.stop().await;
}

/// A cancellation says what it changes: a run on a pull request gives up its feedback and leaves the ticket as it is. Runs
/// of one issue are retried by one request.
#[requires("browser")]
#[tokio::test]
async fn actions_say_what_they_change() {
    const TICKET: &str = "The trigger and all markers leave the ticket";
    const PULL: &str = "The feedback that the run worked on is given up";
    let env = populated_env(&UntrustedText::plain()).await;
    let on_ticket = run(&env, &issue("SHOP-320"), JobState::Running, 60);
    let on_pull = Job {
        kind: JobKind::FollowUp,
        ..run(&env, &issue("SHOP-321"), JobState::Running, 70)
    };
    let retried = [80, 90, 100].map(|ago| run(&env, &issue("SHOP-332"), failed(None), ago));
    let mut all = vec![on_ticket.clone(), on_pull.clone()];
    all.extend(retried.clone());
    put(&env, all).await;
    let browser = Browser::start().await;
    let text = "return document.querySelector('dialog[open]:last-of-type').innerText";
    for (job, said, unsaid) in [(&on_ticket, TICKET, PULL), (&on_pull, PULL, TICKET)] {
        let view = format!("pipelines?job={}", job.id.as_str());
        browser.open_view(&env.address, &view).await;
        let cancel = format!("Cancel run of {}", job.issue.key.as_str());
        browser.click(&cancel).await;
        browser.wait_for_text("Cancel and start again").await;
        let text = browser.eval(text).await;
        let text = text.as_str().unwrap();
        assert!(text.contains(said) && !text.contains(unsaid), "{text}");
    }

    let select = |keys: &str| {
        format!(
            "for (const box of document.querySelectorAll('[aria-label^=\"Select {keys}\"]')) box.click()"
        )
    };
    browser.open_view(&env.address, "pipelines?q=SHOP-32").await;
    browser.eval(&select("SHOP-32")).await;
    browser.click("Cancel 2").await;
    for said in ["Cancel 2 runs?", TICKET, PULL] {
        browser.wait_for_text(said).await;
    }
    browser
        .open_view(&env.address, "pipelines?q=SHOP-332&status=failed")
        .await;
    browser.eval(&select("SHOP-332")).await;
    browser.click("Retry 3").await;
    browser.wait_for_text("Retry SHOP-332?").await;

    // Only the latest run of the issue is retried, and none while another one is active.
    let drawer = |job: &Job| format!("pipelines?job={}", job.id.as_str());
    let offers_retry = "document.querySelector('dialog [aria-label=\"Retry SHOP-332\"]')";
    browser.open_view(&env.address, &drawer(&retried[1])).await;
    browser.wait_for_text("All runs of this issue").await;
    let offered = browser.eval(&format!("return {offers_retry}")).await;
    assert_eq!(offered, json!(null));
    browser.open_view(&env.address, &drawer(&retried[0])).await;
    browser.wait_until(offers_retry).await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    let next = run(&env, &issue("SHOP-332"), JobState::Running, 10);
    put(&env, vec![next]).await;
    browser.wait_until(&format!("!{offers_retry}")).await;
    browser.quit().await;
    env.stop().await;
}

/// The chart of the overview counts as failed what its tile does.
#[requires("browser")]
#[tokio::test]
async fn the_chart_of_the_overview_equals_its_tile() {
    let env = empty_env().await;
    let timed_out = JobState::TimedOut {
        reason: TimeoutReason::RunNotFound,
    };
    let review_failed = JobState::ReviewFailed {
        unresolved: Vec::new(),
    };
    let states = [
        failed(None),
        timed_out,
        review_failed,
        failed(Some(FailureCode::Cancelled)),
        JobState::Completed,
    ];
    let runs = (0..).zip(states);
    let runs = runs.map(|(n, state)| run(&env, &issue(&format!("ENG-{n}")), state, 60 + n));
    let runs: Vec<Job> = runs.collect();
    put(&env, runs).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "overview").await;
    browser
        .wait_until("document.querySelector('.tile.bad .tile-value')?.innerText === '3'")
        .await;
    let legend = "return [...document.querySelector('.chart-foot').querySelectorAll('.legend')].map((el) => [el.firstChild.textContent, el.querySelector('b').innerText])";
    let legend = browser.eval(legend).await;
    let legend = legend.as_array().unwrap();
    for part in [json!(["Completed", "1"]), json!(["Failed", "3"])] {
        assert!(legend.contains(&part), "{part} in {legend:?}");
    }
    browser.quit().await;
    env.stop().await;
}
