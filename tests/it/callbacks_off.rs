//! Runs without callbacks (service behind NAT): followed through GitHub's run state and pull requests.

use domain::job::{Job, JobKind, JobState};
use domain::mapping::Mapping;
use engine::doctor::{self, ServiceState};
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use fake_vendors::{FakeService, InjectedFault};
use serde_json::{Value, json};

use crate::test_env::{TestEnv, TestEnvOptions, mapping, planning_mapping};

const INELIGIBLE: &str =
    "Planning needs runs that report: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.";

/// Default team `ENG`, and team `PLAN` with planning enabled.
fn mappings() -> Vec<Mapping> {
    let planned = Mapping {
        team_key: "PLAN".into(),
        ..planning_mapping()
    };
    vec![mapping(), planned]
}

async fn env_without_callbacks() -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: mappings(),
        omitted_flags: &["--runner-callback-base-url"],
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().allow_actions_to_open_pulls();
    env
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
    assert!(!job.has_callbacks && !job.result_accepted);
    assert!(job.run.is_some());

    let run = &env.repo().runs()[0];
    for input in ["callback_url", "run_token", "run_progress_token"] {
        assert_eq!(run.inputs.get(input), None, "no callback inputs");
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
        (&json!("completed"), &json!(url), &json!(false))
    );
    let steps = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    assert_eq!(steps["steps"], json!([]));
    env.wait_for_polls().await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_without_callbacks_is_reported_with_its_log() {
    let env = env_without_callbacks().await;
    // The first request for the log fails: it is not written yet.
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/logs", InjectedFault::ErrorStatus(404));
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::ExhaustTurns]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
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

    ticket.add_label("Agent-Implement");
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    env.wait_for_job_end("ENG-1").await;
    env.finish().await;
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
async fn a_draft_without_a_result_counts_as_not_approved() {
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
            "The pull request stays a draft: its review left blocking findings open. See the pull request for the list.",
        ]
    );
    let comments = env.repo().comments(pull.number);
    assert!(
        comments.len() == 1 && comments[0].body.contains("Broken"),
        "{comments:?}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_waits_for_a_callback_address() {
    let env = env_without_callbacks().await;
    let ticket = env
        .vendors
        .linear()
        .issue("PLAN-1")
        .title("Add the feature");
    ticket.add_label("Agent-Implement");
    env.wait_for_polls().await;
    assert!(env.jobs("PLAN-1").is_empty());
    let why = env.admin_get("/api/why/PLAN-1").await;
    let decision = &why["decision"];
    assert_eq!(
        (
            &decision["outcome"],
            &decision["reason"],
            &decision["message"]
        ),
        (&json!("waiting"), &json!("ineligible"), &json!(INELIGIBLE))
    );
    let shown = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(shown["blockers"][0]["message"], INELIGIBLE);
    assert_eq!(callback_status(&env).await["status"], "off");

    let plan = [
        ScriptStep::write(
            "ai-output/comments/01-steps.md",
            "## Steps\n\n1. Write feature.txt",
        ),
        ScriptStep::message("Planned."),
    ];
    let script = Script::new()
        .pass_if_prompt_contains("You are planning", plan)
        .pass_if_prompt_contains(
            "1. Write feature.txt",
            [ScriptStep::write("feature.txt", "done\n")],
        );
    env.set_agent_script("PLAN-1", script);
    let env_options = TestEnvOptions {
        mappings: Vec::new(),
        ..TestEnvOptions::default()
    };
    let env = env.restart_service(env_options).await;
    env.wait_until("both runs have ended", || {
        let jobs = env.jobs("PLAN-1");
        jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    assert_eq!(callback_status(&env).await["status"], "ok");
    let jobs = env.jobs("PLAN-1");
    let kinds: Vec<JobKind> = jobs.iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Planning, JobKind::Implementation]);
    for job in &jobs {
        assert_eq!(job.state, JobState::Completed, "{}", log_of(&env, job));
        let shown = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
        assert_eq!(shown["job"]["report"], true);
        assert!(!shown["steps"].as_array().unwrap().is_empty());
    }
    let pull = &env.repo().pulls()[0];
    assert!(!pull.body.contains("workflow's own token"), "{}", pull.body);
    env.finish().await;
}

async fn callback_status(env: &TestEnv) -> Value {
    let status = env.admin_get("/api/admin/config-status").await;
    let checks = status["checks"].as_array().unwrap().iter();
    let mut callback = checks.filter(|check| check["name"] == "runner-callback");
    callback.next().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_is_unknown_without_callbacks_and_a_budget_causes_a_warning() {
    let env = env_without_callbacks().await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
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
    let warning = "A monthly budget is set, but runs of this project report no cost: runs cannot report to this service. \
                Set RUNNER_TOKEN_SECRET and RUNNER_CALLBACK_BASE_URL. The budget never takes effect.";
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
    env.wait_for_empty_outbox().await;
    // The checks also request addresses outside the contracts, so these requests are not recorded.
    env.stop_service().await.vendors.stop_and_kill_runs().await;
}
