//! `GET /api/events`: what changes is told while it changes, to those who are signed in.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::IssueKey;
use domain::job::{JobKind, JobState};
use domain::report::StepRecord;
use serde_json::{Value, json};
use store::{decisions, steps};

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job};

/// A reader of the stream.
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
        // From here on nothing is missed.
        while !reader.text.contains("\n\n") {
            assert!(reader.more().await);
        }
        reader.text.clear();
        reader
    }

    /// Whether more came, rather than the end.
    async fn more(&mut self) -> bool {
        let chunk = tokio::time::timeout(Duration::from_secs(20), self.response.chunk());
        match chunk.await.unwrap() {
            Ok(Some(bytes)) => {
                self.text.push_str(std::str::from_utf8(&bytes).unwrap());
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// The next event: its name and what it carries.
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
            assert!(self.more().await, "the stream ended");
        }
    }
}

#[tokio::test]
async fn what_changes_is_told_as_it_changes() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;

    let mut shown = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&shown).await;
    let (event, told) = reader.next().await;
    assert_eq!(
        (event.as_str(), &told["id"], &told["status"]),
        ("job", &json!("01A"), &json!("dispatched"))
    );
    assert_eq!(told["implementationStatus"], "dispatched");

    let step = StepRecord::parse(Some(
        json!({"id": "clone", "type": "clone", "status": "running", "started_at": "t"}),
    ));
    let step = step.unwrap();
    let stored = server
        .app
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
    let (issue, decided) = (shown.issue.clone(), decision.clone());
    let stored = server
        .app
        .store
        .write(move |tx| decisions::record(tx, &issue, &decided));
    stored.await.unwrap();
    assert_eq!(
        reader.next().await,
        ("decision".to_owned(), json!(decision))
    );

    server.app.heartbeats.record_poll(CLOCK_START);
    assert_eq!(
        reader.next().await,
        (
            "poll".to_owned(),
            json!({"polls": 1, "lastPollAt": CLOCK_START})
        )
    );

    shown.state = JobState::Completed;
    server.put_job(&shown).await;
    assert_eq!(reader.next().await.1["status"], "completed");
    server.stop().await.unwrap();
}

/// A run's output is shown while it runs, without the secrets of the service.
#[tokio::test]
async fn the_end_of_a_log_is_live_and_redacted() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let mut reader = Reader::open(&server, &token).await;
    let progress = server.run_token(&running, TokenAudience::Progress);
    let step = json!({"id": "clone", "type": "clone", "status": "running", "started_at": "t"});
    let log = format!("one\nsecret {}", crate::api_server::TOKEN_SECRET);
    let body = json!({"step": step, "log": log}).to_string();
    let taken = server
        .send("POST", "/runner/progress", &progress, body)
        .await;
    assert_eq!(taken.status, 200, "{taken:?}");
    while reader.next().await.0 != "step" {}
    let shown = server
        .send("GET", "/api/jobs/01A/steps", &token, None)
        .await;
    let said = shown.body["log"].as_str().unwrap();
    assert!(
        said.starts_with("one\nsecret ") && said.ends_with('\n'),
        "{said}"
    );
    assert!(!said.contains(crate::api_server::TOKEN_SECRET), "{said}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn only_who_is_signed_in_may_listen_and_a_stop_ends_the_stream() {
    let server = ApiServer::start().await;
    for token in ["", "nonsense"] {
        let refused = server.send("GET", "/api/events", token, None).await;
        assert_eq!(refused.error(), (401, "Unauthorized"));
    }
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;
    let began = std::time::Instant::now();
    server.stop().await.unwrap();
    while reader.more().await {}
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "a reader held up the stop"
    );
}

/// The token of a reader is looked at for as long as it listens: nobody listens longer than it lives.
#[tokio::test]
async fn a_token_that_ends_ends_its_stream() {
    let server = ApiServer::start().await;
    let (one, other) = (server.sign_in().await, server.sign_in().await);
    let mut lasting = Reader::open(&server, &other).await;
    let mut leaving = Reader::open(&server, &one).await;
    while !leaving.text.contains("\n\n") {
        assert!(leaving.more().await, "a good token is let listen");
    }
    let left = server.send("POST", "/api/auth/logout", &one, None).await;
    assert_eq!(left.status, 200, "{left:?}");
    while leaving.more().await {}
    assert!(lasting.more().await);
    server.clock.advance(Duration::from_secs(24 * 60 * 60));
    while lasting.more().await {}
    server.stop().await.unwrap();
}

/// More readers than there are seats are told to come back; a seat is free again when its reader
/// leaves.
#[tokio::test]
async fn there_are_so_many_seats() {
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

/// Who does not read costs no memory: the service lets go, and the reader may come again.
#[tokio::test]
async fn a_reader_that_falls_behind_is_let_go() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let mut reader = Reader::open(&server, &token).await;
    let mut chatty = dispatched_job("01A", JobKind::Implementation);
    chatty.conclusion = Some("x".repeat(200 << 10));
    // Far more than sockets and queues hold.
    for n in 0..150 {
        chatty.dispatch_number = n;
        server.put_job(&chatty).await;
    }
    let mut told = 0;
    while reader.more().await {
        told += std::mem::take(&mut reader.text).len();
    }
    assert!(told < 25 << 20, "{told} bytes were kept for it");
    drop(reader);
    let mut again = Reader::open(&server, &token).await;
    chatty.conclusion = None;
    server.put_job(&chatty).await;
    assert_eq!(again.next().await.0, "job");
    server.stop().await.unwrap();
}
