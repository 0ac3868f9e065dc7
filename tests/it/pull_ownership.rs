//! Pull-request URLs reported by runs: only the job's own pull request is accepted and linked.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::feedback::PullRequestId;
use domain::job::{Job, JobState};
use engine::outbox_worker;
use fake_vendors::{CheckKind, CheckReport, FakeService};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::pull_feedback;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const MINUTE: Duration = Duration::from_secs(60);

/// Environment with a running job of `ENG-1` and a fake run.
async fn env_with_running_job() -> TestEnv {
    let env = TestEnv::with_options(manual_options()).await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    env.repo().start_run(env.repo().runs()[0].id);
    env.tick().await;
    assert_eq!(job(&env).state, JobState::Running);
    env
}

fn manual_options() -> TestEnvOptions {
    TestEnvOptions {
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    }
}

fn job(env: &TestEnv) -> Job {
    env.jobs("ENG-1").pop().unwrap()
}

/// Checks may end while the run still works. Events about them are those of a foreign pull request until its result.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_the_pull_request_is_read_when_the_run_ends() {
    let env = env_with_running_job().await;
    let branch = job(&env).branch;
    env.repo()
        .commit(&branch, &[("a.txt", "a\n")], "A")
        .unwrap();
    let number = open_own_pull(&env);
    let check = CheckReport {
        url: None,
        name: "test",
        app: "github-actions",
        kind: CheckKind::CheckRun,
        conclusion: Some("failure"),
        summary: "",
        text: "",
    };
    env.repo().report_check(&branch, check).unwrap();
    report(&env, json!({"prUrl": env.repo().pull_url(number)})).await;
    env.tick().await;
    let pull = PullRequestId::new(&mapping().target_repo(), number);
    let known = env.store.read(|tx| pull_feedback::get_pull(tx, &pull));
    let checks = known.unwrap().readiness.checks.unwrap();
    assert_eq!((checks.failed, checks.total), (1, 1));
    finish_run(env).await;
}

/// Posts a result with the job's own token. Returns the warnings of the response.
async fn report(env: &TestEnv, result: Value) -> Vec<String> {
    let (job, tokens) = (job(env), &env.app.secrets.run_tokens);
    let (now, phase) = (env.app.core.now(), job.kind.run_phase());
    let token = tokens.issue(&job.id, TokenAudience::Result, phase, now, now + MINUTE);
    let mut body = json!({"phase": "implementation", "outcome": "success", "comments": []});
    for (name, value) in result.as_object().unwrap() {
        body[name] = value.clone();
    }
    let request = reqwest::Client::new().post(format!("{}/runner/result", env.address));
    let answer = request.bearer_auth(token.expose()).json(&body).send();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let response_body: Value = answer.json().await.unwrap();
    outbox_worker::drain(&env.app).await.unwrap();
    serde_json::from_value(response_body["warnings"].clone()).unwrap()
}

/// Opens the pull request of the job's branch. Returns its number.
fn open_own_pull(env: &TestEnv) -> u64 {
    let branch = job(env).branch;
    env.repo()
        .open_pull(&branch, "agent", "Add the feature", "")
}

async fn finish_run(env: TestEnv) {
    for run in env.repo().runs() {
        env.repo().complete_run(run.id, "success");
    }
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_pull_request_that_is_not_the_jobs_own() {
    type Claim = fn(&TestEnv) -> String;
    let rows: [(Claim, &str); 6] = [
        (
            |env| format!("https://evil.example/acme/shop/pull/{}", open_own_pull(env)),
            "its URL is not http://",
        ),
        (
            |env| {
                let own = env.repo().pull_url(open_own_pull(env));
                own.replace("/acme/shop/", "/acme/other/")
            },
            "its URL is not http://",
        ),
        (
            |env| {
                let number = env.repo().open_pull("somebody/else", "mia", "Mine", "");
                env.repo().pull_url(number)
            },
            "has the branch somebody/else, not agent-implement/",
        ),
        (
            |env| {
                let number = open_own_pull(env);
                env.repo().move_pull_to_fork(number, "mallory");
                env.repo().pull_url(number)
            },
            "comes from another repository",
        ),
        (
            |env| env.repo().pull_url(77),
            "acme/shop has no pull request #77",
        ),
        (
            |_| "https://evil.example/x/y/pull/77".to_owned(),
            "acme/shop has no pull request #77",
        ),
    ];
    for (claim, why) in rows {
        let env = env_with_running_job().await;
        let url = claim(&env);
        let warnings = report(&env, json!({"prUrl": url})).await;
        let [warning] = &warnings[..] else {
            panic!("{url}: {warnings:?}")
        };
        assert!(warning.starts_with("prUrl is ignored: "), "{warning}");
        assert!(warning.contains(why), "{warning}");
        let ended_job = job(&env);
        let JobState::Failed { reason, .. } = &ended_job.state else {
            panic!("{url}: {ended_job:?}")
        };
        let prefix = "the pull request that the run reported is not its own: ";
        assert!(
            reason.starts_with(prefix) && reason.contains(why),
            "{reason}"
        );
        assert_eq!(ended_job.pull, None);
        let comments = env.comments("ENG-1").concat();
        assert!(comments.contains("Implementation failed: "), "{comments}");
        assert!(!comments.contains(&url), "{comments}");
        assert!(env.vendors.linear().issue("ENG-1").labels().is_empty());
        finish_run(env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_cannot_link_a_foreign_pull_request() {
    let env = env_with_running_job().await;
    let failed = json!({"outcome": "failure", "failureCode": "REVIEW_UNAPPROVED",
        "failureReason": "two findings", "prUrl": "https://evil.example/acme/shop/pull/77"});
    assert_eq!(report(&env, failed).await.len(), 1);
    assert_eq!(job(&env).state.status(), "failed");
    assert_eq!(job(&env).pull, None);
    let comments = env.comments("ENG-1").concat();
    assert!(
        comments.contains("Implementation failed: two findings"),
        "{comments}"
    );
    assert!(!comments.contains("evil.example"), "{comments}");
    finish_run(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ticket_links_the_canonical_url() {
    let env = env_with_running_job().await;
    let number = open_own_pull(&env);
    let url = env.repo().pull_url(number);
    let spelled = url.replace("/acme/shop/", "/Acme/SHOP/") + "/";
    assert!(report(&env, json!({"prUrl": spelled})).await.is_empty());
    assert_eq!(job(&env).state, JobState::Completed);
    assert_eq!(
        env.comments("ENG-1"),
        [format!("Pull request opened: [#{number}]({url})")]
    );
    finish_run(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_confirmed_after_an_outage_of_the_repository_host() {
    let mut env = env_with_running_job().await;
    let url = env.repo().pull_url(open_own_pull(&env));
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    let usage = json!({"turns": 3, "costUsd": 0.5});
    let warnings = report(&env, json!({"prUrl": url, "usage": usage})).await;
    assert_eq!(
        warnings,
        ["prUrl is not confirmed yet: the repository host did not respond"]
    );
    // The reported result survives the end of the run, its timeout and a restart.
    let run = env.repo().runs()[0].id;
    env.repo().complete_run(run, "failure");
    env.advance_clock(100 * MINUTE);
    env.tick().await;
    assert_eq!(job(&env).state, JobState::Running);
    assert!(job(&env).result_accepted);
    let env_options = TestEnvOptions {
        mappings: Vec::new(),
        ..manual_options()
    };
    env = env.restart_service(env_options).await;
    env.tick().await;
    assert_eq!(job(&env).state, JobState::Running);
    env.vendors.faults(FakeService::GitHub).set_outage(false);
    env.tick().await;
    let done = job(&env);
    assert_eq!(done.state, JobState::Completed);
    assert_eq!(done.usage.unwrap().cost_usd, Some(0.5));
    assert_eq!(done.pull.unwrap().url, url);
    assert_eq!(done.unconfirmed_result, None);
    finish_run(env).await;
}
