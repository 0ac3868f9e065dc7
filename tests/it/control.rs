//! Cancel and retry by API and command line: in every state of a run, on every host and ticketing system.

mod machines;
mod pull_requests;
mod races;

use std::time::Duration;

use domain::issue::{Phase, System};
use domain::job::{Job, JobKind, JobState};
use domain::report::{FailureCode, StepRecord};
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};
use store::dispatch_breaker::{self, ParkedIssue};
use store::{dedup, jobs, steps};

use vendors::http::percent_encode;

use crate::api_server::{ApiServer, dispatched_job, send_checked};
use crate::process::{ServiceProcess, exit_and_output, run};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};
use crate::test_ticket::{SYSTEMS, TestTicket, mapping_for};

const MINUTE: Duration = Duration::from_secs(60);

/// State of a CI run when it is cancelled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CiState {
    /// Its start is pending.
    Reserved,
    /// The host accepted its start and did not name it.
    Unlinked,
    /// It waits for a machine.
    Queued,
    Running,
    /// The host accepted its start, and the answer was lost.
    AnswerLost,
    /// The host does not answer when it is cancelled.
    HostDown,
}

const CI_STATES: [CiState; 6] = [
    CiState::Reserved,
    CiState::Unlinked,
    CiState::Queued,
    CiState::Running,
    CiState::AnswerLost,
    CiState::HostDown,
];

/// Environment with a manual engine and fake CI runs, with team `ENG` of Linear, project `OPS` of Jira and
/// the issues of `acme/shop`.
async fn manual_env() -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: vec![
            mapping_for(System::Linear, "ENG"),
            mapping_for(System::Jira, "OPS"),
            mapping_for(System::GitHub, "SHOP"),
        ],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await
}

fn key_on(system: System) -> &'static str {
    match system {
        System::Linear => "ENG-1",
        System::Jira => "OPS-1",
        System::GitHub => "shop#1",
    }
}

/// Creates a triggered ticket and brings its run into a state.
async fn start_run(env: &TestEnv, system: System, state: CiState) -> TestTicket {
    let key = key_on(system);
    let ticket = TestTicket::create(env, system, key, "Add the feature");
    ticket.trigger();
    let github = env.vendors.faults(FakeService::GitHub);
    match state {
        CiState::Unlinked => {
            let nameless = InjectedFault::ReplaceResponseStatus(204);
            github.inject_on_match("/dispatches", nameless);
        }
        CiState::AnswerLost => github.inject_on_match("/dispatches", InjectedFault::DropResponse),
        _ => {}
    }
    engine::poll::run_once(&env.app).await.unwrap();
    if state == CiState::Reserved {
        return ticket;
    }
    drain(env).await;
    if matches!(state, CiState::Running | CiState::HostDown) {
        env.repo().start_run(env.repo().runs()[0].id);
        env.tick().await;
        assert_eq!(env.jobs(key)[0].state, JobState::Running);
    }
    if state == CiState::HostDown {
        github.set_outage(true);
    }
    ticket
}

async fn drain(env: &TestEnv) {
    engine::outbox_worker::drain(&env.app).await.unwrap();
}

async fn post(env: &TestEnv, path: &str, body: Option<Value>) -> (u16, Value) {
    env.admin_request(Method::POST, path, body).await
}

async fn cancel(env: &TestEnv, job: &Job, body: Value) -> (u16, Value) {
    post(env, &format!("/api/jobs/{}/cancel", job.id), Some(body)).await
}

async fn retry(env: &TestEnv, job: &Job) -> (u16, Value) {
    post(env, &format!("/api/jobs/{}/retry", job.id), None).await
}

/// Lets two polls pass, and everything that follows from them.
async fn settle(env: &TestEnv) {
    env.tick_until_drained().await;
    for _ in 0..2 {
        env.advance_clock(MINUTE);
        env.tick().await;
    }
    env.tick_until_drained().await;
}

/// Cancellations that the CI host accepted.
fn accepted_cancellations(env: &TestEnv) -> usize {
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let is_cancellation = |one: &&fake_vendors::LoggedRequest| {
        one.url.ends_with("/cancel") && one.status == Some(202)
    };
    requests.iter().filter(is_cancellation).count()
}

fn cancel_comments(ticket: &TestTicket) -> usize {
    let comments = ticket.comments().into_iter();
    let comments =
        comments.filter(|text| text.starts_with("Implementation cancelled by an operator"));
    comments.count()
}

/// Ends the run that a test leaves behind, and everything.
async fn finish(env: TestEnv) {
    for job in env.store.read(jobs::active).unwrap() {
        let answer = cancel(&env, &job, json!({})).await;
        assert_eq!(answer.0, 200, "{answer:?}");
    }
    settle(&env).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_is_given_up_in_every_state() {
    for system in SYSTEMS {
        for state in CI_STATES {
            let env = manual_env().await;
            let ticket = start_run(&env, system, state).await;
            let key = key_on(system);
            let job = env.jobs(key).pop().unwrap();
            let answer = cancel(&env, &job, json!({"retry": false})).await;
            let expected = json!({"cancelled": true, "jobId": job.id});
            assert_eq!(answer, (200, expected), "{system:?} {state:?}");
            let ended = json!({"error": "Job already ended"});
            assert_eq!(cancel(&env, &job, json!({})).await, (409, ended));
            let shown = env.admin_get(&format!("/api/jobs/{}", job.id)).await;
            assert_eq!(
                (
                    &shown["status"],
                    &shown["failureCode"],
                    &shown["conclusion"]
                ),
                (&json!("failed"), &json!("CANCELLED"), &json!("cancelled"))
            );
            let by = shown["cancelledBy"].as_str().unwrap();
            assert!(by.starts_with("admin@"), "{by}");

            if state == CiState::HostDown && system == System::GitHub {
                // Its ticket is there, too.
                drain(&env).await;
                env.advance_clock(MINUTE);
                env.vendors.faults(FakeService::GitHub).set_outage(false);
            } else if state == CiState::HostDown {
                // The ticket does not wait for the host.
                drain(&env).await;
                assert_eq!(ticket.markers(), [""; 0], "{system:?}");
                assert_eq!(accepted_cancellations(&env), 0);
                let why = env
                    .admin_get(&format!("/api/why/{}", percent_encode(key)))
                    .await;
                let message = why["decision"]["message"].as_str().unwrap();
                assert!(
                    message.starts_with("Cancelled by an operator. To retry, "),
                    "{message}"
                );
                let [update] = why["pendingUpdates"].as_array().unwrap().as_slice() else {
                    panic!("{why:#}");
                };
                assert_eq!(update["description"], "cancel run");
                let error = update["lastError"].as_str().unwrap();
                assert!(error.contains("GitHub"), "{error}");
                env.advance_clock(MINUTE);
                drain(&env).await;
                env.vendors.faults(FakeService::GitHub).set_outage(false);
            }
            settle(&env).await;
            assert_eq!(env.jobs(key).len(), 1, "{system:?} {state:?}: another run");
            assert_eq!(ticket.markers(), [""; 0], "{system:?} {state:?}");
            assert_eq!(cancel_comments(&ticket), 1, "{:?}", ticket.comments());
            let conclusions: Vec<_> = { env.repo().runs().into_iter() }
                .map(|run| run.conclusion.unwrap_or_default())
                .collect();
            let expected: &[&str] = match state {
                CiState::Reserved => &[],
                _ => &["cancelled"],
            };
            assert_eq!(conclusions, expected, "{system:?} {state:?}");
            assert_eq!(accepted_cancellations(&env), expected.len());
            let messages = env.vendors.chat().messages().into_iter();
            let told = messages.filter(|message| {
                let body = message.body.to_string();
                body.contains(&format!("Implementation cancelled for {key}"))
            });
            assert_eq!(told.count(), 1, "{system:?} {state:?}");
            assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
            let audit = env.admin_get("/api/audit").await;
            let entries = audit.as_array().unwrap().iter();
            let mut entries = entries.filter(|entry| entry["action"] == "run-cancelled");
            let entry = entries.next().unwrap();
            assert_eq!(
                (&entry["target"], &entry["actor"]),
                (&json!(key), &json!(by))
            );
            let detail = entry["detail"].as_str().unwrap();
            assert!(
                detail.starts_with("without retry; implementation run"),
                "{detail}"
            );
            assert_eq!(
                entries.next(),
                None,
                "the second cancellation changed nothing"
            );

            // A person can request another run at once.
            ticket.trigger();
            env.tick().await;
            let again = env.jobs(key).pop().unwrap();
            assert_ne!(again.id, job.id, "{system:?} {state:?}");
            let shown = env.admin_get(&format!("/api/jobs/{}", again.id)).await;
            assert_eq!(
                (&shown["attempt"], &shown["cancelledBy"]),
                (&json!(2), &Value::Null)
            );
            finish(env).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_cancelled_with_retry_is_dispatched_again_without_its_trigger() {
    for system in SYSTEMS {
        let env = manual_env().await;
        let ticket = start_run(&env, system, CiState::Running).await;
        let key = key_on(system);
        // A person has removed the trigger.
        match &ticket {
            TestTicket::Linear(ticket) => drop(ticket.clone().remove_label("Agent-Implement")),
            TestTicket::Jira(_) => {}
            TestTicket::GitHub(issue) => drop(issue.clone().remove_label("Agent-Implement")),
        }
        let job = env.jobs(key).pop().unwrap();
        // Ids of one millisecond have no order.
        env.advance_clock(MINUTE);
        let answer = cancel(&env, &job, json!({"retry": true})).await;
        assert_eq!(answer.0, 200, "{answer:?}");
        let why = env
            .admin_get(&format!("/api/why/{}", percent_encode(key)))
            .await;
        assert_ne!(why["decision"]["outcome"], "failed", "{why}");
        env.tick_until("it runs again", || {
            env.jobs(key).len() == 2 && env.jobs(key)[1].state == JobState::Dispatched
        })
        .await;
        assert_eq!(cancel_comments(&ticket), 0, "{:?}", ticket.comments());
        assert_eq!(accepted_cancellations(&env), 1);
        finish(env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_read_the_trigger_before_the_cancellation_dispatches_nothing() {
    for system in SYSTEMS {
        let env = manual_env().await;
        let ticket = start_run(&env, system, CiState::Running).await;
        let job = env.jobs(key_on(system)).pop().unwrap();
        let faults = env.ticketing_faults(system);
        faults.inject_next(InjectedFault::HoldResponse);
        let app = env.app.clone();
        let poll = tokio::spawn(async move { engine::poll::run_once(&app).await });
        env.wait_until("the poll has asked", || faults.held() == 1)
            .await;
        assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
        drain(&env).await;
        assert_eq!(ticket.markers(), [""; 0]);
        faults.release();
        poll.await.unwrap().unwrap();
        settle(&env).await;
        assert_eq!(env.jobs(key_on(system)).len(), 1);
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_trigger_cannot_be_removed_waits_until_it_is_retried() {
    let env = manual_env().await;
    start_run(&env, System::Linear, CiState::Reserved).await;
    let job = env.jobs("ENG-1").pop().unwrap();
    assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
    // Linear refuses the update.
    for _ in 0..2 {
        let linear = env.vendors.faults(FakeService::Linear);
        linear.inject_on_match("issueRemoveLabel", InjectedFault::ErrorStatus(403));
    }
    drain(&env).await;
    settle(&env).await;
    assert_eq!(env.store.read(store::outbox::dead).unwrap().len(), 1);
    assert_eq!(env.jobs("ENG-1").len(), 1);
    let why = env.admin_get("/api/why/ENG-1").await;
    let message = why["decision"]["message"].as_str().unwrap();
    assert!(
        message.contains("its trigger could not be removed"),
        "{why}"
    );
    assert_eq!(retry(&env, &job).await, (202, json!({"retrying": true})));
    env.tick_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    finish(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_drops_the_failed_update_that_would_remove_its_trigger() {
    let env = manual_env().await;
    start_run(&env, System::Linear, CiState::Running).await;
    env.repo().complete_run(env.repo().runs()[0].id, "failure");
    for _ in 0..2 {
        let linear = env.vendors.faults(FakeService::Linear);
        linear.inject_on_match("issueRemoveLabel", InjectedFault::ErrorStatus(403));
    }
    settle(&env).await;
    settle(&env).await;
    let failed = env.jobs("ENG-1").pop().unwrap();
    assert!(!failed.is_active());
    assert_eq!(env.store.read(store::outbox::dead).unwrap().len(), 1);
    assert_eq!(retry(&env, &failed).await.0, 202);
    assert!(env.store.read(store::outbox::dead).unwrap().is_empty());
    env.tick_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    finish(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_is_retried_although_its_issue_is_parked() {
    for system in SYSTEMS {
        let env = manual_env().await;
        let ticket = start_run(&env, system, CiState::Running).await;
        let key = key_on(system);
        let job = env.jobs(key).pop().unwrap();
        let busy = json!({"error": "A run of this issue is active"});
        assert_eq!(retry(&env, &job).await, (409, busy));
        assert_eq!(cancel(&env, &job, json!({})).await.0, 200);
        settle(&env).await;
        let parked = ParkedIssue {
            issue: job.issue.clone(),
            repo: job.repo.clone(),
            phase: Phase::Implementation,
            failures: 3,
            last_conclusion: "it broke".into(),
            parked_at: env.app.core.now(),
        };
        let entry = dedup::DedupEntry {
            issue: job.issue.clone(),
            dispatched_at: env.app.core.now(),
        };
        let put = env.store.write(move |tx| {
            dedup::put(tx, &entry)?;
            dispatch_breaker::park(tx, &parked)
        });
        put.await.unwrap();

        let vendor = env.ticketing_faults(system);
        vendor.set_outage(true);
        let (status, body) = retry(&env, &job).await;
        let error = body["error"].as_str().unwrap();
        assert_eq!(status, 503, "{body}");
        assert!(
            error.starts_with("Cannot ask ") && error.ends_with("Try again later."),
            "{error}"
        );
        vendor.set_outage(false);
        assert_eq!(retry(&env, &job).await, (202, json!({"retrying": true})));
        env.tick_until("it runs again", || env.jobs(key).len() == 2)
            .await;
        assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
        let audit = env.admin_get("/api/audit").await;
        let mut entries = audit.as_array().unwrap().iter();
        let entry = entries
            .find(|entry| entry["action"] == "run-retried")
            .unwrap();
        assert_eq!(entry["target"], key);
        finish_run_and_close(&env, &ticket, key).await;
        let closed = json!({"error": "The ticket is closed"});
        assert_eq!(retry(&env, &job).await, (409, closed), "{system:?}");
        finish(env).await;
    }
}

/// The outcomes of the decisions about an issue in the list of issues.
async fn listed_outcomes(env: &TestEnv, key: &str) -> Vec<String> {
    let list = env.admin_get("/api/issues").await;
    let issues = list["issues"].as_array().unwrap().iter();
    let of_key = issues.filter(|issue| issue["identifier"] == key);
    of_key
        .map(|issue| issue["decision"]["outcome"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_retry_was_cancelled_is_not_listed_as_failed() {
    let env = manual_env().await;
    start_run(&env, System::Linear, CiState::Running).await;
    env.repo().complete_run(env.repo().runs()[0].id, "failure");
    settle(&env).await;
    // Its report may follow within two minutes.
    settle(&env).await;
    assert_eq!(listed_outcomes(&env, "ENG-1").await, ["failed"]);
    let failed = env.jobs("ENG-1").pop().unwrap();
    assert_eq!(retry(&env, &failed).await.0, 202);
    env.tick_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    let again = env.jobs("ENG-1").pop().unwrap();
    assert_eq!(cancel(&env, &again, json!({})).await.0, 200);
    settle(&env).await;
    assert_eq!(listed_outcomes(&env, "ENG-1").await, [""; 0]);
    finish(env).await;
}

async fn finish_run_and_close(env: &TestEnv, ticket: &TestTicket, key: &str) {
    let active = env.jobs(key).pop().unwrap();
    assert_eq!(cancel(env, &active, json!({})).await.0, 200);
    settle(env).await;
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().complete()),
        TestTicket::Jira(ticket) => drop(ticket.clone().complete()),
        TestTicket::GitHub(issue) => drop(issue.clone().complete()),
    }
}

#[tokio::test]
async fn rejects_wrong_requests() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let job = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&job).await;
    let cancel = "/api/jobs/01A/cancel";
    for (path, body, status, error) in [
        (cancel, "{", 400, "Invalid request body"),
        (cancel, "[]", 400, "Invalid request body"),
        (cancel, "null", 400, "Invalid request body"),
        (cancel, "true", 400, "Invalid request body"),
        (cancel, "0", 400, "Invalid request body"),
        (cancel, r#""retry""#, 400, "Invalid request body"),
        (cancel, r#"[{"retry":true}]"#, 400, "Invalid request body"),
        (cancel, r#"{"retry":true} x"#, 400, "Invalid request body"),
        (cancel, "retry=true", 400, "Invalid request body"),
        ("/api/jobs/01B/cancel", "", 404, "Job not found"),
        ("/api/jobs/01B/retry", "", 404, "Job not found"),
        // No decision knows the issue.
        (
            "/api/jobs/eng-1/retry",
            "",
            409,
            "A run of this issue is active",
        ),
        (
            "/api/jobs/issue-1/retry",
            "",
            409,
            "A run of this issue is active",
        ),
        (
            "/api/jobs/01A/retry",
            "nonsense",
            400,
            "Invalid request body",
        ),
        (
            "/api/jobs/01A/retry",
            "",
            409,
            "A run of this issue is active",
        ),
    ] {
        let response = server.send("POST", path, &token, body.to_owned()).await;
        assert_eq!(response.error(), (status, error), "{path} {body}");
    }
    for value in [
        "null",
        "0",
        "1",
        r#""true""#,
        r#""false""#,
        "[]",
        "[true]",
        "{}",
    ] {
        let body = format!(r#"{{"retry":{value}}}"#);
        let response = server.send("POST", cancel, &token, body).await;
        let expected = (400, "retry must be a boolean");
        assert_eq!(response.error(), expected, "{value}");
    }
    let large = format!(r#"{{"retry":true,"x":"{}"}}"#, "x".repeat(1 << 20));
    for path in [cancel, "/api/jobs/01A/retry"] {
        let response = server.send("POST", path, &token, large.clone()).await;
        assert_eq!(response.status, 413, "{path}");
    }
    // The body counts, whatever its type is called.
    let typed = server.request("POST", cancel).bearer_auth(&token);
    let typed = typed.header("content-type", "text/plain");
    let response = send_checked(typed.body(r#"{"retry":7}"#)).await;
    assert_eq!(response.error(), (400, "retry must be a boolean"));
    let unauthorized = server.send("POST", cancel, "", "{}".to_owned()).await;
    assert_eq!(unauthorized.status, 401);
    assert!(server.job("01A").is_active());
    // Of two cancellations at once, one wins.
    let both = [
        server.send("POST", cancel, &token, String::new()),
        server.send("POST", cancel, &token, r#"{"retry":true}"#.to_owned()),
    ];
    let both = futures_util::future::join_all(both).await;
    let mut statuses: Vec<u16> = both.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{both:?}");
    server.stop().await.unwrap();
}

fn step(id: &str, status: &str) -> Value {
    json!({"id": id, "type": "t", "status": status, "started_at": "2027-01-15T07:59:00.000Z"})
}

#[tokio::test]
async fn open_steps_end_with_their_run_and_stay_closed() {
    use domain::crypto::run_token::TokenAudience;
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let job = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&job).await;
    let progress_token = server.run_token(&job, TokenAudience::Progress);
    let report = |step: Value| {
        let body = json!({ "step": step }).to_string();
        server.send("POST", "/runner/progress", &progress_token, body)
    };
    assert_eq!(report(step("clone", "passed")).await.status, 200);
    assert_eq!(report(step("install", "running")).await.status, 200);
    let cancelled = server.send("POST", "/api/jobs/01A/cancel", &token, String::new());
    assert_eq!(cancelled.await.status, 200);
    let stored = server.store.read(|tx| steps::of_job(tx, &job.id)).unwrap();
    let statuses: Vec<&str> = stored.iter().map(|step| step.status.as_str()).collect();
    assert_eq!(
        statuses,
        ["passed", "cancelled"],
        "in the commit of the end"
    );
    assert_eq!(stored[1].elapsed_ms, Some(60_000));
    // Late reports.
    assert_eq!(report(step("install", "running")).await.status, 200);
    assert_eq!(report(step("push", "running")).await.status, 200);
    let shown = server
        .send("GET", "/api/jobs/01A/steps", &token, None)
        .await;
    let statuses: Vec<&Value> = { shown.body["steps"].as_array().unwrap().iter() }
        .map(|step| &step["status"])
        .collect();
    assert_eq!(
        statuses,
        ["passed", "cancelled", "cancelled"],
        "{}",
        shown.body
    );

    // A run that an older version ended.
    let old = Job {
        state: JobState::Failed {
            code: Some(FailureCode::VerifyFailed),
            reason: "it broke".into(),
        },
        finished_at: Some(server.app.core.now()),
        ..dispatched_job("01B", JobKind::Implementation)
    };
    server.put_job(&old).await;
    let (row, order) = (
        StepRecord::parse(Some(step("verify", "running"))),
        server.store.next_order(),
    );
    let row = row.unwrap();
    let put = server
        .store
        .write(move |tx| steps::put(tx, &"01B".into(), &row, order));
    put.await.unwrap();
    let shown = server
        .send("GET", "/api/jobs/01B/steps", &token, None)
        .await;
    let step = &shown.body["steps"][0];
    assert_eq!(step["status"], "failed", "{step}");
    assert_eq!(step["ended_at"], json!(server.app.core.now()));
    assert_eq!(step["elapsed_ms"], 60_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_cancel_and_retry_runs_of_the_running_service() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let job = dispatched_job("01A", JobKind::Implementation);
    let store = store::Store::open(dir.path()).unwrap();
    let stored = job.clone();
    store.write(move |tx| jobs::put(tx, &stored)).await.unwrap();
    drop(store);
    let call =
        |arguments: &[&str]| exit_and_output(&run(&[arguments, &["--data-dir", data]].concat()));
    let stopped = call(&["cancel", "01A"]);
    assert_eq!(stopped.0, 1, "{stopped:?}");
    assert!(stopped.2.contains("is stopped. Start it"), "{stopped:?}");

    let service = ServiceProcess::start(dir.path(), &[]);
    let unknown = call(&["cancel", "ENG-99"]);
    assert_eq!(unknown.0, 4, "{unknown:?}");
    assert!(unknown.2.contains("ENG-99 is neither"), "{unknown:?}");
    let busy = call(&["retry", "issue-1"]);
    assert_eq!(busy.0, 3, "{busy:?}");
    assert!(
        busy.2.contains("A run of this issue is active."),
        "{busy:?}"
    );
    let cancelled = call(&["cancel", "issue-1"]);
    assert_eq!(cancelled.0, 0, "{cancelled:?}");
    assert_eq!(
        cancelled.1,
        "Cancelled run 01A. Its work is given up. It stops as soon as its host answers.\n"
    );
    let again = call(&["cancel", "01A", "--retry"]);
    assert_eq!(again.0, 3, "{again:?}");
    assert!(again.2.contains("Job already ended."), "{again:?}");
    // Linear is not configured.
    let unasked = call(&["retry", "01A"]);
    assert_eq!(unasked.0, 1, "{unasked:?}");
    assert!(unasked.2.contains("Cannot ask Linear"), "{unasked:?}");
    assert_eq!(service.stop(), 0);
    let store = store::Store::open(dir.path()).unwrap();
    let ended = store.read(|tx| jobs::get(tx, &job.id)).unwrap().unwrap();
    assert_eq!(ended.cancellation.unwrap().by, "owner");
}
