//! A run's token in the wrong hands: steps without end, during the job and after it.

use std::time::{Duration, Instant};

use domain::crypto::run_token::TokenAudience;
use domain::crypto::sha256_hex;
use domain::job::{Job, JobKind, JobState};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, dispatched_job};

/// What is kept of one job at most, in steps and in bytes.
const STEPS: usize = 500;
const BYTES: usize = 4 << 20;

const NONCE: &str = "a-nonce-that-was-overheard";

async fn page(server: &ApiServer, token: &str, query: &str) -> Value {
    let path = format!("/api/jobs/01A/steps{query}");
    let told = server.send("GET", &path, token, None).await;
    assert_eq!(told.status, 200, "{told:?}");
    told.body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_without_end_take_a_bounded_part_of_store_and_answer() {
    let server = ApiServer::start().await;
    let running = Job {
        nonce_hash: Some(sha256_hex(NONCE)),
        ..dispatched_job("01A", JobKind::Implementation)
    };
    server.put_job(&running).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let step = |id: &str, outputs: Value| json!({"id": id, "type": "verify", "status": "running", "started_at": "t", "outputs": outputs});
    let tell = async |body: Value| {
        let told = server.send("POST", "/runner/progress", &token, body.to_string());
        let told = told.await;
        assert_eq!(
            (told.status, told.body),
            (200, json!({"acknowledged": true}))
        );
    };
    let large = json!("x".repeat(50_000));
    for number in 0..100 {
        tell(json!({"step": step(&format!("{number:04}"), large.clone())})).await;
    }
    let admin = server.sign_in().await;
    let full = page(&server, &admin, "").await;
    assert!(full.to_string().len() < BYTES + 100_000, "the store grows");
    let count = |page: &Value| page["steps"].as_array().unwrap().len();
    assert_eq!((count(&full), &full["truncated"]), (100, &json!(true)));
    let dropped = full["dropped"].as_u64().unwrap();
    assert!(dropped > 10, "{dropped}");

    // By the other door, and when the job is over.
    for number in 100..600 {
        let body = json!({"nonce": NONCE, "step": step(&format!("{number:04}"), Value::Null)});
        let told = server.send("POST", "/api/step-report", "", body.to_string());
        assert_eq!(told.await.body, json!({"ok": true}));
    }
    let ended = Job {
        state: JobState::Completed,
        ..running.clone()
    };
    server.put_job(&ended).await;
    for number in 600..700 {
        tell(json!({"step": step(&format!("{number:04}"), Value::Null)})).await;
    }
    let full = page(&server, &admin, "").await;
    assert!(count(&full) <= STEPS && full.to_string().len() < BYTES + 200_000);
    assert!(full["dropped"].as_u64().unwrap() >= dropped + 200);

    // A step that is known is still told to its end, with what there is room for.
    let end = json!({"id": "0003", "type": "verify", "status": "passed", "started_at": "t"});
    tell(json!({"step": end})).await;
    let shown = page(&server, &admin, "?limit=3&after=0000").await;
    assert_eq!((count(&shown), &shown["next"]), (3, &json!("0003")));
    assert_eq!(shown["steps"][2]["status"], "passed");

    let mut seen = Vec::new();
    let mut query = "?limit=200".to_owned();
    loop {
        let shown = page(&server, &admin, &query).await;
        let steps = shown["steps"].as_array().unwrap();
        seen.extend(steps.iter().map(|step| step["id"].clone()));
        match shown["next"].as_str() {
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
        let told = server.send("GET", &path, &admin, None).await;
        assert_eq!(told.error(), (400, rule));
    }
    server.stop().await.unwrap();
}

/// Keys that begin and never end: a redaction that looks for each end from each beginning takes
/// minutes for this in a debug build.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_step_that_is_hard_to_clean_holds_up_nobody() {
    let server = ApiServer::start().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let begin = ["-----BEGIN ", "PRIVATE KEY-----\n"].concat();
    let text = begin.repeat(890_000 / begin.len());
    let step = json!({"id": "1", "type": "verify", "status": "running", "started_at": "t", "outputs": text});
    let body = json!({ "step": step }).to_string();
    let began = Instant::now();
    let told = server.send("POST", "/runner/progress", &token, body);
    let beside = async {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let asked = Instant::now();
            assert_eq!(server.send("GET", "/", "", None).await.status, 200);
            longest = longest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        longest
    };
    let (told, longest) = tokio::join!(told, beside);
    assert_eq!(told.status, 200, "{told:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.stop().await.unwrap();
}
