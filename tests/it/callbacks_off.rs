//! CI runs without a callback address: what they report after their end, and runs without a report, such as those
//! of a workflow that was not synced, which are followed through GitHub's run state and pull requests.

use domain::job::{Job, JobState};
use domain::limits;
use engine::doctor::{self, ServiceState};
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use fake_vendors::{FakeService, InjectedFault};
use serde_json::{Value, json};

use crate::test_env::{EngineMode, IMPLEMENTATION_WORKFLOW, TestEnv, TestEnvOptions};

/// Beginning of the step that uploads the report.
const UPLOAD_STEP: &str = "\n      # Without a callback URL, the run leaves";

async fn start_env(engine: EngineMode) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        omitted_flags: &["--runner-callback-base-url"],
        engine,
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().allow_actions_to_open_pulls();
    env
}

async fn env_without_callbacks() -> TestEnv {
    start_env(EngineMode::Running).await
}

/// Starts an environment with a manual engine whose workflow uploads no report.
async fn env_without_reports() -> TestEnv {
    let env = start_env(EngineMode::manual()).await;
    let (old_workflow, _) = IMPLEMENTATION_WORKFLOW.split_once(UPLOAD_STEP).unwrap();
    let file = (".github/workflows/agent-implement.yml", old_workflow);
    env.repo().seed(&[file], "An older workflow").unwrap();
    env
}

/// Runs ticks until the only job of `ENG-1` has ended without a report. Returns it.
async fn tick_until_judged(env: &TestEnv) -> Job {
    env.tick_until("the run has ended", || {
        let jobs = env.jobs("ENG-1");
        jobs.first().is_some_and(|job| job.run_ended_at.is_some())
    })
    .await;
    assert!(env.jobs("ENG-1")[0].is_active(), "a report may come late");
    env.advance_clock(limits::REPORT_GRACE);
    env.tick_until("the job has ended", || !env.jobs("ENG-1")[0].is_active())
        .await;
    env.tick_until_drained().await;
    env.jobs("ENG-1").remove(0)
}

fn log_of(env: &TestEnv, job: &Job) -> String {
    let runs = env.repo().runs();
    let run = runs.iter().find(|run| run.title.contains(job.id.as_str()));
    run.map(|run| env.repo().run_log(run.id))
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_callbacks_completes_with_its_pull_request() {
    let env = env_without_callbacks().await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", log_of(&env, &job));
    assert!(!job.has_callbacks && job.result_accepted);
    assert!(job.run.is_some());

    let run = &env.repo().runs()[0];
    assert_eq!(run.inputs.get("callback_url"), None);
    for input in ["run_token", "run_progress_token"] {
        let secret = run.inputs[input].as_str().unwrap();
        let log = env.repo().run_log(run.id);
        assert!(!log.contains(secret), "{input} is masked");
    }
    let pull = &env.repo().pulls()[0];
    let url = env.repo().pull_url(pull.number);
    assert!(
        !pull.draft && pull.body.contains("agent-implement-meta"),
        "{}",
        pull.body
    );
    assert!(
        pull.body
            .contains("pushed with the workflow's own token. GitHub starts no checks for it"),
        "{}",
        pull.body
    );
    let ticket = env.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    assert_eq!(
        ticket.comments(),
        [format!("Pull request opened: [#{}]({url})", pull.number)]
    );

    let log = env.admin_get("/api/log").await;
    assert_eq!(
        (&log[0]["status"], &log[0]["prUrl"], &log[0]["report"]),
        (&json!("completed"), &json!(url), &json!(true))
    );
    let steps = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    assert!(steps["steps"].as_array().unwrap().len() > 3, "{steps}");
    env.wait_for_polls().await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_without_a_report_is_shown_with_its_log() {
    let env = env_without_reports().await;
    // The first request for the log fails: it is not written yet.
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/logs", InjectedFault::ErrorStatus(404));
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::ExhaustTurns]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = tick_until_judged(&env).await;
    let reason = "the run ended with conclusion failure and reported no result";
    assert_eq!(
        job.state,
        JobState::Failed {
            code: None,
            reason: reason.to_owned()
        }
    );
    let ticket = env.vendors.linear().issue("ENG-1");
    let comments = ticket.comments();
    let prefix = format!("Implementation failed: {reason}\n\n**What to do:** ");
    assert!(comments[0].starts_with(&prefix), "{comments:?}");
    assert!(
        comments[0].contains("\n\n+++ Log excerpt (session_failed)\n"),
        "{comments:?}"
    );
    assert!(
        comments[0].contains("Reached max turns (50)"),
        "{comments:?}"
    );
    assert_eq!(comments.len(), 1);
    assert!(
        ticket.labels().is_empty(),
        "the trigger can be applied again"
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pull_request_is_quoted_on_the_ticket() {
    let env = TestEnv::with_options(TestEnvOptions {
        omitted_flags: &["--runner-callback-base-url"],
        ..TestEnvOptions::default()
    })
    .await;
    let status = callback_status(&env).await;
    let advice = "Allow GitHub Actions to create and approve pull requests";
    assert!(
        status["detail"].as_str().unwrap().contains(advice),
        "{status}"
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(env.wait_for_job_end("ENG-1").await.state.status(), "failed");
    let ticket = env.vendors.linear().issue("ENG-1");
    let refusal = "PR creation failed with HTTP 403: GitHub Actions is not permitted to create or \
                   approve pull requests.";
    assert!(
        ticket.comments()[0].contains(refusal),
        "{:?}",
        ticket.comments()
    );

    env.repo().allow_actions_to_open_pulls();
    ticket.add_label("Agent-Implement");
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    assert_eq!(env.repo().pulls().len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_findings_of_a_draft_are_listed_on_the_ticket() {
    let env = env_without_callbacks().await;
    let blocked =
        || ScriptedReview::block("Broken", "feature.txt:1", "It is wrong.", "Make it right.");
    let script = Script::new().pass([ScriptStep::write("feature.txt", "done\n")]);
    let script = (0..3).fold(script, |script, _| script.review(blocked()));
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert!(env.repo().pulls()[0].draft, "{}", log_of(&env, &job));
    assert_eq!(job.state.status(), "review_failed");
    let ticket = env.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    let pull = &env.repo().pulls()[0];
    let url = env.repo().pull_url(pull.number);
    assert_eq!(
        env.comments("ENG-1"),
        [
            &*format!("Pull request opened: [#{}]({url})", pull.number),
            "The pull request stays a draft: its review left blocking findings open.\n\n- Broken (feature.txt:1): It is wrong.",
        ]
    );
    let comments = env.repo().comments(pull.number);
    assert!(
        comments.len() == 1 && comments[0].body.contains("Broken"),
        "{comments:?}"
    );
    env.finish().await;
}

async fn callback_status(env: &TestEnv) -> Value {
    let status = env.admin_get("/api/admin/config-status").await;
    let checks = status["checks"].as_array().unwrap().iter();
    let mut callback = checks.filter(|check| check["name"] == "runner-callback");
    callback.next().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_is_unknown_without_a_report_and_a_budget_causes_a_warning() {
    let env = env_without_reports().await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = tick_until_judged(&env).await;
    assert_eq!(job.state, JobState::Completed);
    let usage = env.admin_get("/api/usage").await;
    let of_team = |usage: &Value| {
        let mut rows = usage["mappings"].as_array().unwrap().iter();
        rows.find(|row| row["teamKey"] == "ENG").unwrap().clone()
    };
    let row = of_team(&usage);
    assert_eq!((&row["runs"], &row["costUsd"]), (&json!(1), &Value::Null));
    assert_eq!(usage["issues"][0]["costUsd"], Value::Null);
    assert_eq!(row["warning"], Value::Null, "no budget is set");

    let body = json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "ticketingProvider": "A", "budgetUsd": 5});
    let saved = env.admin_post("/api/mappings", body).await;
    let warning = "A monthly budget is set, but runs of this project report no cost: none of 1 runs this month did. The \
                   budget never takes effect.";
    assert_eq!(
        saved["warnings"],
        json!([{"field": "budgetUsd", "message": warning}])
    );
    assert_eq!(
        of_team(&env.admin_get("/api/usage").await)["warning"],
        warning
    );
    let findings = doctor::examine(&env.app, ServiceState::Running)
        .await
        .unwrap();
    assert!(
        findings.iter().any(|found| found.message == warning),
        "{findings:#?}"
    );
    // The checks also request addresses outside the contracts, so these requests are not recorded.
    env.stop_service().await.vendors.stop_and_kill_runs().await;
}
