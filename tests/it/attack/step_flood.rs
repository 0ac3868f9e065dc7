//! A leaked run token: endless steps during the job and after it.

use std::time::{Duration, Instant};

use domain::crypto::run_token::TokenAudience;
use domain::crypto::sha256_hex;
use domain::job::{Job, JobKind, JobState};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, dispatched_job};

/// Maximum stored steps and bytes per job.
const STEPS: usize = 500;
const BYTES: usize = 4 << 20;

const NONCE: &str = "a-nonce-that-was-overheard";

async fn page(server: &ApiServer, token: &str, query: &str) -> Value {
    let path = format!("/api/jobs/01A/steps{query}");
    let response = server.send("GET", &path, token, None).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_the_stored_steps_of_one_job() {
    let server = ApiServer::start().await;
    let running = Job {
        nonce_hash: Some(sha256_hex(NONCE)),
        ..dispatched_job("01A", JobKind::Implementation)
    };
    server.put_job(&running).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let step = |id: &str, outputs: Value| json!({"id": id, "type": "verify", "status": "running", "started_at": "t", "outputs": outputs});
    let report = async |body: Value| {
        let response = server.send("POST", "/runner/progress", &token, body.to_string());
        let response = response.await;
        assert_eq!(
            (response.status, response.body),
            (200, json!({"acknowledged": true}))
        );
    };
    let large = json!("x".repeat(50_000));
    for number in 0..100 {
        report(json!({"step": step(&format!("{number:04}"), large.clone())})).await;
    }
    let admin = server.sign_in().await;
    let full = page(&server, &admin, "").await;
    assert!(full.to_string().len() < BYTES + 100_000, "the store grows");
    let count = |page: &Value| page["steps"].as_array().unwrap().len();
    assert_eq!((count(&full), &full["truncated"]), (100, &json!(true)));
    let dropped = full["dropped"].as_u64().unwrap();
    assert!(dropped > 10, "{dropped}");

    // Through the session endpoint, and after the job has ended.
    for number in 100..600 {
        let body = json!({"nonce": NONCE, "step": step(&format!("{number:04}"), Value::Null)});
        let response = server.send("POST", "/api/step-report", "", body.to_string());
        assert_eq!(response.await.body, json!({"ok": true}));
    }
    let ended = Job {
        state: JobState::Completed,
        ..running.clone()
    };
    server.put_job(&ended).await;
    for number in 600..700 {
        report(json!({"step": step(&format!("{number:04}"), Value::Null)})).await;
    }
    let full = page(&server, &admin, "").await;
    assert!(count(&full) <= STEPS && full.to_string().len() < BYTES + 200_000);
    assert!(full["dropped"].as_u64().unwrap() >= dropped + 200);

    // A known step still gets its final status, within the limit.
    let end = json!({"id": "0003", "type": "verify", "status": "passed", "started_at": "t"});
    report(json!({"step": end})).await;
    let steps_page = page(&server, &admin, "?limit=3&after=0000").await;
    assert_eq!(
        (count(&steps_page), &steps_page["next"]),
        (3, &json!("0003"))
    );
    assert_eq!(steps_page["steps"][2]["status"], "passed");

    let mut seen = Vec::new();
    let mut query = "?limit=200".to_owned();
    loop {
        let steps_page = page(&server, &admin, &query).await;
        let steps = steps_page["steps"].as_array().unwrap();
        seen.extend(steps.iter().map(|step| step["id"].clone()));
        match steps_page["next"].as_str() {
            Some(next) => query = format!("?limit=200&after={next}"),
            None => break,
        }
    }
    let all = full["steps"].as_array().unwrap();
    assert_eq!(seen.len(), all.len());
    assert!(all.iter().map(|step| &step["id"]).eq(&seen));
    for (query, rule) in [
        ("limit=0", "limit must be a whole number from 1 to 500"),
        ("limit=501", "limit must be a whole number from 1 to 500"),
        ("after=none", "after must be the id of a step of this run"),
    ] {
        let path = format!("/api/jobs/01A/steps?{query}");
        let response = server.send("GET", &path, &admin, None).await;
        assert_eq!(response.error(), (400, rule));
    }
    server.stop().await.unwrap();
}

/// Private-key headers without an end: a redaction that searches for an end after each header takes
/// minutes for this in a debug build.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn serves_others_while_redacting_a_hostile_step() {
    let server = ApiServer::start().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let begin = ["-----BEGIN ", "PRIVATE KEY-----\n"].concat();
    let text = begin.repeat(890_000 / begin.len());
    let step = json!({"id": "1", "type": "verify", "status": "running", "started_at": "t", "outputs": text});
    let body = json!({ "step": step }).to_string();
    let started = Instant::now();
    let response = server.send("POST", "/runner/progress", &token, body);
    let health_checks = async {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let sent = Instant::now();
            assert_eq!(server.send("GET", "/", "", None).await.status, 200);
            longest = longest.max(sent.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        longest
    };
    let (response, longest) = tokio::join!(response, health_checks);
    assert_eq!(response.status, 200, "{response:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    server.stop().await.unwrap();
}
