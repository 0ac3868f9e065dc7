//! Guessed credentials and modified valid ones.

use domain::crypto::run_token::TokenAudience;
use domain::crypto::sha256_hex;
use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, dispatched_job};

const NONCE: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

fn session() -> Job {
    Job {
        runner: RunnerKind::Local,
        run: Some(RunHandle::Container { id: "c1".into() }),
        nonce_hash: Some(sha256_hex(NONCE)),
        ..dispatched_job("01S", JobKind::Implementation)
    }
}

/// A nearly correct nonce or the stored hash is rejected. All guesses get the same answer, and the job
/// does not change.
#[tokio::test]
async fn rejects_guessed_nonces() {
    let server = ApiServer::start().await;
    server.put_job(&session()).await;
    let mut guesses = vec![
        sha256_hex(NONCE),
        NONCE.to_uppercase(),
        format!("{NONCE} "),
        format!("{NONCE}\0"),
        NONCE[1..].to_owned(),
        "01S".to_owned(),
        "%".to_owned(),
        "x".repeat(10_000),
    ];
    for at in 0..NONCE.len() {
        let mut guess = NONCE.to_owned().into_bytes();
        guess[at] ^= 1;
        guesses.push(String::from_utf8(guess).unwrap());
    }
    for guess in &guesses {
        for (path, body) in [
            ("/api/token", json!({"owner": "acme"})),
            ("/api/status", json!({"event": "error", "message": "gone"})),
            ("/api/step-report", json!({"step": step()})),
        ] {
            let mut body = body;
            body["nonce"] = json!(guess);
            let response = server.send("POST", path, "", body.to_string()).await;
            assert_eq!(
                response.error(),
                (403, "Invalid or expired nonce"),
                "{path} {guess:.40}"
            );
        }
    }
    assert_eq!(server.job("01S").state, JobState::Dispatched);
    let admin = server.sign_in().await;
    let steps = server
        .send("GET", "/api/jobs/01S/steps", &admin, None)
        .await;
    assert_eq!(steps.body["steps"], json!([]));
    server.stop().await.unwrap();
}

/// A run token with any single character changed is rejected.
#[tokio::test]
async fn rejects_every_modified_run_token() {
    let server = ApiServer::start().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let good = server.run_token(&running, TokenAudience::Progress);
    let report = json!({ "step": step() }).to_string();
    let post = |token: String| {
        let (server, report) = (&server, report.clone());
        async move {
            server
                .send("POST", "/runner/progress", &token, report)
                .await
                .status
        }
    };
    for at in 0..good.len() {
        let mut changed = good.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(post(changed).await, 401, "changed at {at}");
    }
    // The last character of each part carries unused bits, which must be zero.
    let last_characters = good.char_indices().filter(|(at, _)| {
        let next = good[at + 1..].chars().next();
        next.is_none_or(|next| next == '.')
    });
    for (at, _) in last_characters {
        for other in ('A'..='Z').chain('a'..='z').chain('0'..='9') {
            let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
            let status = post(changed.clone()).await;
            assert_eq!(status, if changed == good { 200 } else { 401 }, "{other}");
        }
    }
    assert_eq!(post(good).await, 200);
    server.stop().await.unwrap();
}

fn step() -> Value {
    json!({"id": "a", "type": "a", "status": "running", "started_at": "t"})
}
