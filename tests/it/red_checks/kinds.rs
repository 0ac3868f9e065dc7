//! Which checks count: commit statuses, checks of other Apps, required and ignored ones.

use domain::job::{JobKind, JobState};
use fake_vendors::{CheckKind, CheckReport};
use serde_json::Value;

use super::{check_comments, message, our_runs, record, repairs};
use crate::follow_up::{self, env_with_pending_runs};
use crate::test_env::TestEnv;
use engine::pull_requests::reconcile;

const BRANCH: &str = "agent-implement/eng-1";

/// Check run of an App other than GitHub Actions.
pub(super) fn report<'a>(name: &'a str, conclusion: Option<&'a str>) -> CheckReport<'a> {
    CheckReport {
        name,
        app: "quality-app",
        kind: CheckKind::CheckRun,
        conclusion,
        summary: "3 problems in a.txt",
        text: "",
        url: Some("https://quality.example/builds/7"),
    }
}

/// Environment whose runs are dispatched but never start, with an open pull request and these settings.
pub(super) async fn env_with_settings(settings: &str) -> (TestEnv, u64) {
    let env = env_with_pending_runs().await;
    let files = [(".agent-implement/config.yml", settings)];
    env.repo().commit("main", &files, "Settings").unwrap();
    let number = follow_up::open_pull(&env, "ENG-1").await;
    reconcile::run_once(&env.app).await.unwrap();
    env.tick().await;
    (env, number)
}

/// Reports a check, and ticks until the service has judged it.
pub(super) async fn report_and_tick(env: &TestEnv, check: CheckReport<'_>) {
    env.repo().report_check(BRANCH, check).unwrap();
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.tick().await;
    env.tick().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_status_starts_a_run_with_its_address() {
    let (env, _) = env_with_settings("").await;
    let status = CheckReport {
        kind: CheckKind::CommitStatus,
        ..report("ci/jenkins", Some("error"))
    };
    report_and_tick(&env, status).await;
    let jobs = repairs(&env, "ENG-1");
    assert_eq!((jobs.len(), jobs[0].kind), (1, JobKind::CiFix));
    let runs = our_runs(&env.repo());
    assert_eq!(
        runs[0].inputs["findings"],
        "1. ci/jenkins\nhttps://quality.example/builds/7\n3 problems in a.txt"
    );
    assert_eq!(message(&env).await, "CI is red: ci/jenkins, attempt 1 of 2");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_needs_an_action_counts_only_if_it_is_required() {
    let (env, number) = env_with_settings("ci: {attempts: 1}\n").await;
    report_and_tick(&env, report("gate", Some("action_required"))).await;
    assert_eq!(
        (repairs(&env, "ENG-1").len(), message(&env).await),
        (0, Value::Null)
    );
    assert!(record(&env, number).ci.head.is_some(), "it was judged");
    env.repo().require_check("gate");
    report_and_tick(&env, report("gate", Some("action_required"))).await;
    assert_eq!(repairs(&env, "ENG-1").len(), 1);
    assert_eq!(message(&env).await, "CI is red: gate, attempt 1 of 1");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_cancelled_and_running_checks_start_nothing() {
    let (env, number) = env_with_settings("ci: {ignore: [\"preview *\"]}\n").await;
    report_and_tick(&env, report("preview of the site", Some("failure"))).await;
    report_and_tick(&env, report("cancelled", Some("cancelled"))).await;
    assert_eq!(
        (repairs(&env, "ENG-1").len(), message(&env).await),
        (0, Value::Null)
    );
    // Another check is still running: nothing is decided before its end.
    env.repo()
        .report_check(BRANCH, report("slow", None))
        .unwrap();
    report_and_tick(&env, report("lint", Some("timed_out"))).await;
    assert_eq!(
        (repairs(&env, "ENG-1").len(), message(&env).await),
        (0, Value::Null)
    );
    // An ignored one delays nothing.
    env.repo()
        .report_check(BRANCH, report("preview of the docs", None))
        .unwrap();
    report_and_tick(&env, report("slow", Some("success"))).await;
    assert_eq!(message(&env).await, "CI is red: lint, attempt 1 of 2");
    assert_eq!(repairs(&env, "ENG-1").len(), 1);
    assert_eq!(check_comments(&env, number), [""; 0]);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_attempts_the_service_only_says_that_checks_fail() {
    let (env, number) = env_with_settings("ci: {attempts: 0}\n").await;
    report_and_tick(&env, report("lint", Some("failure"))).await;
    report_and_tick(&env, report("build", Some("failure"))).await;
    report_and_tick(&env, report("types", Some("failure"))).await;
    assert_eq!(
        message(&env).await,
        "CI is red: build and 2 more, not repaired automatically"
    );
    assert_eq!(
        (
            repairs(&env, "ENG-1").len(),
            check_comments(&env, number).len()
        ),
        (0, 1)
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_setting_leaves_the_defaults_in_force() {
    let (env, number) = env_with_settings("ci: {attempts: several}\n").await;
    report_and_tick(&env, report("lint", Some("failure"))).await;
    assert_eq!(message(&env).await, "CI is red: lint, attempt 1 of 2");
    let error = record(&env, number).ci.settings_error.unwrap();
    assert!(
        error.starts_with("ci.attempts in .agent-implement/config.yml must be"),
        "{error}"
    );
    let jobs = repairs(&env, "ENG-1");
    assert!(jobs.len() == 1 && jobs[0].state != JobState::Completed);
    env.stop().await;
}
