//! `GET /api/events`: live changes for signed-in users.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::IssueKey;
use domain::job::{JobKind, JobState};
use domain::report::StepRecord;
use serde_json::{Value, json};
use store::{decisions, steps};

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job};

/// Reader of the event stream.
struct Reader {
    response: reqwest::Response,
    text: String,
}

impl Reader {
    async fn open(server: &ApiServer, token: &str) -> Self {
        let request = server.request("GET", "/api/events").bearer_auth(token);
        let mut reader = Self {
            response: request.send().await.unwrap(),
            text: String::new(),
        };
        assert_eq!(reader.response.status(), 200);
        assert_eq!(
            reader.response.headers()["content-type"],
            "text/event-stream"
        );
        // The first block marks the start of the stream; later events are not missed.
        while !reader.text.contains("\n\n") {
            assert!(reader.read_chunk().await);
        }
        reader.text.clear();
        reader
    }

    /// Reads a chunk and returns false at the end of the stream.
    async fn read_chunk(&mut self) -> bool {
        let chunk = tokio::time::timeout(Duration::from_secs(20), self.response.chunk());
        match chunk.await.unwrap() {
            Ok(Some(bytes)) => {
                self.text.push_str(std::str::from_utf8(&bytes).unwrap());
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Name and data of the next event.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = block.lines();
                    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                };
                let found = field("event")
                    .map(str::to_owned)
                    .zip(field("data").map(str::to_owned));
                self.text = rest.to_owned();
                if let Some((event, data)) = found {
                    return (event, serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            assert!(self.read_chunk().await, "the stream ended");
        }
    }
}

#[tokio::test]
async fn streams_each_change_as_an_event() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;

    let mut job = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&job).await;
    let (event, data) = reader.next().await;
    assert_eq!(
        (event.as_str(), &data["id"], &data["status"]),
        ("job", &json!("01A"), &json!("dispatched"))
    );
    assert_eq!(data["implementationStatus"], "dispatched");

    let step = StepRecord::parse(Some(
        json!({"id": "clone", "type": "clone", "status": "running", "started_at": "t"}),
    ));
    let step = step.unwrap();
    let stored = server
        .store
        .write(move |tx| steps::put(tx, &"01A".into(), &step, 1));
    stored.await.unwrap();
    assert_eq!(
        reader.next().await,
        ("step".to_owned(), json!({"jobId": "01A"}))
    );

    let decision = Decision {
        at: CLOCK_START,
        issue_identifier: IssueKey::from("ENG-1"),
        team_key: "ENG".into(),
        outcome: DecisionOutcome::Waiting,
        reason: Some(WaitReason::Paused),
        message: "Paused.".to_owned(),
        phase: None,
    };
    let (issue, decided) = (job.issue.clone(), decision.clone());
    let stored = server
        .store
        .write(move |tx| decisions::record(tx, &issue, &decided));
    stored.await.unwrap();
    assert_eq!(
        reader.next().await,
        ("decision".to_owned(), json!(decision))
    );

    server
        .app
        .live
        .heartbeats
        .record_poll(engine::app::PollOutcome::nothing_to_do(CLOCK_START));
    assert_eq!(
        reader.next().await,
        (
            "poll".to_owned(),
            json!({"polls": 1, "lastPollAt": CLOCK_START})
        )
    );

    job.state = JobState::Completed;
    server.put_job(&job).await;
    assert_eq!(reader.next().await.1["status"], "completed");
    server.stop().await.unwrap();
}

/// More changes than the queue of a client has places.
#[tokio::test]
async fn a_commit_of_many_changes_ends_no_stream() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;
    let stored = server.store.write(|tx| {
        for number in 0..100 {
            let id = format!("01A{number:04}");
            store::jobs::put(tx, &dispatched_job(&id, JobKind::Implementation))?;
        }
        Ok(())
    });
    stored.await.unwrap();
    for number in 0..100 {
        assert_eq!(reader.next().await.1["id"], format!("01A{number:04}"));
    }
    server.stop().await.unwrap();
}

/// The log tail of a run is shown while it runs, without the service's secrets.
#[tokio::test]
async fn shows_a_redacted_log_tail_during_the_run() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let mut reader = Reader::open(&server, &token).await;
    let progress = server.run_token(&running, TokenAudience::Progress);
    let step = json!({"id": "clone", "type": "clone", "status": "running", "started_at": "t"});
    let log = format!("one\nsecret {}", crate::api_server::TOKEN_SECRET);
    let body = json!({"step": step, "log": log}).to_string();
    let response = server
        .send("POST", "/runner/progress", &progress, body)
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    while reader.next().await.0 != "step" {}
    let job = server
        .send("GET", "/api/jobs/01A/steps", &token, None)
        .await;
    let log_text = job.body["log"].as_str().unwrap();
    assert!(
        log_text.starts_with("one\nsecret ") && log_text.ends_with('\n'),
        "{log_text}"
    );
    assert!(
        !log_text.contains(crate::api_server::TOKEN_SECRET),
        "{log_text}"
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requires_sign_in_and_ends_streams_on_stop() {
    let server = ApiServer::start().await;
    for token in ["", "nonsense"] {
        let refused = server.send("GET", "/api/events", token, None).await;
        assert_eq!(refused.error(), (401, "Unauthorized"));
    }
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;
    let started = std::time::Instant::now();
    server.stop().await.unwrap();
    while reader.read_chunk().await {}
    assert!(
        started.elapsed() < Duration::from_secs(9),
        "a reader delayed the stop"
    );
}

/// The token of a stream is checked while the stream is open, so a stream never outlives its token.
#[tokio::test]
async fn ends_the_stream_when_its_token_ends() {
    let server = ApiServer::start().await;
    let (one, other) = (server.sign_in().await, server.sign_in().await);
    let mut staying = Reader::open(&server, &other).await;
    let mut leaving = Reader::open(&server, &one).await;
    while !leaving.text.contains("\n\n") {
        assert!(leaving.read_chunk().await, "a valid token may listen");
    }
    let signed_out = server.send("POST", "/api/auth/logout", &one, None).await;
    assert_eq!(signed_out.status, 200, "{signed_out:?}");
    while leaving.read_chunk().await {}
    assert!(staying.read_chunk().await);
    server.clock.advance(Duration::from_secs(24 * 60 * 60));
    while staying.read_chunk().await {}
    server.stop().await.unwrap();
}

/// Streams beyond the limit are rejected with 429; a slot is free again when its reader disconnects.
#[tokio::test]
async fn limits_the_number_of_streams() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut readers = Vec::new();
    for _ in 0..64 {
        readers.push(Reader::open(&server, &token).await);
    }
    let full = server.send("GET", "/api/events", &token, None).await;
    assert_eq!(full.error(), (429, "Too many event streams are open"));
    assert_eq!(full.header("retry-after"), "15");
    drop(readers);
    loop {
        let request = server.request("GET", "/api/events").bearer_auth(&token);
        if request.send().await.unwrap().status() == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await.unwrap();
}

/// A reader that does not read costs no memory: the service disconnects it, and it may reconnect.
#[tokio::test]
async fn disconnects_a_reader_that_falls_behind() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;
    let mut large_job = dispatched_job("01A", JobKind::Implementation);
    large_job.conclusion = Some("x".repeat(200 << 10));
    // Far more than sockets and queues can buffer.
    for n in 0..150 {
        large_job.dispatch_number = n;
        server.put_job(&large_job).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let mut received = 0;
    while reader.read_chunk().await {
        received += std::mem::take(&mut reader.text).len();
    }
    assert!(received < 25 << 20, "{received} bytes were buffered");
    drop(reader);
    let mut second = Reader::open(&server, &token).await;
    large_job.conclusion = None;
    server.put_job(&large_job).await;
    assert_eq!(second.next().await.0, "job");
    server.stop().await.unwrap();
}
