//! Endpoints under `/runner/`: error answers, token use and planning context.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::issue::RelatedIssues;
use domain::job::{JobKind, JobState};
use serde_json::{Value, json};
use store::{Store, issue_contexts, steps};

use crate::api_server::{ACCESS_CODE, ApiServer, dispatched_job, send_checked};

const RESULT: &str = "/runner/result";
const PROGRESS: &str = "/runner/progress";
const CONTEXT: &str = "/runner/planning-context";

fn success() -> Value {
    json!({
        "phase": "implementation",
        "outcome": "success",
        "prUrl": "https://github.com/acme/shop/pull/7",
        "comments": [],
    })
}

fn step(id: &str) -> Value {
    json!({"step": {"id": id, "type": "clone", "status": "running", "started_at": "2027-01-15T08:00:00Z"}})
}

/// Copy of a body with one field replaced, or removed if the value is null.
fn with_field(mut body: Value, pointer: &str, value: Value) -> String {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let fields = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), value);
    }
    body.to_string()
}

#[tokio::test]
async fn rejects_an_invalid_result_without_consuming_the_token() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Result);
    let rows = [
        (String::new(), "invalid_body"),
        ("{".into(), "invalid_body"),
        ("null".into(), "invalid_body"),
        ("[]".into(), "invalid_body"),
        ("\"text\"".into(), "invalid_body"),
        ("{}".into(), "invalid_phase"),
        (
            with_field(success(), "/phase", json!("cooking")),
            "invalid_phase",
        ),
        (with_field(success(), "/phase", json!(1)), "invalid_phase"),
        (
            with_field(success(), "/outcome", json!("maybe")),
            "invalid_outcome",
        ),
        (
            with_field(success(), "/outcome", Value::Null),
            "invalid_outcome",
        ),
        (
            with_field(success(), "/comments", Value::Null),
            "invalid_comments",
        ),
        (
            with_field(success(), "/comments", json!({})),
            "invalid_comments",
        ),
        (
            with_field(success(), "/comments", json!(["text"])),
            "invalid_comment_shape",
        ),
        (
            with_field(success(), "/comments", json!([{"body": 1}])),
            "invalid_comment_shape",
        ),
        (
            with_field(success(), "/phase", json!("planning")),
            "phase_mismatch",
        ),
        (
            with_field(success(), "/phase", json!("gap-analysis")),
            "phase_mismatch",
        ),
        (
            with_field(success(), "/prUrl", Value::Null),
            "missing_prUrl",
        ),
        (with_field(success(), "/prUrl", json!("")), "missing_prUrl"),
        (with_field(success(), "/prUrl", json!(7)), "missing_prUrl"),
        (
            with_field(success(), "/prUrl", json!("done")),
            "missing_prUrl",
        ),
        (
            with_field(success(), "/prUrl", json!("https://h/a/b/pull/7/files")),
            "missing_prUrl",
        ),
        (
            with_field(
                success(),
                "/prUrl",
                json!("https://h/) @team [x](http://h/pull/7"),
            ),
            "missing_prUrl",
        ),
        (
            with_field(success(), "/prUrl", json!("javascript:alert(1)/pull/7")),
            "missing_prUrl",
        ),
    ];
    for (body, slug) in rows {
        let response = server.send("POST", RESULT, &token, body.clone()).await;
        assert_eq!(response.error(), (400, slug), "{body}");
    }
    assert!(!server.job("01JOB").result_accepted);

    let response = server
        .send("POST", RESULT, &token, success().to_string())
        .await;
    assert_eq!(response.status, 200);
    assert_eq!(response.body, json!({"acknowledged": true, "warnings": []}));
    assert_eq!(server.job("01JOB").state, JobState::Completed);

    let second = server
        .send("POST", RESULT, &token, success().to_string())
        .await;
    assert_eq!(second.error(), (409, "already_consumed"));
    // The body is validated before the token is consumed.
    let invalid = server.send("POST", RESULT, &token, "{}".to_owned()).await;
    assert_eq!(invalid.error(), (400, "invalid_phase"));
}

#[tokio::test]
async fn warns_about_an_unknown_usage_value() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Result);
    let body = with_field(success(), "/usage", json!("much"));
    let response = server.send("POST", RESULT, &token, body).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.body["warnings"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn accepts_failures_and_plans_without_a_pull_request() {
    let server = ApiServer::start().await;
    let failed = json!({"phase": "implementation", "outcome": "failure", "comments": []});
    let planned =
        json!({"phase": "planning", "outcome": "success", "comments": [{"body": "plan"}]});
    let rows = [
        ("01A", JobKind::Implementation, failed, "failed"),
        ("01B", JobKind::Planning, planned, "completed"),
    ];
    for (id, kind, body, status) in rows {
        let job = dispatched_job(id, kind);
        server.put_job(&job).await;
        let token = server.run_token(&job, TokenAudience::Result);
        let response = server.send("POST", RESULT, &token, body.to_string()).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(server.job(id).state.status(), status);
    }
}

#[tokio::test]
async fn rejects_each_invalid_token_with_its_own_error() {
    let server = ApiServer::start().await;
    let known_job = dispatched_job("01JOB", JobKind::Planning);
    server.put_job(&known_job).await;
    let calls = [
        (
            "POST",
            RESULT,
            TokenAudience::Result,
            TokenAudience::Progress,
        ),
        (
            "POST",
            PROGRESS,
            TokenAudience::Progress,
            TokenAudience::Result,
        ),
        (
            "GET",
            CONTEXT,
            TokenAudience::Progress,
            TokenAudience::Result,
        ),
    ];
    for (method, path, own, other) in calls {
        let good = server.run_token(&known_job, own);
        let (rest, _) = good.rsplit_once('.').unwrap();
        let faults = [
            ("nonsense".to_owned(), "malformed"),
            ("a.b.c".to_owned(), "malformed"),
            (format!("{rest}.AAAA"), "bad_signature"),
            (
                server.run_token_with_ttl(&known_job, own, Duration::ZERO),
                "expired",
            ),
            (server.run_token(&known_job, other), "wrong_audience"),
        ];
        for (token, slug) in faults {
            // The token is checked before the body is read.
            let response = server.send(method, path, &token, None).await;
            assert_eq!(response.error(), (401, slug), "{path}");
            assert_eq!(response.header("www-authenticate"), "Bearer");
        }
        for header in ["", "Basic abc", "Bearer", "Bearer ", "nonsense"] {
            let request = server.request(method, path).header("authorization", header);
            assert_eq!(send_checked(request).await.error(), (401, "missing_bearer"));
        }
        let response = server.send(method, path, "", None).await;
        assert_eq!(response.error(), (401, "missing_bearer"));
    }
}

#[tokio::test]
async fn rejects_a_token_of_an_unknown_run() {
    let server = ApiServer::start().await;
    let unknown = dispatched_job("01NEVER", JobKind::Implementation);
    let result = server.run_token(&unknown, TokenAudience::Result);
    let progress = server.run_token(&unknown, TokenAudience::Progress);
    let response = server.send("POST", RESULT, &result, success().to_string());
    assert_eq!(response.await.error(), (401, "malformed"));
    let response = server.send("POST", PROGRESS, &progress, step("s").to_string());
    assert_eq!(response.await.error(), (404, "job_not_found"));
    let response = server.send("POST", PROGRESS, &progress, "{}".to_owned());
    assert_eq!(response.await.error(), (400, "step_required"));
    let response = server.send("GET", CONTEXT, &progress, None);
    assert_eq!(response.await.error(), (401, "malformed"));
}

#[tokio::test]
async fn rejects_invalid_steps_and_stores_valid_ones() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Progress);
    let rows = [
        (String::new(), "invalid_body"),
        ("[".into(), "invalid_body"),
        ("[]".into(), "invalid_body"),
        ("7".into(), "invalid_body"),
        ("{}".into(), "step_required"),
        (r#"{"step":"clone"}"#.into(), "step_required"),
        (r#"{"step":[]}"#.into(), "step_required"),
        (
            with_field(step("s"), "/step/id", Value::Null),
            "invalid_step_id",
        ),
        (
            with_field(step("s"), "/step/id", json!(1)),
            "invalid_step_id",
        ),
        (
            with_field(step("s"), "/step/started_at", Value::Null),
            "invalid_step_started_at",
        ),
        (
            with_field(step("s"), "/step/status", json!(true)),
            "invalid_step_status",
        ),
        (
            with_field(step("s"), "/step/type", json!({})),
            "invalid_step_type",
        ),
    ];
    for (body, slug) in rows {
        let response = server.send("POST", PROGRESS, &token, body.clone()).await;
        assert_eq!(response.error(), (400, slug), "{body}");
    }
    let mut body = step("s");
    body["step"]["elapsed"] = json!(12);
    body["log"] = json!("line");
    for _ in 0..2 {
        let response = server
            .send("POST", PROGRESS, &token, body.to_string())
            .await;
        assert_eq!(response.status, 200);
        assert_eq!(response.body, json!({"acknowledged": true}));
    }
    let stored = server.store.read(|tx| steps::of_job(tx, &job.id)).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].elapsed_ms, Some(12));
    assert_eq!(server.job("01JOB").state, JobState::Running);
}

#[tokio::test]
async fn accepts_progress_after_the_result() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let result = server.run_token(&job, TokenAudience::Result);
    let progress = server.run_token(&job, TokenAudience::Progress);
    let response = server.send("POST", RESULT, &result, success().to_string());
    assert_eq!(response.await.status, 200);
    let response = server.send("POST", PROGRESS, &progress, step("late").to_string());
    assert_eq!(
        response.await.status,
        200,
        "progress after the result is stored"
    );
    assert_eq!(server.job("01JOB").state, JobState::Completed);
}

#[tokio::test]
async fn accepts_exactly_one_of_fifty_concurrent_results() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Result);
    let posts = (0..50).map(|_| server.send("POST", RESULT, &token, success().to_string()));
    let mut counts = [0, 0];
    for response in futures_util::future::join_all(posts).await {
        match response.status {
            200 => counts[0] += 1,
            _ => {
                assert_eq!(response.error(), (409, "already_consumed"));
                counts[1] += 1;
            }
        }
    }
    assert_eq!(counts, [1, 49]);
}

#[tokio::test]
async fn returns_the_posted_plan_and_related_issues_as_planning_context() {
    let server = ApiServer::start().await;
    let (planning, job) = (
        dispatched_job("01A", JobKind::Planning),
        dispatched_job("01B", JobKind::Implementation),
    );
    for job in [&planning, &job] {
        server.put_job(job).await;
    }
    let token = server.run_token(&job, TokenAudience::Progress);
    let response = server.send("GET", CONTEXT, &token, None).await;
    let empty_context =
        json!({"planningContext": "", "parent": null, "siblings": [], "dependencies": []});
    assert_eq!((response.status, response.body), (200, empty_context));

    let related = RelatedIssues {
        parent: Some("ENG-9: big (Doing)".into()),
        siblings: vec!["ENG-2: b (Todo)".into()],
        dependencies: vec!["blocks ENG-3: c (Todo)".into()],
    };
    let (issue, known_job) = (job.issue.id.clone(), related.clone());
    let store = &server.store;
    store
        .write(move |tx| issue_contexts::put_related(tx, &issue, &known_job))
        .await
        .unwrap();
    let result = server.run_token(&planning, TokenAudience::Result);
    let comments = json!([{"body": "# First"}, {"body": "Second @all"}]);
    let plan = json!({"phase": "planning", "outcome": "success", "comments": comments});
    let response = server.send("POST", RESULT, &result, plan.to_string()).await;
    assert_eq!(response.status, 200);

    // No ticketing system is configured, so the plan comes from the store.
    let response = server.send("GET", CONTEXT, &token, None).await;
    let text = response.body["planningContext"].as_str().unwrap();
    assert!(text.starts_with("The plan for ENG-1"), "{text}");
    assert!(text.find("# First") < text.find("Second @"), "{text}");
    assert_eq!(response.body["parent"], json!(related.parent));
    assert_eq!(response.body["siblings"], json!(related.siblings));
    assert_eq!(response.body["dependencies"], json!(related.dependencies));
}

#[tokio::test]
async fn responds_501_without_a_token_secret() {
    let flags = ["--admin-access-code", ACCESS_CODE];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for (method, path) in [("POST", RESULT), ("POST", PROGRESS), ("GET", CONTEXT)] {
        let response = server.send(method, path, "any", None).await;
        assert_eq!(response.error(), (501, "Runner callback not configured"));
    }
}

#[tokio::test]
async fn rejects_a_large_body_with_and_without_content_length() {
    let server = ApiServer::start().await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Progress);
    let large = vec![b' '; (1 << 20) + 1];
    let request = server.request("POST", PROGRESS).bearer_auth(&token);
    let response = send_checked(request.body(large.clone())).await;
    assert_eq!(response.status, 413);
    assert!(response.body["error"].is_string());

    let mut head = format!(
        "POST {PROGRESS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    .into_bytes();
    for chunk in large.chunks(1 << 16) {
        head.extend(format!("{:x}\r\n", chunk.len()).bytes());
        head.extend(chunk);
        head.extend(b"\r\n");
    }
    head.extend(b"0\r\n\r\n");
    assert!(
        crate::api_server::send_raw(server.address, &head)
            .await
            .starts_with("HTTP/1.1 413")
    );

    let mut fits = step("s").to_string();
    fits.push_str(&" ".repeat((1 << 20) - fits.len()));
    let response = server.send("POST", PROGRESS, &token, fits).await;
    assert_eq!(response.status, 200);
}
