//! Cancel and retry at the moment of another event, and while a vendor or a project is missing.

use std::time::{Duration, SystemTime};

use domain::issue::System;
use domain::job::{Job, JobState};
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    CiState, MINUTE, accepted_cancellations, cancel, cancel_comments, drain, finish, manual_env,
    retry, settle, start_run,
};
use crate::process::client_builder;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};
use crate::test_ticket::TestTicket;

/// Number of repetitions of a race. Each order of the two events should occur.
const ROUNDS: usize = 4;

/// Opens the pull request of a run and returns the request that reports its success.
fn success_report(env: &TestEnv, job: &Job) -> reqwest::RequestBuilder {
    let repo = env.repo();
    let runs = repo.runs();
    let mut runs = runs.iter();
    let run = runs.find(|run| run.inputs["dispatch_id"] == job.id.as_str());
    let run = run.unwrap();
    let branch = run.inputs["branch"].as_str().unwrap();
    let number = repo.open_pull(branch, "agent", "Work", "");
    let body = json!({
        "phase": "implementation", "outcome": "success", "comments": [], "prUrl": repo.pull_url(number),
    });
    let client = client_builder().build().unwrap();
    let request = client.post(format!("{}/runner/result", env.address));
    let token = run.inputs["run_token"].as_str().unwrap();
    request.bearer_auth(token).json(&body)
}

fn comments_with(ticket: &TestTicket, start: &str) -> usize {
    let comments = ticket.comments().into_iter();
    comments.filter(|text| text.starts_with(start)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cancellation_and_a_result_at_once_one_ends_the_run() {
    for round in 0..ROUNDS {
        let env = manual_env().await;
        let ticket = start_run(&env, System::Linear, CiState::Running).await;
        let job = env.jobs("ENG-1").pop().unwrap();
        let report = success_report(&env, &job);
        // Either may be first.
        let lead = Duration::from_millis(2 * (round as u64 % 2));
        let (cancelled, reported) = tokio::join!(
            async {
                tokio::time::sleep(lead).await;
                cancel(&env, &job, json!({})).await
            },
            report.send()
        );
        assert_eq!(reported.unwrap().status(), 200);
        settle(&env).await;
        let ended = env.jobs("ENG-1").pop().unwrap();
        let opened = comments_with(&ticket, "Pull request opened");
        let (status, conclusion) = match cancelled.0 {
            200 => ("failed", Some("cancelled")),
            _ => ("completed", None),
        };
        assert_eq!(ended.state.status(), status, "{cancelled:?} {ended:#?}");
        if let Some(conclusion) = conclusion {
            assert_eq!(ended.conclusion.as_deref(), Some(conclusion));
            assert_eq!((cancel_comments(&ticket), opened), (1, 0));
            assert_eq!(ticket.markers(), [""; 0]);
        } else {
            assert_eq!(cancelled, (409, json!({"error": "Job already ended"})));
            assert_eq!((cancel_comments(&ticket), opened), (0, 1));
        }
        assert_eq!(env.jobs("ENG-1").len(), 1);
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_requests_at_once_each_takes_effect_once() {
    for _ in 0..ROUNDS {
        let env = manual_env().await;
        let ticket = start_run(&env, System::Linear, CiState::Running).await;
        let job = env.jobs("ENG-1").pop().unwrap();
        let (cancelled, again, retried) = tokio::join!(
            cancel(&env, &job, json!({})),
            cancel(&env, &job, json!({})),
            retry(&env, &job)
        );
        let mut statuses = [cancelled.0, again.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{cancelled:?} {again:?}");
        assert!([202, 409].contains(&retried.0), "{retried:?}");
        // Ids of one millisecond have no order.
        env.advance_clock(MINUTE);
        settle(&env).await;
        assert_eq!(accepted_cancellations(&env), 1);
        assert_eq!(cancel_comments(&ticket), 1);
        let expected = 1 + usize::from(retried.0 == 202);
        assert_eq!(env.jobs("ENG-1").len(), expected, "{retried:?}");
        finish(env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_and_a_poll_at_once_start_one_run() {
    for _ in 0..ROUNDS {
        let env = manual_env().await;
        let ticket = start_run(&env, System::Linear, CiState::Queued).await;
        let job = env.jobs("ENG-1").pop().unwrap();
        assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
        settle(&env).await;
        // A person sets the trigger while two operators retry.
        ticket.trigger();
        let (first, second, polled) = tokio::join!(
            retry(&env, &job),
            retry(&env, &job),
            engine::poll::run_once(&env.app)
        );
        polled.unwrap();
        for answer in [first, second] {
            assert!([202, 409].contains(&answer.0), "{answer:?}");
        }
        settle(&env).await;
        assert_eq!(env.jobs("ENG-1").len(), 2);
        let third = retry(&env, &job).await;
        assert_eq!(third.1, json!({"error": "A run of this issue is active"}));
        assert_eq!(env.repo().runs().len(), 2);
        finish(env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_ticketing_system_delays_only_the_ticket() {
    let env = manual_env().await;
    let ticket = start_run(&env, System::Linear, CiState::Running).await;
    let job = env.jobs("ENG-1").pop().unwrap();
    // Limits end by the clock of the machine.
    let limit = Duration::from_secs(12);
    let until = SystemTime::now() + limit;
    let linear = env.vendors.faults(FakeService::Linear);
    linear.rate_limit_until(Some(until));
    assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
    for _ in 0..3 {
        env.advance_clock(MINUTE);
        env.tick().await;
    }
    assert_eq!(accepted_cancellations(&env), 1, "the run does not wait");
    assert_eq!(ticket.markers(), ["Agent-Implement", "Agent-Working"]);
    let outbox = env.admin_get("/api/outbox").await;
    let waiting = outbox["pending"].as_array().unwrap().iter();
    let waiting: Vec<&Value> = waiting
        .filter(|entry| entry["issueIdentifier"] == "ENG-1")
        .map(|entry| &entry["waitsFor"])
        .collect();
    assert!(!waiting.is_empty(), "{outbox:#}");
    assert!(waiting.iter().all(|on| **on == "Linear"), "{outbox:#}");
    tokio::time::sleep(limit).await;
    settle(&env).await;
    assert_eq!(ticket.markers(), [""; 0]);
    assert_eq!(cancel_comments(&ticket), 1, "{:?}", ticket.comments());
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_deleted_project_is_cancelled_and_its_retry_waits_for_a_project() {
    let env = manual_env().await;
    let ticket = start_run(&env, System::Linear, CiState::Running).await;
    let job = env.jobs("ENG-1").pop().unwrap();
    let deleted = env
        .admin_request(Method::DELETE, "/api/mappings/ENG", None)
        .await;
    assert_eq!(deleted.0, 200, "{deleted:?}");
    assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
    settle(&env).await;
    assert_eq!(accepted_cancellations(&env), 1);
    assert_eq!(ticket.markers(), [""; 0]);
    assert_eq!(cancel_comments(&ticket), 1);
    assert_eq!(retry(&env, &job).await.0, 202);
    settle(&env).await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    assert_eq!(ticket.markers(), ["Agent-Implement"]);
    let why = env.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["reason"], "no-mapping", "{why:#}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_result_waits_for_github_is_cancelled() {
    let env = manual_env().await;
    let ticket = start_run(&env, System::Linear, CiState::Running).await;
    let job = env.jobs("ENG-1").pop().unwrap();
    let report = success_report(&env, &job);
    let github = env.vendors.faults(FakeService::GitHub);
    github.set_outage(true);
    assert_eq!(report.send().await.unwrap().status(), 200);
    let held = env.jobs("ENG-1").pop().unwrap();
    assert!(
        held.is_active() && held.unconfirmed_result.is_some(),
        "{held:#?}"
    );
    assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
    github.set_outage(false);
    settle(&env).await;
    let ended = env.jobs("ENG-1").pop().unwrap();
    assert_eq!(ended.conclusion.as_deref(), Some("cancelled"));
    assert_eq!(comments_with(&ticket, "Pull request opened"), 0);
    assert_eq!(cancel_comments(&ticket), 1);
    assert_eq!(ticket.markers(), [""; 0]);
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_shadow_run_changes_nothing_but_its_machine() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "shadow".to_owned())],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    let hang = fake_vendors::scripted_agent::ScriptStep::Hang;
    let script = fake_vendors::scripted_agent::Script::new().pass([hang]);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    drain(&env).await;
    let (shadows, real): (Vec<Job>, Vec<Job>) =
        env.jobs("ENG-1").into_iter().partition(|job| job.shadow);
    let (shadow, real) = (&shadows[0], &real[0]);
    let machines = || env.vendors.fly().host().snapshots();
    assert_eq!(machines().len(), 1);
    let labels = env.vendors.linear().issue("ENG-1").labels();
    let body = json!({"retry": true});
    assert_eq!(cancel(&env, shadow, body).await.0, 200);
    env.tick_until_drained().await;
    assert!(machines().is_empty(), "{:#?}", machines());
    let refused = retry(&env, shadow).await;
    // The run that it accompanied is active.
    assert_eq!(refused.0, 409, "{refused:?}");
    let jobs = env.jobs("ENG-1");
    assert_eq!(jobs.len(), 2, "no further run: {jobs:#?}");
    let state = |id| &jobs.iter().find(|job| job.id == id).unwrap().state;
    assert!(matches!(state(shadow.id.clone()), JobState::Failed { .. }));
    assert!(!state(real.id.clone()).is_terminal());
    assert_eq!(env.vendors.linear().issue("ENG-1").labels(), labels);
    assert_eq!(env.comments("ENG-1"), [""; 0]);
    finish(env).await;
}

/// A start whose answer is lost must not bring back a run that was cancelled meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_during_the_start_stops_the_run_that_it_started() {
    let env = manual_env().await;
    let ticket = start_run(&env, System::Linear, CiState::Reserved).await;
    let job = env.jobs("ENG-1").pop().unwrap();
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::HoldResponse);
    let app = env.app.clone();
    let starting = tokio::spawn(async move { engine::outbox_worker::drain(&app).await });
    env.wait_until("the start is requested", || github.held() == 1)
        .await;
    assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
    github.release();
    starting.await.unwrap().unwrap();
    settle(&env).await;
    let conclusions = env.repo().runs().into_iter();
    let conclusions: Vec<_> = conclusions.filter_map(|run| run.conclusion).collect();
    assert_eq!(conclusions, ["cancelled"]);
    assert_eq!(accepted_cancellations(&env), 1);
    assert_eq!((ticket.markers(), cancel_comments(&ticket)), (vec![], 1));
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}
