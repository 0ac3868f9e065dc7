//! Runs that cannot report: behind NAT the host's own word and the pull request are all there is.

use domain::job::{Job, JobKind, JobState};
use domain::mapping::Mapping;
use engine::doctor::{self, ServiceState};
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use fake_vendors::{FakeService, InjectedFault};
use serde_json::{Value, json};

use crate::test_env::{TestEnv, TestEnvOptions, mapping, planning_mapping};

const INELIGIBLE: &str =
    "Planning needs runs that report: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.";

/// Team `ENG` as usual, and team `PLAN` whose tickets are planned first.
fn mappings() -> Vec<Mapping> {
    let planned = Mapping {
        team_key: "PLAN".into(),
        ..planning_mapping()
    };
    vec![mapping(), planned]
}

async fn without_callbacks() -> TestEnv {
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: mappings(),
        omitted_flags: &["--runner-callback-base-url"],
        ..TestEnvOptions::default()
    })
    .await;
    world.repo().allow_actions_to_open_pulls();
    world
}

fn log_of(world: &TestEnv, job: &Job) -> String {
    let runs = world.repo().runs();
    let run = runs.iter().find(|run| run.title.contains(job.id.as_str()));
    run.map(|run| world.repo().run_log(run.id))
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_report_is_followed_to_its_pull_request() {
    let world = without_callbacks().await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", log_of(&world, &job));
    assert!(!job.has_callbacks && !job.result_accepted);
    assert!(job.run.is_some());

    let run = &world.repo().runs()[0];
    for input in ["callback_url", "run_token", "run_progress_token"] {
        assert_eq!(run.inputs.get(input), None, "nothing to report to or with");
    }
    let pull = &world.repo().pulls()[0];
    let url = world.repo().pull_url(pull.number);
    assert!(
        !pull.draft && pull.body.contains("agent-implement-meta"),
        "{}",
        pull.body
    );
    assert!(
        pull.body
            .contains("pushed with the workflow's own token: the host starts no checks for it"),
        "{}",
        pull.body
    );
    let ticket = world.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    assert_eq!(
        ticket.comments(),
        [format!("Pull request opened: [#{}]({url})", pull.number)]
    );

    let log = world.admin_get("/api/log").await;
    assert_eq!(
        (&log[0]["status"], &log[0]["prUrl"], &log[0]["report"]),
        (&json!("completed"), &json!(url), &json!(false))
    );
    let steps = world
        .admin_get(&format!("/api/jobs/{}/steps", job.id))
        .await;
    assert_eq!(steps["steps"], json!([]));
    world.wait_for_polls().await;
    assert_eq!(world.jobs("ENG-1").len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_without_a_word_is_told_with_its_log() {
    let world = without_callbacks().await;
    // Its log is not written yet when it is first asked for.
    let github = world.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/logs", InjectedFault::ErrorStatus(404));
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::ExhaustTurns]));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let reason = "the run ended with conclusion failure and reported no result";
    assert_eq!(
        job.state,
        JobState::Failed {
            code: None,
            reason: reason.to_owned()
        }
    );
    let ticket = world.vendors.linear().issue("ENG-1");
    let comments = ticket.comments();
    let begins = format!("Implementation failed: {reason}\n\n**What to do:** ");
    assert!(comments[0].starts_with(&begins), "{comments:?}");
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
        "so that the trigger can be applied again"
    );

    ticket.add_label("Agent-Implement");
    world
        .wait_until("it runs again", || world.jobs("ENG-1").len() == 2)
        .await;
    world.wait_for_job_end("ENG-1").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lets_no_workflow_open_pull_requests_is_quoted_on_the_ticket() {
    let world = TestEnv::with_options(TestEnvOptions {
        omitted_flags: &["--runner-callback-base-url"],
        ..TestEnvOptions::default()
    })
    .await;
    let status = callback_status(&world).await;
    let advice = "Allow GitHub Actions to create and approve pull requests";
    assert!(
        status["detail"].as_str().unwrap().contains(advice),
        "{status}"
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state.status(),
        "failed"
    );
    let ticket = world.vendors.linear().issue("ENG-1");
    let refusal = "PR creation failed with HTTP 403: GitHub Actions is not permitted to create or \
                   approve pull requests.";
    assert!(
        ticket.comments()[0].contains(refusal),
        "{:?}",
        ticket.comments()
    );

    world.repo().allow_actions_to_open_pulls();
    ticket.add_label("Agent-Implement");
    world
        .wait_until("it runs again", || world.jobs("ENG-1").len() == 2)
        .await;
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    assert_eq!(world.repo().pulls().len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_nobody_reported_was_not_approved() {
    let world = without_callbacks().await;
    let blocked =
        || ScriptedReview::block("Broken", "feature.txt:1", "It is wrong.", "Make it right.");
    let script = Script::new().pass([ScriptStep::write("feature.txt", "done\n")]);
    let script = (0..3).fold(script, |script, _| script.review(blocked()));
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert!(world.repo().pulls()[0].draft, "{}", log_of(&world, &job));
    assert_eq!(job.state.status(), "review_failed");
    let ticket = world.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    let pull = &world.repo().pulls()[0];
    let url = world.repo().pull_url(pull.number);
    assert_eq!(
        world.comments("ENG-1"),
        [
            &*format!("Pull request opened: [#{}]({url})", pull.number),
            "The pull request stays a draft: its review left blocking findings open. It lists them.",
        ]
    );
    let told = world.repo().comments(pull.number);
    assert!(
        told.len() == 1 && told[0].body.contains("Broken"),
        "{told:?}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_waits_for_an_address_to_report_to() {
    let world = without_callbacks().await;
    let ticket = world
        .vendors
        .linear()
        .issue("PLAN-1")
        .title("Add the feature");
    ticket.add_label("Agent-Implement");
    world.wait_for_polls().await;
    assert!(world.jobs("PLAN-1").is_empty());
    let why = world.admin_get("/api/why/PLAN-1").await;
    let decision = &why["decision"];
    assert_eq!(
        (
            &decision["outcome"],
            &decision["reason"],
            &decision["message"]
        ),
        (&json!("waiting"), &json!("ineligible"), &json!(INELIGIBLE))
    );
    let shown = world.admin_get("/api/blockers?all=true").await;
    assert_eq!(shown["blockers"][0]["message"], INELIGIBLE);
    assert_eq!(callback_status(&world).await["status"], "off");

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
    world.set_agent_script("PLAN-1", script);
    let kept = TestEnvOptions {
        mappings: Vec::new(),
        ..TestEnvOptions::default()
    };
    let world = world.restart_service(kept).await;
    world
        .wait_until("plan and pull request are there", || {
            let jobs = world.jobs("PLAN-1");
            jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
        })
        .await;
    world.wait_for_empty_outbox().await;
    assert_eq!(callback_status(&world).await["status"], "ok");
    let jobs = world.jobs("PLAN-1");
    let kinds: Vec<JobKind> = jobs.iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Planning, JobKind::Implementation]);
    for job in &jobs {
        assert_eq!(job.state, JobState::Completed, "{}", log_of(&world, job));
        let shown = world
            .admin_get(&format!("/api/jobs/{}/steps", job.id))
            .await;
        assert_eq!(shown["job"]["report"], true);
        assert!(!shown["steps"].as_array().unwrap().is_empty());
    }
    let pull = &world.repo().pulls()[0];
    assert!(!pull.body.contains("workflow's own token"), "{}", pull.body);
    world.finish().await;
}

async fn callback_status(world: &TestEnv) -> Value {
    let status = world.admin_get("/api/admin/config-status").await;
    let checks = status["checks"].as_array().unwrap().iter();
    let mut callback = checks.filter(|check| check["name"] == "runner-callback");
    callback.next().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_cost_is_unknown_and_a_budget_is_warned_about() {
    let world = without_callbacks().await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    let usage = world.admin_get("/api/usage").await;
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
    let saved = world.admin_post("/api/mappings", body).await;
    let told = "budgetUsd is set, but runs of this project report no cost: runs cannot report to this service. \
                Set RUNNER_TOKEN_SECRET and RUNNER_CALLBACK_BASE_URL. The budget never takes effect.";
    assert_eq!(
        saved["warnings"],
        json!([{"field": "budgetUsd", "message": told}])
    );
    assert_eq!(
        of_team(&world.admin_get("/api/usage").await)["warning"],
        told
    );
    let findings = doctor::examine(&world.app, ServiceState::Running)
        .await
        .unwrap();
    assert!(
        findings.iter().any(|found| found.message == told),
        "{findings:#?}"
    );
    world.wait_for_empty_outbox().await;
    // A check-up also asks addresses that no contract knows, so its requests are not kept.
    world
        .stop_service()
        .await
        .vendors
        .stop_and_kill_runs()
        .await;
}
