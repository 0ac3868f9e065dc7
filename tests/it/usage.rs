//! Usage accounting: each run is counted once, in the transaction that ends its job.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::ids::JobId;
use domain::job::{AfterCancel, Job, JobKind, JobState};
use domain::transition::JobEvent;
use domain::usage::MicroUsd;
use engine::job_events::{self, BreakerPolicy};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::mappings;

use crate::api_server::{ApiResponse, ApiServer, dispatched_job};
use crate::test_env::{TestEnv, mapping};

const RESULT: &str = "/runner/result";
const PROGRESS: &str = "/runner/progress";

fn usage_json(turns: u64, cost: f64) -> Value {
    json!({"turns": turns, "inputTokens": 100 * turns, "outputTokens": 10 * turns, "costUsd": cost})
}

fn success(usage: &Value) -> Value {
    json!({"phase": "implementation", "outcome": "success", "comments": [], "usage": usage,
        "prUrl": "https://github.com/acme/shop/pull/7"})
}

fn failure(usage: &Value) -> Value {
    json!({"phase": "implementation", "outcome": "failure", "comments": [], "usage": usage,
        "failureReason": "Reached max turns (50)", "failureCode": "MAX_TURNS_EXHAUSTED"})
}

async fn put_running_job(server: &ApiServer, id: &str, issue: &str) -> Job {
    let mut job = dispatched_job(id, JobKind::Implementation);
    job.issue.id = format!("id of {issue}").as_str().into();
    job.issue.key = issue.into();
    server.put_job(&job).await;
    job
}

async fn report(server: &ApiServer, job: &Job, body: &Value) -> ApiResponse {
    let token = server.run_token(job, TokenAudience::Result);
    server.send("POST", RESULT, &token, body.to_string()).await
}

async fn progress(server: &ApiServer, job: &Job, usage: &Value) {
    let token = server.run_token(job, TokenAudience::Progress);
    let body = json!({"usage": usage, "step": {"id": "implement.1", "type": "implement",
        "status": "passed", "started_at": "2027-01-15T08:00:00Z"}});
    let response = server
        .send("POST", PROGRESS, &token, body.to_string())
        .await;
    assert_eq!(response.status, 200, "{response:?}");
}

async fn apply_event(server: &ApiServer, job: &Job, event: JobEvent) {
    let (id, now): (JobId, _) = (job.id.clone(), server.app.core.now());
    let policy = BreakerPolicy::from_config(&server.app.core.config);
    let done = server
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now).map(drop));
    done.await.unwrap();
}

async fn usage(server: &ApiServer, query: &str) -> Value {
    let token = server.sign_in().await;
    let response = server
        .send("GET", &format!("/api/usage{query}"), &token, None)
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

/// Runs, turns and cost in US dollars of a row.
fn row(row: &Value) -> (u64, u64, f64) {
    let count = |name: &str| row[name].as_u64().unwrap();
    (
        count("runs"),
        count("turns"),
        row["costUsd"].as_f64().unwrap(),
    )
}

#[tokio::test]
async fn agent_and_model_are_stored_as_reported_unless_they_are_no_names() {
    let server = ApiServer::start().await;
    let job = put_running_job(&server, "01A", "ENG-1").await;
    let step = json!({"id": "implement.1", "type": "implement", "status": "passed",
        "started_at": "2027-01-15T08:00:00Z"});
    let token = server.run_token(&job, TokenAudience::Progress);
    let named = async || {
        let job = server.job("01A");
        (job.agent, job.model)
    };
    for (agent, model) in [
        (json!("<b>claude</b>"), json!("m".repeat(161))),
        (json!(7), json!({"name": "x"})),
        (json!("claude code"), json!("")),
        (json!("claude"), json!("m\u{202e}odel")),
        (json!("codex"), json!("claude-opus-4-8[1m]")),
    ] {
        let body = json!({"step": step, "agent": agent, "model": model}).to_string();
        let response = server.send("POST", PROGRESS, &token, body).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    let first = (
        Some("claude".to_owned()),
        Some("claude-opus-4-8[1m]".to_owned()),
    );
    assert_eq!(named().await, first, "the first name counts");
    // The result is the last word of a run.
    let mut body = failure(&usage_json(1, 0.1));
    body["agent"] = json!("codex");
    body["model"] = json!("`rm`");
    let response = report(&server, &job, &body).await;
    assert_eq!(
        response.body["warnings"],
        json!(["Ignored model: invalid value."])
    );
    let last = (
        Some("codex".to_owned()),
        Some("claude-opus-4-8[1m]".to_owned()),
    );
    assert_eq!(named().await, last);
    let body = json!({"step": step, "agent": "gemini", "model": "other"}).to_string();
    assert_eq!(
        server.send("POST", PROGRESS, &token, body).await.status,
        200
    );
    assert_eq!(named().await, last, "a job that has ended does not change");
}

#[tokio::test]
async fn every_run_counts_once_for_any_end() {
    let server = ApiServer::start().await;
    let done = put_running_job(&server, "01A", "ENG-1").await;
    let body = success(&usage_json(4, 0.25));
    assert_eq!(report(&server, &done, &body).await.status, 200);
    assert_eq!(report(&server, &done, &body).await.status, 409);

    let failed = put_running_job(&server, "01B", "ENG-1").await;
    let body = failure(&usage_json(51, 1.5));
    assert_eq!(report(&server, &failed, &body).await.status, 200);

    // Cancelled before its result: the usage from its progress reports counts.
    let killed = put_running_job(&server, "01C", "ENG-2").await;
    progress(&server, &killed, &usage_json(3, 0.1)).await;
    progress(&server, &killed, &usage_json(7, 0.3)).await;
    let by = "an operator".to_owned();
    let then = AfterCancel::Release;
    apply_event(&server, &killed, JobEvent::Cancelled { by, then }).await;

    // Timed out, and its result arrives later: the additional usage counts once.
    let late = put_running_job(&server, "01D", "ENG-2").await;
    progress(&server, &late, &usage_json(5, 0.5)).await;
    server.clock.advance(Duration::from_secs(2 * 60 * 60));
    apply_event(&server, &late, JobEvent::Tick).await;
    assert!(matches!(server.job("01D").state, JobState::TimedOut { .. }));
    let body = failure(&usage_json(6, 0.75));
    assert_eq!(report(&server, &late, &body).await.status, 200);
    assert_eq!(report(&server, &late, &body).await.status, 409);
    assert_eq!(server.job("01D").usage.unwrap().cost_usd, Some(0.75));

    // A shadow run costs money, too.
    let mut shadow = put_running_job(&server, "01E", "ENG-2").await;
    shadow.shadow = true;
    server.put_job(&shadow).await;
    let body = success(&usage_json(2, 0.125));
    assert_eq!(report(&server, &shadow, &body).await.status, 200);

    // Never started: no usage and no run.
    let mut refused = put_running_job(&server, "01F", "ENG-3").await;
    (refused.state, refused.dispatched_at) = (JobState::Reserved, None);
    server.put_job(&refused).await;
    apply_event(&server, &refused, JobEvent::IssueClosed).await;

    let shown = usage(&server, "").await;
    assert_eq!(shown["month"], "2027-01");
    let all = shown["mappings"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{shown}");
    assert_eq!(row(&all[0]), (5, 4 + 51 + 7 + 6 + 2, 2.925));
    assert_eq!(all[0]["inputTokens"], 7_000);
    assert_eq!(all[0]["outputTokens"], 700);
    let issues = shown["issues"].as_array().unwrap();
    let keys: Vec<&str> = issues
        .iter()
        .map(|issue| issue["issueIdentifier"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["ENG-1", "ENG-2"], "highest cost first");
    assert_eq!(row(&issues[0]), (2, 55, 1.75));
    assert_eq!(row(&issues[1]), (3, 15, 1.175));
    assert_eq!(issues[0]["issueUrl"], "https://tickets.test/ENG-1");
    assert_eq!(issues[0]["teamKey"], "ENG");
}

#[tokio::test]
async fn usage_is_reported_per_month_with_the_budget() {
    let server = ApiServer::start().await;
    let limited = domain::mapping::Mapping {
        budget: MicroUsd::from_usd(2.0),
        ..mapping()
    };
    let put = server.store.write(move |tx| mappings::put(tx, &limited));
    put.await.unwrap();
    let empty = usage(&server, "?month=2027-01").await;
    let expected_row = json!({"teamKey": "ENG", "runs": 0, "turns": 0, "inputTokens": 0, "outputTokens": 0,
        "costUsd": 0.0, "budgetUsd": 2.0, "budgetUsedPercent": 0.0});
    assert_eq!(
        empty,
        json!({"month": "2027-01", "mappings": [expected_row], "issues": []})
    );

    let first = put_running_job(&server, "01A", "ENG-1").await;
    report(&server, &first, &success(&usage_json(1, 1.999))).await;
    server.clock.advance(Duration::from_secs(31 * 24 * 60 * 60));
    let mut elsewhere = put_running_job(&server, "01B", "WEB-1").await;
    elsewhere.team = "WEB".into();
    server.put_job(&elsewhere).await;
    report(&server, &elsewhere, &success(&usage_json(1, 3.0))).await;

    let january = usage(&server, "?month=2027-01").await;
    assert_eq!(january["mappings"][0]["budgetUsedPercent"], 99.9);
    assert_eq!(january["issues"].as_array().unwrap().len(), 1);
    let february = usage(&server, "").await;
    assert_eq!(february["month"], "2027-02");
    let teams: Vec<&Value> = february["mappings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["teamKey"])
        .collect();
    assert_eq!(
        teams,
        ["WEB", "ENG"],
        "deleted projects count, highest cost first"
    );
    assert_eq!(february["mappings"][0]["budgetUsd"], Value::Null);
    assert_eq!(february["mappings"][0]["budgetUsedPercent"], Value::Null);

    let token = server.sign_in().await;
    for wrong in [
        "",
        "2027",
        "2027-13",
        "2027-1",
        "now",
        "2027-01-01",
        "%32027-01",
    ] {
        let path = format!("/api/usage?month={wrong}");
        let response = server.send("GET", &path, &token, None).await;
        assert_eq!(response.error(), (400, "month must be YYYY-MM"), "{wrong}");
    }
    assert_eq!(server.send("GET", "/api/usage", "", None).await.status, 401);
    let put = server.send("PUT", "/api/usage", &token, None).await;
    assert_eq!(put.error(), (405, "Method not allowed"));
}

#[tokio::test]
async fn reported_usage_is_bounded() {
    let server = ApiServer::start().await;
    let claims = [
        json!({"turns": u64::MAX, "inputTokens": u64::MAX, "outputTokens": 1, "costUsd": -7.0}),
        json!({"turns": u64::MAX, "inputTokens": 1, "outputTokens": u64::MAX, "costUsd": 1e300}),
        json!({"turns": -1, "costUsd": 5}),
        json!({"turns": 2, "costUsd": null}),
        json!("much"),
    ];
    for (at, claim) in claims.iter().enumerate() {
        let job = put_running_job(&server, &format!("01{at}"), "ENG-1").await;
        assert_eq!(report(&server, &job, &failure(claim)).await.status, 200);
    }
    let shown = usage(&server, "").await;
    let all = &shown["mappings"][0];
    assert_eq!(
        (&all["runs"], &all["turns"]),
        (&json!(5), &json!(2_000_000_000_002_u64))
    );
    assert_eq!(all["costUsd"], Value::Null, "an invalid amount is unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stopped_during_a_pass_reports_its_usage() {
    let env = TestEnv::start().await;
    let steps = [
        ScriptStep::run("echo one"),
        ScriptStep::run("echo two"),
        ScriptStep::Sleep { ms: 600_000 },
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Take long");
    env.wait_until("the agent has run two commands", || {
        let logs: Vec<String> = env
            .repo()
            .runs()
            .iter()
            .map(|run| env.repo().run_log(run.id))
            .collect();
        logs.concat().contains("echo two")
    })
    .await;
    env.vendors.linear().issue("ENG-1").cancel();
    env.wait_until("the run has reported its usage", || {
        env.jobs("ENG-1")[0].result_accepted
    })
    .await;
    let job = env.wait_for_job_end("ENG-1").await;
    let used = job.usage.unwrap();
    assert_eq!((used.turns, used.input_tokens), (2, 2 * 170));
    let shown = env.admin_get("/api/usage").await;
    assert_eq!(shown["issues"][0]["turns"], 2, "{shown}");
    assert_eq!(shown["issues"][0]["runs"], 1);
    env.finish().await;
}
