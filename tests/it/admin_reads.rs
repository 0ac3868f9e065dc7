//! Read routes of the admin API, and behavior common to all routes.

use std::time::Duration;

use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::IssueKey;
use domain::issue::Phase;
use domain::job::{JobKind, JobState, PullRequestRef, RunHandle, TimeoutReason};
use domain::report::{FailureCode, StepRecord, Usage};
use domain::time::Timestamp;
use engine::maintenance;
use serde_json::{Value, json};
use store::dedup::DedupEntry;
use store::dispatch_breaker::ParkedIssue;
use store::{Store, decisions, dedup, dispatch_breaker, steps};

use crate::api_server::{ALL_FEATURES, ApiServer, CLOCK_START, dispatched_job, send_checked};

/// Signs in and returns the body of a route.
async fn read(server: &ApiServer, path: &str) -> Value {
    let token = server.sign_in().await;
    let response = server.send("GET", path, &token, None).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.body
}

#[tokio::test]
async fn job_view_has_all_fields() {
    let server = ApiServer::start().await;
    let mut planning = dispatched_job("01A", JobKind::Planning);
    planning.state = JobState::Completed;
    let mut shown = dispatched_job("01B", JobKind::Implementation);
    shown.group = "01A".into();
    shown.dispatch_number = 2;
    shown.agent = Some("claude".into());
    shown.model = Some("claude-opus-4-8".into());
    shown.state = JobState::Failed {
        code: Some(FailureCode::NoChanges),
        reason: "Nothing to commit".into(),
    };
    shown.run = Some(RunHandle::Ci {
        id: 77,
        url: "https://ci.test/77".into(),
    });
    shown.pull = PullRequestRef::from_url("https://github.com/acme/shop/pull/7");
    shown.conclusion = Some("failure".into());
    shown.finished_at = Some(CLOCK_START);
    shown.usage = Some(Usage {
        turns: 3,
        input_tokens: 10,
        output_tokens: 5,
        cost_usd: None,
    });
    shown.result_accepted = true;
    server.put_job(&planning).await;
    server.put_job(&shown).await;
    let expected = json!({
        "id": "01B", "dispatchId": "01B", "groupId": "01A", "kind": "implementation",
        "issueId": "issue-1", "issueIdentifier": "ENG-1", "issueTitle": "Make it work",
        "issueUrl": "https://tickets.test/ENG-1", "teamKey": "ENG", "repo": "acme/shop",
        "runner": "ci", "shadow": false, "sessionImage": null, "status": "failed",
        "timeoutReason": null, "conclusion": "failure", "failureCode": "NO_CHANGES",
        "failureReason": "Nothing to commit", "dispatchNumber": 2,
        "attempt": 1, "cancelledBy": null, "agent": "claude", "model": "claude-opus-4-8",
        "planningStatus": "completed", "implementationStatus": "failed",
        "branch": "agent-implement/eng-1", "prUrl": "https://github.com/acme/shop/pull/7",
        "prNumber": 7, "runId": "77", "runUrl": "https://ci.test/77", "machineId": null,
        "reservedAt": "2027-01-15T08:00:00.000Z", "dispatchedAt": "2027-01-15T08:00:00.000Z",
        "startedAt": null, "finishedAt": "2027-01-15T08:00:00.000Z",
        "usage": {"turns": 3, "inputTokens": 10, "outputTokens": 5, "costUsd": null},
        "report": true,
    });
    assert_eq!(read(&server, "/api/jobs/01B").await, expected);
    let log = read(&server, "/api/log").await;
    assert_eq!(log[0], expected);
    assert_eq!(log[1]["id"], "01A");
    assert_eq!(log[1]["implementationStatus"], "failed");
}

#[tokio::test]
async fn timed_out_job_shows_its_reason_and_its_machine() {
    let server = ApiServer::start().await;
    let mut shown = dispatched_job("01A", JobKind::Planning);
    shown.run = Some(RunHandle::Machine {
        id: "m1".into(),
        log_url: None,
    });
    shown.state = JobState::TimedOut {
        reason: TimeoutReason::MachineTimeout,
    };
    server.put_job(&shown).await;
    let view = read(&server, "/api/jobs/01A").await;
    assert_eq!(view["status"], "timed_out");
    assert_eq!(view["timeoutReason"], "machine_timeout");
    assert_eq!(
        (&view["machineId"], &view["runId"]),
        (&json!("m1"), &Value::Null)
    );
}

#[tokio::test]
async fn log_lists_the_latest_500_jobs_newest_first() {
    let server = ApiServer::start().await;
    let jobs: Vec<_> = (0..503)
        .map(|number| dispatched_job(&format!("01{number:04}"), JobKind::Planning))
        .collect();
    futures_util::future::join_all(jobs.iter().map(|job| server.put_job(job))).await;
    let log = read(&server, "/api/log").await;
    let log = log.as_array().unwrap();
    assert_eq!(log.len(), 500);
    assert_eq!(
        (&log[0]["id"], &log[499]["id"]),
        (&json!("010502"), &json!("010003"))
    );
}

#[tokio::test]
async fn steps_are_listed_in_start_order() {
    let server = ApiServer::start().await;
    let run = dispatched_job("01A", JobKind::Planning);
    server.put_job(&run).await;
    for (id, second) in [("a", 2), ("b", 1)] {
        let step = StepRecord {
            id: id.into(),
            kind: "clone".into(),
            status: "passed".into(),
            started_at: format!("2027-01-15T08:00:0{second}Z"),
            ended_at: None,
            elapsed_ms: None,
            parent_step_id: None,
            outputs: None,
            logs_url: None,
        };
        let put = server
            .store
            .write(move |tx| steps::put(tx, &"01A".into(), &step, 1));
        put.await.unwrap();
    }
    let view = read(&server, "/api/jobs/01A/steps").await;
    assert_eq!(view["job"]["id"], "01A");
    assert_eq!(
        view["steps"][0],
        json!({
            "id": "b", "type": "clone", "status": "passed", "started_at": "2027-01-15T08:00:01Z",
            "ended_at": null, "elapsed_ms": null, "parent_step_id": null, "outputs": null,
            "logs_url": null,
        })
    );
    assert_eq!(view["steps"][1]["id"], "a");

    let token = server.sign_in().await;
    for path in ["/api/jobs/01Z", "/api/jobs/01Z/steps"] {
        let response = server.send("GET", path, &token, None).await;
        assert_eq!(response.error(), (404, "job not found"));
    }
}

#[tokio::test]
async fn dedup_entries_are_listed_and_deleted() {
    let server = ApiServer::start().await;
    for id in ["01A", "01B"] {
        let mut entry = DedupEntry {
            issue: dispatched_job(id, JobKind::Planning).issue,
            dispatched_at: CLOCK_START,
        };
        entry.issue.id = id.into();
        entry.issue.key = IssueKey::new(format!("ENG-{id}"));
        let put = server.store.write(move |tx| dedup::put(tx, &entry));
        put.await.unwrap();
    }
    let entries = read(&server, "/api/dedup").await;
    assert_eq!(
        entries[0],
        json!({
            "issueId": "01A", "issueIdentifier": "ENG-01A", "issueTitle": "Make it work",
            "dispatchedAt": "2027-01-15T08:00:00.000Z", "expiresAt": "2027-01-16T08:00:00.000Z",
        })
    );
    let token = server.sign_in().await;
    for path in ["/api/dedup/eng-01a", "/api/dedup/01B"] {
        let response = server.send("DELETE", path, &token, None).await;
        assert_eq!(
            (response.status, response.body),
            (200, json!({"deleted": true}))
        );
        let response = server.send("DELETE", path, &token, None).await;
        assert_eq!(
            (response.status, response.body),
            (404, json!({"deleted": false}))
        );
    }
    assert_eq!(read(&server, "/api/dedup").await, json!([]));
}

#[tokio::test]
async fn expired_dedup_entry_is_not_listed() {
    let entry = DedupEntry {
        issue: dispatched_job("01A", JobKind::Planning).issue,
        dispatched_at: CLOCK_START,
    };
    let server = ApiServer::start().await;
    let stored = entry.clone();
    let put = server.store.write(move |tx| dedup::put(tx, &stored));
    put.await.unwrap();
    assert_eq!(read(&server, "/api/dedup").await[0]["issueId"], "issue-1");
    server.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(read(&server, "/api/dedup").await, json!([]));
    let token = server.sign_in().await;
    let path = "/api/dedup/issue-1";
    let response = server.send("DELETE", path, &token, None).await;
    assert_eq!(
        (response.status, response.body),
        (404, json!({"deleted": false}))
    );
    assert_eq!(server.store.read(dedup::all).unwrap().len(), 1);
    maintenance::run_once(&server.app).await.unwrap();
    assert_eq!(server.store.read(dedup::all).unwrap(), []);

    let mut flags = ALL_FEATURES.to_vec();
    flags.extend(["--dedup-window-hours", "0"]);
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let put = server.store.write(move |tx| dedup::put(tx, &entry));
    put.await.unwrap();
    maintenance::run_once(&server.app).await.unwrap();
    assert_eq!(
        read(&server, "/api/dedup").await[0]["expiresAt"],
        Value::Null
    );
}

#[tokio::test]
async fn why_shows_the_decision_and_its_history() {
    let server = ApiServer::start().await;
    let issue = dispatched_job("01A", JobKind::Planning).issue;
    let decision = |millis, outcome, reason, message: &str| Decision {
        at: Timestamp::from_millis(millis),
        issue_identifier: "ENG-1".into(),
        team_key: "ENG".into(),
        outcome,
        reason,
        message: message.into(),
        phase: Some(Phase::Implementation),
    };
    for recorded in [
        decision(
            1,
            DecisionOutcome::Waiting,
            Some(WaitReason::NoMapping),
            "one",
        ),
        decision(2, DecisionOutcome::Waiting, Some(WaitReason::Paused), "two"),
        decision(3, DecisionOutcome::Dispatched, None, "three"),
    ] {
        let issue = issue.clone();
        let put = server
            .store
            .write(move |tx| decisions::record(tx, &issue, &recorded));
        put.await.unwrap();
    }
    let why = read(&server, "/api/why/eng%2D1").await;
    assert_eq!(why["identifier"], "ENG-1");
    assert_eq!(
        why["decision"],
        json!({
            "at": "1970-01-01T00:00:00.003Z", "issueIdentifier": "ENG-1", "teamKey": "ENG",
            "outcome": "dispatched", "reason": null, "message": "three", "phase": "implementation",
        })
    );
    let history: Vec<&Value> = why["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| &decision["message"])
        .collect();
    assert_eq!(history, ["two", "one"]);
    let token = server.sign_in().await;
    let response = server.send("GET", "/api/why/ENG-404", &token, None).await;
    assert_eq!(response.error(), (404, "issue not found"));
}

#[tokio::test]
async fn lists_parked_issues_and_the_outbox_and_starts_a_poll() {
    let server = ApiServer::start().await;
    let run = dispatched_job("01A", JobKind::Planning);
    let parked_issue = ParkedIssue {
        issue: run.issue.clone(),
        repo: run.repo.clone(),
        phase: Phase::Planning,
        failures: 3,
        last_conclusion: "failure".into(),
        parked_at: CLOCK_START,
    };
    let put = server
        .store
        .write(move |tx| dispatch_breaker::park(tx, &parked_issue));
    put.await.unwrap();
    assert_eq!(
        read(&server, "/api/parked").await,
        json!([{
            "issueId": "issue-1", "issueIdentifier": "ENG-1", "issueTitle": "Make it work",
            "repo": "acme/shop", "phase": "planning", "failures": 3,
            "lastConclusion": "failure", "parkedAt": "2027-01-15T08:00:00.000Z",
        }])
    );
    assert_eq!(
        read(&server, "/api/outbox").await,
        json!({"pending": [], "dead": []})
    );
    let token = server.sign_in().await;
    let response = server.send("POST", "/api/poll", &token, None).await;
    assert_eq!(
        (response.status, response.body),
        (202, json!({"started": true}))
    );
    // `Notify` stores the permit for a task that waits later.
    server.app.live.notifiers.poll.notified().await;
}

#[tokio::test]
async fn root_shows_the_health_of_the_service() {
    let server = ApiServer::start().await;
    server
        .app
        .live
        .heartbeats
        .record_poll(engine::app::PollOutcome::nothing_to_do(CLOCK_START));
    let response = server.send("GET", "/", "", None).await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.body,
        json!({
            "status": "ok", "polls": 1, "lastPollAt": "2027-01-15T08:00:00.000Z",
            "version": env!("CARGO_PKG_VERSION"),
        })
    );
    let head = server.send("HEAD", "/", "", None).await;
    assert_eq!((head.status, head.body), (200, Value::Null));
}

#[tokio::test]
async fn unknown_path_gets_404_and_wrong_method_gets_405() {
    let server = ApiServer::start().await;
    for (method, path) in [
        ("GET", "/nothing"),
        ("POST", "/api/nothing"),
        ("GET", "/api/jobs"),
        ("GET", "/api/jobs/%FF"),
        ("GET", "/api/mappings/ENG/nothing"),
        ("GET", "/runner"),
    ] {
        let response = server.send(method, path, "", None).await;
        assert_eq!(response.error(), (404, "Not found"), "{method} {path}");
    }
    for (method, path, allow) in [
        ("POST", "/", "GET"),
        ("GET", "/runner/result", "POST"),
        ("DELETE", "/runner/progress", "POST"),
        ("POST", "/runner/planning-context", "GET"),
        ("PUT", "/api/auth", "GET, POST"),
        ("GET", "/api/token", "POST"),
        ("PUT", "/api/mappings", "GET, POST"),
        ("PUT", "/api/mappings/ENG", "GET, PATCH, DELETE"),
        ("POST", "/api/log", "GET"),
        ("DELETE", "/api/jobs/01A", "GET"),
        ("POST", "/api/jobs/01A/steps", "GET"),
        ("POST", "/api/dedup", "GET"),
        ("GET", "/api/dedup/x", "DELETE"),
        ("DELETE", "/api/poll", "GET, POST"),
    ] {
        let response = server.send(method, path, "", None).await;
        assert_eq!(
            response.error(),
            (405, "Method not allowed"),
            "{method} {path}"
        );
        assert_eq!(response.header("allow"), allow, "{method} {path}");
    }
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let server = ApiServer::start().await;
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/nothing"),
        ("PUT", "/api/log"),
        ("GET", "/api/log"),
        ("POST", "/runner/result"),
    ] {
        let response = send_checked(server.request(method, path)).await;
        assert!(
            response
                .header("content-security-policy")
                .starts_with("default-src 'self'")
        );
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        assert_eq!(response.header("referrer-policy"), "no-referrer");
        assert_eq!(response.header("x-frame-options"), "DENY");
        assert_eq!(response.header("cache-control"), "no-store");
        assert_eq!(response.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn stopped_server_rejects_connections() {
    let server = ApiServer::start().await;
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
    let (address, client) = (server.address, server.client.clone());
    server.stop().await.unwrap();
    assert!(
        client
            .get(format!("http://{address}/"))
            .send()
            .await
            .is_err()
    );
}
