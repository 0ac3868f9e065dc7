//! What sessions ask and tell with their nonce: every row of the spec's tables, and one comment an
//! event.

use domain::crypto::sha256_hex;
use domain::effect::Effect;
use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind};
use serde_json::{Value, json};
use store::{outbox, steps};

use crate::api_server::{ApiServer, dispatched_job};

const TOKEN: &str = "/api/token";
const STATUS: &str = "/api/status";
const STEP: &str = "/api/step-report";
const NONCE: &str = "a-nonce-that-nobody-knows";

/// A session's job.
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
    let over = ended(session("01OVER", "spent"));
    server.put_job(&over).await;
    server
}

/// The comments that are owed, without their last line.
fn comments(server: &ApiServer) -> Vec<String> {
    let owed = server.app.store.read(outbox::pending).unwrap();
    let body = |effect| match effect {
        Effect::TicketComment { body, .. } => Some(body),
        _ => None,
    };
    let bodies = owed.into_iter().filter_map(|errand| body(errand.effect));
    let sentence = |body: String| {
        let (sentence, last) = body.rsplit_once("\n\n").unwrap();
        assert!(last.starts_with("2027-01-15T08:00:00.000Z"), "{last}");
        sentence.to_owned()
    };
    bodies.map(sentence).collect()
}

#[tokio::test]
async fn every_bad_request_is_told_apart() {
    let server = server().await;
    let step = json!({"id": "s", "type": "t", "status": "running", "started_at": "now"});
    let with = |fields: Value| {
        let mut body = json!({ "nonce": NONCE });
        let all = body.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        body.to_string()
    };
    let without = |name: &str, value: Value| {
        let mut step = step.clone();
        step[name] = value;
        with(json!({ "step": step }))
    };
    let unknown = |nonce: &str, rest: Value| {
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
            unknown("wrong", json!({"owner": "acme"})),
            403,
            "Invalid or expired nonce",
        ),
        (
            TOKEN,
            unknown("spent", json!({"owner": "acme"})),
            403,
            "Invalid or expired nonce",
        ),
        (TOKEN, with(json!({"owner": "evil"})), 403, "Owner mismatch"),
        // No repository host is configured here.
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
            unknown("wrong", json!({"event": "error"})),
            403,
            "Invalid or expired nonce",
        ),
        (
            STATUS,
            unknown("spent", json!({"event": "error"})),
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
            without("id", Value::Null),
            400,
            "step.id is required and must be a string",
        ),
        (
            STEP,
            without("type", json!(1)),
            400,
            "step.type is required and must be a string",
        ),
        (
            STEP,
            without("status", json!({})),
            400,
            "step.status is required and must be a string",
        ),
        (
            STEP,
            without("started_at", json!(2)),
            400,
            "step.started_at is required and must be a string",
        ),
        (
            STEP,
            unknown("wrong", json!({ "step": step })),
            403,
            "Invalid or expired nonce",
        ),
        (
            STEP,
            unknown("spent", json!({ "step": step })),
            403,
            "Invalid or expired nonce",
        ),
    ];
    for (path, body, status, sentence) in rows {
        let told = server.send("POST", path, "", body.clone()).await;
        assert_eq!(told.error(), (status, sentence), "{path} {body}");
    }
    for path in [TOKEN, STATUS, STEP] {
        let told = server.send("GET", path, "", None).await;
        assert_eq!(told.error(), (405, "Method not allowed"));
    }
    assert!(comments(&server).is_empty());
    assert_eq!(server.job("01JOB").state, JobState::Dispatched);
}

#[tokio::test]
async fn an_event_is_one_comment_however_often_it_is_told() {
    let server = server().await;
    let url = "https://github.com/acme/shop/pull/7";
    // Whatever address it tells, the one on the ticket is the host's own.
    let told = "https://evil.example/acme/shop/pull/7";
    let events = [
        json!({"event": "setup_complete"}),
        json!({"event": "implementation_complete", "prNumber": 7, "prUrl": told}),
        json!({"event": "verify_running", "id": "1"}),
        json!({"event": "verify_failed", "id": "2", "summary": "2 tests @all"}),
        json!({"event": "verify_running", "id": "3"}),
        json!({"event": "verify_passed", "id": "4"}),
        json!({"event": "error", "reason": "it broke."}),
    ];
    for mut event in events {
        event["nonce"] = json!(NONCE);
        for _ in 0..2 {
            let told = server.send("POST", STATUS, "", event.to_string()).await;
            assert_eq!(
                (told.status, told.body),
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
        let many = json!({"nonce": NONCE, "event": "verify_running", "id": format!("n{number}")});
        let told = server.send("POST", STATUS, "", many.to_string()).await;
        assert_eq!(told.status, 200);
    }
    assert_eq!(comments(&server).len(), 30, "nobody floods a ticket");
}

#[tokio::test]
async fn a_step_is_kept_as_a_progress_report_is_and_a_shadow_says_nothing() {
    let server = server().await;
    let step = json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t", "elapsed": 7});
    for nonce in [NONCE, NONCE] {
        let body = json!({"nonce": nonce, "step": step}).to_string();
        let told = server.send("POST", STEP, "", body).await;
        assert_eq!((told.status, told.body), (200, json!({"ok": true})));
    }
    let job = server.job("01JOB");
    assert_eq!(job.state, JobState::Running);
    let kept = server
        .app
        .store
        .read(|tx| steps::of_job(tx, &job.id))
        .unwrap();
    assert_eq!((kept.len(), kept[0].elapsed_ms), (1, Some(7)));

    let shadow = Job {
        shadow: true,
        ..session("01SHADOW", "shadow")
    };
    server.put_job(&shadow).await;
    let body = json!({"nonce": "shadow", "event": "setup_complete"}).to_string();
    assert_eq!(server.send("POST", STATUS, "", body).await.status, 200);
    assert!(comments(&server).is_empty());
}
