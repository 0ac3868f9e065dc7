//! Usage limits of model providers: affected runs resume after the reset, and nothing starts before.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::mapping::Mapping;
use domain::report::FailureCode;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::{dedup, dispatch_breaker, jobs, mappings, outbox};

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job, send_checked};
use crate::follow_up::{env_with_pending_runs, follow_up_jobs, open_pull};
use crate::gap_fill::{send_trigger, trigger_body};
use crate::planning::{IMPLEMENTATION_PROMPT, PLANNING_PROMPT, write_steps};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping, planning_mapping};

const TWO_HOURS: Duration = Duration::from_secs(2 * 60 * 60);

/// Step that reports a reached usage limit until this time.
fn limit(until: Timestamp) -> ScriptStep {
    ScriptStep::UsageLimit {
        resets_at: until.as_secs(),
    }
}

/// Time after `span`, in whole seconds like the provider's.
fn whole_second_after(env: &TestEnv, span: Duration) -> Timestamp {
    let at = env.app.core.now() + span;
    Timestamp::from_millis(at.as_secs() * 1000)
}

fn labels(env: &TestEnv, key: &str) -> Vec<String> {
    env.vendors.linear().issue(key).labels()
}

async fn wait_for_end(env: &TestEnv, key: &str, runs: usize) -> Job {
    let what = format!("run {runs} of {key} has ended");
    env.tick_until(&what, || {
        let jobs = env.jobs(key);
        jobs.len() == runs && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.tick().await;
    env.jobs(key).pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_at_the_usage_limit_resumes_after_the_reset() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    let until = whole_second_after(&env, TWO_HOURS);
    let script = Script::new().pass([limit(until)]).pass(write_steps());
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let first = wait_for_end(&env, "ENG-1", 1).await;
    let JobState::Failed { code, reason } = &first.state else {
        panic!("{first:#?}")
    };
    assert_eq!(*code, Some(FailureCode::ProviderLimit));
    assert!(
        reason.ends_with(&format!(
            "It resumes automatically at {}.",
            until.date_text()
        )),
        "{reason}"
    );
    assert!(reason.contains("You've hit your session limit"), "{reason}");
    assert_eq!(first.resumes_at, Some(until));
    assert_eq!(
        labels(&env, "ENG-1"),
        ["Agent-Implement"],
        "the trigger is kept"
    );
    let expected = format!(
        "Implementation paused: the usage limit of the model provider is reached. It resumes automatically at {}.",
        until.date_text()
    );
    assert_eq!(env.comments("ENG-1"), [expected.as_str()]);
    let stored = env
        .store
        .read(|tx| Ok((dedup::all(tx)?, dispatch_breaker::all(tx)?)));
    assert_eq!(stored.unwrap(), (vec![], vec![]));

    // Projects with the same credentials wait, too, also after a restart.
    env.create_labelled_issue("ENG-2", "Wants the same model");
    let engine = EngineMode::Manual(env.app.core.clock.clone());
    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            engine,
            ..TestEnvOptions::default()
        })
        .await;
    env.advance_clock(Duration::from_secs(60 * 60));
    env.tick().await;
    for key in ["ENG-1", "ENG-2"] {
        let why = env.admin_get(&format!("/api/why/{key}")).await;
        let decision = &why["decision"];
        assert_eq!(
            (&decision["outcome"], &decision["reason"]),
            (&json!("waiting"), &json!("quota"))
        );
        let expected = format!(
            "The model provider's usage limit is reached. Runs resume at {}.",
            until.date_text()
        );
        assert_eq!(decision["message"], expected);
    }
    let blockers = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(blockers["totals"]["byReason"], json!({"quota": 2}));
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(
        issues["issues"][0]["decision"]["reason"], "quota",
        "{issues}"
    );
    assert_eq!(env.jobs("ENG-1").len(), 1);

    env.advance_clock(until.since(env.app.core.now()));
    let second = wait_for_end(&env, "ENG-1", 2).await;
    assert_eq!(second.state, JobState::Completed, "{second:#?}");
    let other = wait_for_end(&env, "ENG-2", 1).await;
    assert_eq!(other.state, JobState::Completed);
    let comments = env.comments("ENG-1");
    let paused = comments
        .iter()
        .filter(|text| text.contains("paused"))
        .count();
    assert_eq!(paused, 1, "{comments:?}");
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_without_a_reset_time_keeps_the_label_and_is_retried() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    let refused = [ScriptStep::api_error(
        429,
        "This request would exceed your rate limit",
    )];
    env.set_agent_script("ENG-1", Script::new().pass(refused).pass(write_steps()));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let first = wait_for_end(&env, "ENG-1", 1).await;
    let JobState::Failed { code, reason } = &first.state else {
        panic!("{first:#?}")
    };
    assert_eq!(*code, Some(FailureCode::ProviderLimit), "{reason}");
    let half_an_hour = Duration::from_secs(30 * 60);
    let waits = first.resumes_at.unwrap().since(env.app.core.now());
    assert!(
        waits > half_an_hour / 2 && waits <= 2 * half_an_hour,
        "{waits:?}"
    );
    assert_eq!(labels(&env, "ENG-1"), ["Agent-Implement"]);
    let comments = env.comments("ENG-1");
    assert!(
        comments[0].starts_with("Implementation paused: "),
        "{comments:?}"
    );
    env.advance_clock(waits);
    let second = wait_for_end(&env, "ENG-1", 2).await;
    assert_eq!(second.state, JobState::Completed, "{second:#?}");
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_plan_is_not_repeated() {
    let env = TestEnv::with_manual_engine([planning_mapping()]).await;
    let until = whole_second_after(&env, TWO_HOURS);
    let plan = [ScriptStep::write("ai-output/comments/01.md", "The plan.")];
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, plan)
        // Passes are counted over all prompts: the first is used by the planning run.
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps())
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, [limit(until)])
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps());
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    wait_for_end(&env, "ENG-1", 2).await;
    let labels = labels(&env, "ENG-1");
    assert!(labels.contains(&"Plan-Complete".to_owned()), "{labels:?}");
    assert!(!labels.contains(&"Agent-Working".to_owned()), "{labels:?}");
    env.advance_clock(TWO_HOURS);
    let last = wait_for_end(&env, "ENG-1", 3).await;
    // Two jobs may have the same time.
    let mut jobs = env.jobs("ENG-1");
    jobs.sort_by_key(|job| job.dispatch_number);
    let kinds: Vec<JobKind> = jobs.iter().map(|job| job.kind).collect();
    use JobKind::{Implementation, Planning};
    assert_eq!(kinds, [Planning, Implementation, Implementation]);
    assert_eq!(last.state, JobState::Completed);
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_may_disable_the_resume() {
    let without_resume = Mapping {
        resume_after_limit: false,
        ..mapping()
    };
    let env = TestEnv::with_manual_engine([without_resume]).await;
    let until = whole_second_after(&env, TWO_HOURS);
    env.set_agent_script("ENG-1", Script::new().pass([limit(until)]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = wait_for_end(&env, "ENG-1", 1).await;
    assert_eq!(job.resumes_at, None);
    assert!(labels(&env, "ENG-1").is_empty());
    let comments = env.comments("ENG-1");
    assert!(
        comments[0].starts_with("Implementation failed: model invocation failed"),
        "{comments:?}"
    );
    env.create_labelled_issue("ENG-2", "Is not delayed");
    let other = wait_for_end(&env, "ENG-2", 1).await;
    assert_eq!(other.state, JobState::Completed);
    env.tick_until_drained().await;
    env.finish().await;
}

fn limit_report(retry_at: Value) -> String {
    json!({"phase": "implementation", "outcome": "failure", "comments": [], "failureCode": "PROVIDER_LIMIT",
        "failureReason": "You've hit your session limit", "retryAt": retry_at})
    .to_string()
}

async fn server_with_mapping() -> ApiServer {
    let server = ApiServer::start().await;
    let put = server.store.write(|tx| mappings::put(tx, &mapping()));
    put.await.unwrap();
    server
}

async fn report(server: &ApiServer, id: &str, issue: &str, retry_at: Value) -> Job {
    let mut job = dispatched_job(id, JobKind::Implementation);
    job.issue.id = issue.into();
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Result);
    let response = server
        .send("POST", "/runner/result", &token, limit_report(retry_at))
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    server.job(id)
}

#[tokio::test]
async fn a_reported_reset_time_is_bounded() {
    let server = server_with_mapping().await;
    let minute = CLOCK_START + Duration::from_secs(60);
    let week = CLOCK_START + Duration::from_secs(7 * 24 * 60 * 60);
    let hour = CLOCK_START + Duration::from_secs(60 * 60);
    let rows = [
        (json!(hour), Some(hour)),
        (json!("1970-01-01T00:00:00Z"), Some(minute)),
        (json!(CLOCK_START), Some(minute)),
        (json!("9999-01-01T00:00:00Z"), Some(week)),
        (json!("2027-01-15T11:00:00+02:00"), Some(hour)),
        // Old runs report none, and others report invalid values.
        (Value::Null, None),
        (json!("9999-12-31T23:59:59Z"), None),
        (json!("soon"), None),
        (json!(1_800_003_600), None),
        (json!("-9999-01-01T00:00:00Z"), None),
        (json!({"at": "noon"}), None),
    ];
    for (at, (claimed, expected)) in rows.into_iter().enumerate() {
        let id = format!("01{at}");
        let job = report(&server, &id, &format!("issue {at}"), claimed.clone()).await;
        assert_eq!(job.resumes_at, expected, "{claimed}");
        assert!(matches!(job.state, JobState::Failed { .. }));
    }
    let parked = server.store.read(dispatch_breaker::all).unwrap();
    assert!(
        parked.is_empty(),
        "a limit does not count as a failure of the issue"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_applies_to_machines_with_the_same_credentials() {
    let other = |extra: &[(&str, &str)]| Mapping {
        team_key: "WEB".into(),
        extra_env: extra
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..mapping()
    };
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), other(&[])],
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "vm".to_owned())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    let mut job = dispatched_job("01A", JobKind::Implementation);
    job.runner = RunnerKind::Vm;
    job.dispatched_at = Some(env.app.core.now());
    let (now, id, phase) = (env.app.core.now(), job.id.clone(), job.kind.run_phase());
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    let tokens = &env.app.secrets.run_tokens;
    let token = tokens.issue(&id, TokenAudience::Result, phase, now, now + TWO_HOURS);
    let request = reqwest::Client::new().post(format!("{}/runner/result", env.address));
    let request = request.bearer_auth(token.expose());
    let response = send_checked(request.body(limit_report(json!(now + TWO_HOURS)))).await;
    assert_eq!(response.status, 200, "{response:?}");

    let linear = env.vendors.linear();
    linear.ensure_team("WEB", "Web");
    let ticket = linear.issue("WEB-1").title("Wants the same account");
    ticket.add_label("Agent-Implement");
    env.tick().await;
    let why = env.admin_get("/api/why/WEB-1").await;
    assert_eq!(why["decision"]["reason"], "quota", "{why}");
    let own = other(&[("OPENAI_API_KEY", "sk-of-the-team")]);
    let put = env.store.write(move |tx| mappings::put(tx, &own));
    put.await.unwrap();
    env.tick().await;
    assert_eq!(env.jobs("WEB-1").len(), 1);
    env.stop().await;
}

#[tokio::test]
async fn an_issue_fails_after_repeated_limits() {
    let server = server_with_mapping().await;
    let soon = json!(CLOCK_START + Duration::from_secs(90));
    for run in 0..5 {
        let job = report(&server, &format!("01A{run}"), "large", soon.clone()).await;
        assert!(job.resumes_at.is_some(), "run {run}");
    }
    let last = report(&server, "01A5", "large", soon.clone()).await;
    assert_eq!(last.resumes_at, None);
    // The failure resets the count. Other issues are not affected.
    for (id, issue) in [("01A6", "large"), ("01B0", "small")] {
        assert!(
            report(&server, id, issue, soon.clone())
                .await
                .resumes_at
                .is_some()
        );
    }
    // The limit of a shadow run delays no other run.
    let mut shadow = dispatched_job("01C", JobKind::Implementation);
    shadow.shadow = true;
    server.put_job(&shadow).await;
    let token = server.run_token(&shadow, TokenAudience::Result);
    let path = format!("http://{}/runner/result", server.address);
    let request = server.client.post(path).bearer_auth(token);
    let before = server.store.read(outbox::pending).unwrap().len();
    assert_eq!(
        send_checked(request.body(limit_report(soon))).await.status,
        200
    );
    assert_eq!(server.job("01C").resumes_at, None);
    assert_eq!(server.store.read(outbox::pending).unwrap().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_fill_at_the_limit_resumes_after_the_reset() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    // No run starts in this environment; the dispatch is a pending effect.
    assert_eq!(response.status, 200, "{response:?}");
    env.tick().await;
    let first = follow_up_jobs(&env, "ENG-1").pop().unwrap();
    let until = env.app.core.now() + TWO_HOURS;
    let tokens = &env.app.secrets.run_tokens;
    let (now, life) = (env.app.core.now(), Duration::from_secs(3600));
    let phase = first.kind.run_phase();
    let token = tokens.issue(&first.id, TokenAudience::Result, phase, now, now + life);
    let mut report: Value = serde_json::from_str(&limit_report(json!(until))).unwrap();
    report["phase"] = json!("gap-analysis");
    let request = reqwest::Client::new().post(format!("{}/runner/result", env.address));
    let accepted = send_checked(request.bearer_auth(token.expose()).json(&report)).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    env.tick().await;
    let comments = env.repo().comments(number);
    let is_posted = comments
        .iter()
        .any(|comment| comment.body.contains("Gap fill paused"));
    assert!(is_posted, "{comments:#?}");

    // A second command waits, and a comment reports it.
    let mut other = trigger_body("ENG-1", number);
    other["instruction"] = json!("and another thing");
    let response = send_trigger(&env, other).await;
    assert_eq!(
        response.body,
        json!({"ok": true, "dispatched": false, "queued": true})
    );
    env.advance_clock(Duration::from_secs(60 * 60));
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1);
    let comments = env.repo().comments(number);
    let is_posted = comments
        .iter()
        .any(|comment| comment.body.contains("starts automatically at"));
    assert!(is_posted);

    env.advance_clock(Duration::from_secs(60 * 60 + 1));
    env.tick().await;
    let runs = follow_up_jobs(&env, "ENG-1");
    assert_eq!(runs.len(), 2, "one at a time: {runs:#?}");
    assert!(runs[1].is_active());
    env.stop().await;
}
