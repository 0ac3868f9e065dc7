//! Usage limits of model providers: what met one goes on when it is lifted, and nobody is asked in
//! vain before.

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

/// The provider's limit is reached until then.
fn limit(until: Timestamp) -> ScriptStep {
    ScriptStep::UsageLimit {
        resets_at: until.as_secs(),
    }
}

/// A moment in whole seconds, as the provider tells it.
fn later(world: &TestEnv, span: Duration) -> Timestamp {
    let at = world.app.now() + span;
    Timestamp::from_millis(at.as_secs() * 1000)
}

fn labels(world: &TestEnv, key: &str) -> Vec<String> {
    world.vendors.linear().issue(key).labels()
}

async fn ended(world: &TestEnv, key: &str, runs: usize) -> Job {
    let what = format!("run {runs} of {key} has ended");
    world
        .tick_until(&what, || {
            let jobs = world.jobs(key);
            jobs.len() == runs && jobs.iter().all(|job| !job.is_active())
        })
        .await;
    world.tick().await;
    world.jobs(key).pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_met_the_limit_goes_on_when_it_is_lifted() {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    let until = later(&world, TWO_HOURS);
    let script = Script::new().pass([limit(until)]).pass(write_steps());
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let first = ended(&world, "ENG-1", 1).await;
    let JobState::Failed { code, reason } = &first.state else {
        panic!("{first:#?}")
    };
    assert_eq!(*code, Some(FailureCode::ProviderLimit));
    assert!(
        reason.ends_with(&format!("It goes on by itself at {until}.")),
        "{reason}"
    );
    assert!(reason.contains("You've hit your session limit"), "{reason}");
    assert_eq!(first.resumes_at, Some(until));
    assert_eq!(
        labels(&world, "ENG-1"),
        ["Agent-Implement"],
        "the trigger is kept"
    );
    let told = format!(
        "Implementation paused: the usage limit of the model provider is reached. It goes on by itself at {until}."
    );
    assert_eq!(world.comments("ENG-1"), [told.as_str()]);
    let kept = world
        .app
        .store
        .read(|tx| Ok((dedup::all(tx)?, dispatch_breaker::all(tx)?)));
    assert_eq!(kept.unwrap(), (vec![], vec![]));

    // Whoever uses the same credentials waits, too, over restarts.
    world.create_labelled_issue("ENG-2", "Wants the same model");
    let engine = EngineMode::Manual(world.app.clock.clone());
    let world = world
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            engine,
            ..TestEnvOptions::default()
        })
        .await;
    world.advance_clock(Duration::from_secs(60 * 60));
    world.tick().await;
    for key in ["ENG-1", "ENG-2"] {
        let why = world.admin_get(&format!("/api/why/{key}")).await;
        let decision = &why["decision"];
        assert_eq!(
            (&decision["outcome"], &decision["reason"]),
            (&json!("waiting"), &json!("quota"))
        );
        let told = format!("The model provider's usage limit is reached. It goes on at {until}.");
        assert_eq!(decision["message"], told);
    }
    let blockers = world.admin_get("/api/blockers?all=true").await;
    assert_eq!(blockers["totals"]["byReason"], json!({"quota": 2}));
    let issues = world.admin_get("/api/issues").await;
    assert_eq!(
        issues["issues"][0]["decision"]["reason"], "quota",
        "{issues}"
    );
    assert_eq!(world.jobs("ENG-1").len(), 1);

    world.advance_clock(until.since(world.app.now()));
    let second = ended(&world, "ENG-1", 2).await;
    assert_eq!(second.state, JobState::Completed, "{second:#?}");
    let other = ended(&world, "ENG-2", 1).await;
    assert_eq!(other.state, JobState::Completed);
    let comments = world.comments("ENG-1");
    let paused = comments
        .iter()
        .filter(|text| text.contains("paused"))
        .count();
    assert_eq!(paused, 1, "{comments:?}");
    world.tick_until_drained().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_which_no_end_is_told_keeps_the_label_and_is_waited_for() {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    let refused = [ScriptStep::api_error(
        429,
        "This request would exceed your rate limit",
    )];
    world.set_agent_script("ENG-1", Script::new().pass(refused).pass(write_steps()));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let first = ended(&world, "ENG-1", 1).await;
    let JobState::Failed { code, reason } = &first.state else {
        panic!("{first:#?}")
    };
    assert_eq!(*code, Some(FailureCode::ProviderLimit), "{reason}");
    let half_an_hour = Duration::from_secs(30 * 60);
    let waits = first.resumes_at.unwrap().since(world.app.now());
    assert!(
        waits > half_an_hour / 2 && waits <= 2 * half_an_hour,
        "{waits:?}"
    );
    assert_eq!(labels(&world, "ENG-1"), ["Agent-Implement"]);
    let comments = world.comments("ENG-1");
    assert!(
        comments[0].starts_with("Implementation paused: "),
        "{comments:?}"
    );
    world.advance_clock(waits);
    let second = ended(&world, "ENG-1", 2).await;
    assert_eq!(second.state, JobState::Completed, "{second:#?}");
    world.tick_until_drained().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_was_made_is_not_made_again() {
    let world = TestEnv::with_manual_engine([planning_mapping()]).await;
    let until = later(&world, TWO_HOURS);
    let plan = [ScriptStep::write("ai-output/comments/01.md", "The plan.")];
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, plan)
        // Calls are counted whatever their prompt: the first is the planner's.
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps())
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, [limit(until)])
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps());
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    ended(&world, "ENG-1", 2).await;
    let labels = labels(&world, "ENG-1");
    assert!(labels.contains(&"Plan-Complete".to_owned()), "{labels:?}");
    assert!(!labels.contains(&"Agent-Working".to_owned()), "{labels:?}");
    world.advance_clock(TWO_HOURS);
    let last = ended(&world, "ENG-1", 3).await;
    // The clock may stand still between two of them.
    let mut jobs = world.jobs("ENG-1");
    jobs.sort_by_key(|job| job.dispatch_number);
    let kinds: Vec<JobKind> = jobs.iter().map(|job| job.kind).collect();
    use JobKind::{Implementation, Planning};
    assert_eq!(kinds, [Planning, Implementation, Implementation]);
    assert_eq!(last.state, JobState::Completed);
    world.tick_until_drained().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_may_have_it_fail_like_anything_else() {
    let stubborn = Mapping {
        resume_after_limit: false,
        ..mapping()
    };
    let world = TestEnv::with_manual_engine([stubborn]).await;
    let until = later(&world, TWO_HOURS);
    world.set_agent_script("ENG-1", Script::new().pass([limit(until)]));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = ended(&world, "ENG-1", 1).await;
    assert_eq!(job.resumes_at, None);
    assert!(labels(&world, "ENG-1").is_empty());
    let comments = world.comments("ENG-1");
    assert!(
        comments[0].starts_with("Implementation failed: model invocation failed"),
        "{comments:?}"
    );
    world.create_labelled_issue("ENG-2", "Is not held back");
    let other = ended(&world, "ENG-2", 1).await;
    assert_eq!(other.state, JobState::Completed);
    world.tick_until_drained().await;
    world.finish().await;
}

fn met(retry_at: Value) -> String {
    json!({"phase": "implementation", "outcome": "failure", "comments": [], "failureCode": "PROVIDER_LIMIT",
        "failureReason": "You've hit your session limit", "retryAt": retry_at})
    .to_string()
}

async fn with_mapping() -> ApiServer {
    let server = ApiServer::start().await;
    let put = server.app.store.write(|tx| mappings::put(tx, &mapping()));
    put.await.unwrap();
    server
}

async fn report(server: &ApiServer, id: &str, issue: &str, retry_at: Value) -> Job {
    let mut begun = dispatched_job(id, JobKind::Implementation);
    begun.issue.id = issue.into();
    server.put_job(&begun).await;
    let token = server.run_token(&begun, TokenAudience::Result);
    let told = server
        .send("POST", "/runner/result", &token, met(retry_at))
        .await;
    assert_eq!(told.status, 200, "{told:?}");
    server.job(id)
}

#[tokio::test]
async fn what_a_run_says_about_time_is_bounded() {
    let server = with_mapping().await;
    let minute = CLOCK_START + Duration::from_secs(60);
    let week = CLOCK_START + Duration::from_secs(7 * 24 * 60 * 60);
    let hour = CLOCK_START + Duration::from_secs(60 * 60);
    let rows = [
        (json!(hour), Some(hour)),
        (json!("1970-01-01T00:00:00Z"), Some(minute)),
        (json!(CLOCK_START), Some(minute)),
        (json!("9999-01-01T00:00:00Z"), Some(week)),
        (json!("2027-01-15T11:00:00+02:00"), Some(hour)),
        // Runs of before tell none, and others tell nonsense.
        (Value::Null, None),
        (json!("9999-12-31T23:59:59Z"), None),
        (json!("soon"), None),
        (json!(1_800_003_600), None),
        (json!("-9999-01-01T00:00:00Z"), None),
        (json!({"at": "noon"}), None),
    ];
    for (at, (told, expected)) in rows.into_iter().enumerate() {
        let id = format!("01{at}");
        let job = report(&server, &id, &format!("issue {at}"), told.clone()).await;
        assert_eq!(job.resumes_at, expected, "{told}");
        assert!(matches!(job.state, JobState::Failed { .. }));
    }
    let parked = server.app.store.read(dispatch_breaker::all).unwrap();
    assert!(parked.is_empty(), "it says nothing about the issue");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_share_the_services_credentials_but_for_teams_with_their_own() {
    let other = |extra: &[(&str, &str)]| Mapping {
        team_key: "WEB".into(),
        extra_env: extra
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..mapping()
    };
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), other(&[])],
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "vm".to_owned())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    let mut begun = dispatched_job("01A", JobKind::Implementation);
    begun.runner = RunnerKind::Vm;
    begun.dispatched_at = Some(world.app.now());
    let (now, id, phase) = (world.app.now(), begun.id.clone(), begun.kind.run_phase());
    let put = world.app.store.write(move |tx| jobs::put(tx, &begun));
    put.await.unwrap();
    let tokens = world.app.run_tokens.as_ref().unwrap();
    let token = tokens.issue(&id, TokenAudience::Result, phase, now, now + TWO_HOURS);
    let request = reqwest::Client::new().post(format!("{}/runner/result", world.address));
    let request = request.bearer_auth(token.expose());
    let taken = send_checked(request.body(met(json!(now + TWO_HOURS)))).await;
    assert_eq!(taken.status, 200, "{taken:?}");

    let linear = world.vendors.linear();
    linear.ensure_team("WEB", "Web");
    let ticket = linear.issue("WEB-1").title("Wants the same account");
    ticket.add_label("Agent-Implement");
    world.tick().await;
    let why = world.admin_get("/api/why/WEB-1").await;
    assert_eq!(why["decision"]["reason"], "quota", "{why}");
    let own = other(&[("OPENAI_API_KEY", "sk-of-the-team")]);
    let put = world.app.store.write(move |tx| mappings::put(tx, &own));
    put.await.unwrap();
    world.tick().await;
    assert_eq!(world.jobs("WEB-1").len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn an_issue_that_only_ever_meets_limits_fails_in_the_end() {
    let server = with_mapping().await;
    let soon = json!(CLOCK_START + Duration::from_secs(90));
    for run in 0..5 {
        let job = report(&server, &format!("01A{run}"), "large", soon.clone()).await;
        assert!(job.resumes_at.is_some(), "run {run}");
    }
    let last = report(&server, "01A5", "large", soon.clone()).await;
    assert_eq!(last.resumes_at, None);
    // That was an end like any other, so it counts anew from here; other issues are none the worse.
    for (id, issue) in [("01A6", "large"), ("01B0", "small")] {
        assert!(
            report(&server, id, issue, soon.clone())
                .await
                .resumes_at
                .is_some()
        );
    }
    // A shadow's limit holds nobody back.
    let mut shadow = dispatched_job("01C", JobKind::Implementation);
    shadow.shadow = true;
    server.put_job(&shadow).await;
    let token = server.run_token(&shadow, TokenAudience::Result);
    let path = format!("http://{}/runner/result", server.address);
    let request = server.client.post(path).bearer_auth(token);
    let before = server.app.store.read(outbox::pending).unwrap().len();
    assert_eq!(send_checked(request.body(met(soon))).await.status, 200);
    assert_eq!(server.job("01C").resumes_at, None);
    assert_eq!(
        server.app.store.read(outbox::pending).unwrap().len(),
        before
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_person_asked_for_is_asked_for_still() {
    let world = env_with_pending_runs().await;
    let number = open_pull(&world, "ENG-1").await;
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    // The host of this world takes its time; the start is owed.
    assert_eq!(told.status, 200, "{told:?}");
    world.tick().await;
    let first = follow_up_jobs(&world, "ENG-1").pop().unwrap();
    let until = world.app.now() + TWO_HOURS;
    let tokens = world.app.run_tokens.as_ref().unwrap();
    let (now, life) = (world.app.now(), Duration::from_secs(3600));
    let phase = first.kind.run_phase();
    let token = tokens.issue(&first.id, TokenAudience::Result, phase, now, now + life);
    let mut report: Value = serde_json::from_str(&met(json!(until))).unwrap();
    report["phase"] = json!("gap-analysis");
    let request = reqwest::Client::new().post(format!("{}/runner/result", world.address));
    let taken = send_checked(request.bearer_auth(token.expose()).json(&report)).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    world.tick().await;
    let comments = world.repo().comments(number);
    let said = comments
        .iter()
        .any(|comment| comment.body.contains("Gap fill paused"));
    assert!(said, "{comments:#?}");

    // Asked again meanwhile it waits, and whoever asks is told.
    let mut other = trigger_body("ENG-1", number);
    other["instruction"] = json!("and another thing");
    let told = send_trigger(&world, other).await;
    assert_eq!(
        told.body,
        json!({"ok": true, "dispatched": false, "queued": true})
    );
    world.advance_clock(Duration::from_secs(60 * 60));
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 1);
    let said = world.repo().comments(number);
    let said = said
        .iter()
        .any(|comment| comment.body.contains("starts by itself at"));
    assert!(said);

    world.advance_clock(Duration::from_secs(60 * 60 + 1));
    world.tick().await;
    let runs = follow_up_jobs(&world, "ENG-1");
    assert_eq!(runs.len(), 2, "one at a time: {runs:#?}");
    assert!(runs[1].is_active());
    world.stop().await;
}
