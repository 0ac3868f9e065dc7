//! Session endpoints authenticated by nonce: error answers, status comments and step reports.

use domain::crypto::sha256_hex;
use domain::effect::Effect;
use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind};
use serde_json::{Value, json};
use store::{outbox, steps};

use crate::api_server::{ApiServer, dispatched_job};

const TOKEN: &str = "/api/token";
const STATUS: &str = "/api/status";
const STEP: &str = "/api/step-report";
const NONCE: &str = "a-session-nonce";

/// Job that runs in a local container.
fn session(id: &str, nonce: &str) -> Job {
    Job {
        runner: RunnerKind::Local,
        run: Some(RunHandle::Container { id: "c1".into() }),
        nonce_hash: Some(sha256_hex(nonce)),
        ..dispatched_job(id, JobKind::Implementation)
    }
}

fn ended(job: Job) -> Job {
    Job {
        state: JobState::Completed,
        ..job
    }
}

async fn server() -> ApiServer {
    let server = ApiServer::start().await;
    server.put_job(&session("01JOB", NONCE)).await;
    let ended_job = ended(session("01OVER", "spent"));
    server.put_job(&ended_job).await;
    server
}

/// Ticket comments in the outbox, without their last line.
fn comments(server: &ApiServer) -> Vec<String> {
    let entries = server.store.read(outbox::pending).unwrap();
    let body = |effect| match effect {
        Effect::TicketComment { body, .. } => Some(body),
        _ => None,
    };
    let bodies = entries.into_iter().filter_map(|entry| body(entry.effect));
    let sentence = |body: String| {
        let (sentence, last) = body.rsplit_once("\n\n").unwrap();
        assert!(last.starts_with("15 Jan 08:00 UTC"), "{last}");
        sentence.to_owned()
    };
    bodies.map(sentence).collect()
}

#[tokio::test]
async fn rejects_each_invalid_request_with_its_own_error() {
    let server = server().await;
    let step = json!({"id": "s", "type": "t", "status": "running", "started_at": "now"});
    let with = |fields: Value| {
        let mut body = json!({ "nonce": NONCE });
        let object = body.as_object_mut().unwrap();
        object.extend(fields.as_object().unwrap().clone());
        body.to_string()
    };
    let with_step_field = |name: &str, value: Value| {
        let mut step = step.clone();
        step[name] = value;
        with(json!({ "step": step }))
    };
    let with_nonce = |nonce: &str, rest: Value| {
        let mut body = rest;
        body["nonce"] = json!(nonce);
        body.to_string()
    };
    let text = |text: &str| text.to_owned();
    let rows: Vec<(&str, String, u16, &str)> = vec![
        (TOKEN, text("{"), 500, "Failed to generate token"),
        (TOKEN, text("{}"), 400, "nonce and owner are required"),
        (TOKEN, with(json!({})), 400, "nonce and owner are required"),
        (
            TOKEN,
            text(r#"{"owner":"acme"}"#),
            400,
            "nonce and owner are required",
        ),
        (
            TOKEN,
            with_nonce("wrong", json!({"owner": "acme"})),
            403,
            "Invalid or expired nonce",
        ),
        (
            TOKEN,
            with_nonce("spent", json!({"owner": "acme"})),
            403,
            "Invalid or expired nonce",
        ),
        (TOKEN, with(json!({"owner": "evil"})), 403, "Owner mismatch"),
        // The test server has no repository host configured.
        (
            TOKEN,
            with(json!({"owner": "acme"})),
            500,
            "Failed to generate token",
        ),
        (STATUS, text(""), 400, "Invalid JSON body"),
        (STATUS, text("{"), 400, "Invalid JSON body"),
        (STATUS, text("{}"), 400, "nonce is required"),
        (
            STATUS,
            text(r#"{"nonce":7,"event":"error"}"#),
            400,
            "nonce is required",
        ),
        (STATUS, with(json!({})), 400, "event is required"),
        (STATUS, with(json!({"event": 7})), 400, "event is required"),
        (
            STATUS,
            with(json!({"event": "party"})),
            400,
            "Unknown event type: party",
        ),
        (
            STATUS,
            with_nonce("wrong", json!({"event": "error"})),
            403,
            "Invalid or expired nonce",
        ),
        (
            STATUS,
            with_nonce("spent", json!({"event": "error"})),
            403,
            "Invalid or expired nonce",
        ),
        (STEP, text("["), 400, "Invalid JSON body"),
        (STEP, text("{}"), 400, "nonce is required"),
        (STEP, with(json!({})), 400, "step is required"),
        (
            STEP,
            with(json!({"step": "clone"})),
            400,
            "step is required",
        ),
        (
            STEP,
            with_step_field("id", Value::Null),
            400,
            "step.id is required and must be a string",
        ),
        (
            STEP,
            with_step_field("type", json!(1)),
            400,
            "step.type is required and must be a string",
        ),
        (
            STEP,
            with_step_field("status", json!({})),
            400,
            "step.status is required and must be a string",
        ),
        (
            STEP,
            with_step_field("started_at", json!(2)),
            400,
            "step.started_at is required and must be a string",
        ),
        (
            STEP,
            with_nonce("wrong", json!({ "step": step })),
            403,
            "Invalid or expired nonce",
        ),
        (
            STEP,
            with_nonce("spent", json!({ "step": step })),
            403,
            "Invalid or expired nonce",
        ),
    ];
    for (path, body, status, sentence) in rows {
        let response = server.send("POST", path, "", body.clone()).await;
        assert_eq!(response.error(), (status, sentence), "{path} {body}");
    }
    for path in [TOKEN, STATUS, STEP] {
        let response = server.send("GET", path, "", None).await;
        assert_eq!(response.error(), (405, "Method not allowed"));
    }
    assert!(comments(&server).is_empty());
    assert_eq!(server.job("01JOB").state, JobState::Dispatched);
}

#[tokio::test]
async fn posts_one_comment_per_event_despite_repeats() {
    let server = server().await;
    let url = "https://github.com/acme/shop/pull/7";
    // The comment links to the repository host, not to the reported address.
    let reported_url = "https://evil.example/acme/shop/pull/7";
    let events = [
        json!({"event": "setup_complete"}),
        json!({"event": "implementation_complete", "prNumber": 7, "prUrl": reported_url}),
        json!({"event": "verify_running", "id": "1"}),
        json!({"event": "verify_failed", "id": "2", "summary": "2 tests @all"}),
        json!({"event": "verify_running", "id": "3"}),
        json!({"event": "verify_passed", "id": "4"}),
        json!({"event": "error", "reason": "it broke."}),
    ];
    for mut event in events {
        event["nonce"] = json!(NONCE);
        for _ in 0..2 {
            let response = server.send("POST", STATUS, "", event.to_string()).await;
            assert_eq!(
                (response.status, response.body),
                (200, json!({"ok": true})),
                "{event}"
            );
        }
    }
    assert_eq!(
        comments(&server),
        [
            "Environment ready. Implementation is running...".to_owned(),
            format!("Finished. PR #7 opened: {url}"),
            "Running verification script...".to_owned(),
            "Verification failed: 2 tests @\u{2060}all".to_owned(),
            "Running verification script...".to_owned(),
            "Verification passed".to_owned(),
            "Session failed: it broke. Machine will be cleaned up.".to_owned(),
        ]
    );
    assert_eq!(server.job("01JOB").state, JobState::Running);
    for number in 0..100 {
        let event = json!({"nonce": NONCE, "event": "verify_running", "id": format!("n{number}")});
        let response = server.send("POST", STATUS, "", event.to_string()).await;
        assert_eq!(response.status, 200);
    }
    assert_eq!(
        comments(&server).len(),
        30,
        "comments per ticket are limited"
    );
}

#[tokio::test]
async fn stores_steps_and_posts_no_comment_for_shadow_runs() {
    let server = server().await;
    let step = json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t", "elapsed": 7});
    for nonce in [NONCE, NONCE] {
        let body = json!({"nonce": nonce, "step": step}).to_string();
        let response = server.send("POST", STEP, "", body).await;
        assert_eq!((response.status, response.body), (200, json!({"ok": true})));
    }
    let job = server.job("01JOB");
    assert_eq!(job.state, JobState::Running);
    let stored = server.store.read(|tx| steps::of_job(tx, &job.id)).unwrap();
    assert_eq!((stored.len(), stored[0].elapsed_ms), (1, Some(7)));

    let shadow = Job {
        shadow: true,
        ..session("01SHADOW", "shadow")
    };
    server.put_job(&shadow).await;
    let body = json!({"nonce": "shadow", "event": "setup_complete"}).to_string();
    assert_eq!(server.send("POST", STATUS, "", body).await.status, 200);
    assert!(comments(&server).is_empty());
}
