//! Hostile log uploads and readers, and logs of machines. A client with the token of a run may send
//! anything to its log.

use std::io::Write;
use std::time::{Duration, Instant};

use domain::crypto::run_token::TokenAudience;
use domain::job::{JobKind, JobState};
use domain::run_log::parse_line;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use super::{LogOfJob, line, lines_of};
use crate::api_server::{dispatched_job, send_checked};
use crate::test_env::{TestEnv, TestEnvOptions};

/// Maximum duration of one hostile request, on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a body of this announced length, or chunks without an end, until the server answers. Returns the
/// answer and the number of bytes that the server took.
async fn send_endless(log: &LogOfJob, framing: &str) -> (String, usize) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stream = tokio::net::TcpStream::connect(log.server.address).await;
    let (mut reader, mut writer) = stream.unwrap().into_split();
    let token = &log.run_token;
    let head = format!(
        "POST /runner/log HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{framing}\r\n\r\n"
    );
    writer.write_all(head.as_bytes()).await.unwrap();
    let answer = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = reader.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    let block = "x".repeat(64 << 10);
    let block = match framing.contains("chunked") {
        true => format!("{:x}\r\n{block}\r\n", block.len()),
        false => block,
    };
    let mut sent = 0;
    while !answer.is_finished() && writer.write_all(block.as_bytes()).await.is_ok() {
        sent += block.len();
        assert!(sent < 1 << 30, "the server takes everything");
    }
    (answer.await.unwrap(), sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_and_undecodable_uploads_are_refused_early() {
    let log = LogOfJob::start().await;
    for framing in ["content-length: 1073741824", "transfer-encoding: chunked"] {
        let started = Instant::now();
        let (answer, sent) = send_endless(&log, framing).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{framing}: {answer}");
        assert!(sent < 64 << 20, "{framing}: {sent} bytes were taken");
        assert!(started.elapsed() < TIMEOUT, "{framing}");
    }
    // Bodies are not decompressed.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let part = json!({"offset": 0, "text": line("x").repeat(100_000)}).to_string();
    bomb.write_all(part.as_bytes()).unwrap();
    for (encoding, body) in [
        ("gzip", bomb.finish().unwrap()),
        (
            "identity",
            b"{\"offset\":0,\"text\":\"\xff\xfe\\n\"}".to_vec(),
        ),
        ("identity", br#"{"offset":0,"text":"\ud800\n"}"#.to_vec()),
    ] {
        let request = log.server.request("POST", "/runner/log");
        let request = request.bearer_auth(&log.run_token);
        let request = request.header("content-encoding", encoding).body(body);
        let answer = send_checked(request).await;
        assert_eq!(answer.error(), (400, "invalid_body"), "{encoding}");
    }
    assert_eq!(log.get("/api/jobs/01JOB/log").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_and_endless_lines_are_bounded_in_time_and_space() {
    let log = LogOfJob::start().await;
    let mut offset = 0;
    // Each line grows by its time.
    for (what, text) in [
        ("empty lines", "\n".repeat(48 << 10)),
        ("one line", format!("{}\n", "x".repeat((48 << 10) - 1))),
        ("marks", "##[step] x\n".repeat(4_000)),
    ] {
        let started = Instant::now();
        for _ in 0..3 {
            // More than the rate allows was sent.
            log.server.clock.advance(Duration::from_secs(60));
            offset = log.send_part(offset, &text).await;
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "{what}: {:?}",
            started.elapsed()
        );
        let page = log.read("").await;
        assert!(page.text.len() <= (1 << 20) + 100, "{what}");
        assert_eq!(
            page.size - page.start,
            page.text.len() - cut_mark_len(&page.text)
        );
        for line in page.text.lines() {
            assert!(
                line.len() <= 4_200 && parse_line(line).0.is_some(),
                "{what}"
            );
        }
    }
    let tail = log.get("/api/jobs/01JOB/steps").await;
    assert!(tail.body["log"].as_str().unwrap().len() <= 64 << 10);
}

fn cut_mark_len(text: &str) -> usize {
    let first = text.lines().next().unwrap_or_default();
    match parse_line(first).1.starts_with("##[cut]") {
        true => first.len() + 1,
        false => 0,
    }
}

#[tokio::test]
async fn many_tiny_parts_are_limited() {
    let log = LogOfJob::start().await;
    let (mut offset, mut waits) = (0, 0);
    for _ in 0..700 {
        let response = log.send(offset, "x\n").await;
        assert_eq!(response.status, 200);
        offset = response.body["offset"].as_u64().unwrap() as usize;
        waits += usize::from(response.body["retryAfterMs"].as_u64() > Some(0));
    }
    // 2 MiB at once, of which each part counts as 4 KiB.
    assert_eq!((waits, offset), (700 - 512, 2 * 512));
    let text = log.read("").await.text;
    assert_eq!(text.lines().count(), 512);
}

#[tokio::test]
async fn a_run_cannot_forge_times() {
    let log = LogOfJob::start().await;
    log.server.clock.advance(Duration::from_secs(60));
    let sent = "1970-01-01T00:00:00.000Z ##[step] early\n2099-12-31T23:59:59.999Z late\n";
    log.send_part(0, sent).await;
    let arrival = "2027-01-15T08:01:00.000Z";
    let expected = format!("{arrival} ##[step] early\n{arrival} late\n");
    assert_eq!(log.read("").await.text, expected);
    // Lines that waited in the run keep their times.
    log.server.clock.advance(Duration::from_secs(60));
    let plausible = "2027-01-15T08:01:07.000Z a\n2027-01-15T08:01:59.500Z b\n";
    log.send_part(sent.len(), plausible).await;
    assert_eq!(log.read("").await.text, expected + plausible);
}

#[tokio::test]
async fn a_run_that_has_ended_sends_its_last_lines_until_its_token_expires() {
    let log = LogOfJob::start().await;
    let end = log.send_part(0, &line("first")).await;
    let cancelled = log
        .server
        .send("POST", "/api/jobs/01JOB/cancel", &log.admin_token, None)
        .await;
    assert_eq!(cancelled.status, 200);
    let all = log.send_part(end, &line("last")).await;
    assert_eq!(log.read("").await.text, line("first") + &line("last"));
    let job = log.server.job("01JOB");
    assert!(matches!(job.state, JobState::Failed { .. }), "{job:#?}");
    // The token of another run writes another log.
    let other = dispatched_job("01OTHER", JobKind::Implementation);
    log.server.put_job(&other).await;
    let token = log.server.run_token(&other, TokenAudience::Progress);
    let body = json!({"offset": all, "text": line("foreign")}).to_string();
    let sent = log.server.send("POST", "/runner/log", &token, body).await;
    assert_eq!(sent.status, 200);
    assert!(!log.read("").await.text.contains("foreign"));
    log.server.clock.advance(Duration::from_secs(3_600));
    let late = log.send(all, &line("too late")).await;
    assert_eq!(late.error(), (401, "expired"));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_readers_see_whole_lines_while_the_log_grows() {
    let log = LogOfJob::start().await;
    let part = |n: usize| line(&format!("{n} {}", "x".repeat(200))).repeat(100);
    let mut offset = log.send_part(0, &part(0)).await;
    let read = |from: usize| {
        let path = format!("/api/jobs/01JOB/log?offset={from}");
        let request = log.server.request("GET", &path);
        let request = request.bearer_auth(&log.admin_token);
        async move {
            let mut texts = Vec::new();
            for _ in 0..8 {
                let response = request.try_clone().unwrap().send().await.unwrap();
                assert_eq!(response.status(), 200);
                texts.push(response.text().await.unwrap());
            }
            texts
        }
    };
    let readers = futures_util::future::join_all((0..20).map(|_| read(0)));
    let write = async {
        for n in 1..30 {
            offset = log.send_part(offset, &part(n)).await;
        }
    };
    let (all, ()) = tokio::join!(readers, write);
    let whole: String = (0..30).map(part).collect();
    for text in all.iter().flatten() {
        assert!(whole.starts_with(text.as_str()) && text.ends_with('\n'));
    }
    assert_eq!(log.read("").await.text, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_in_machines_and_containers_have_a_log() {
    for mode in ["vm", "local"] {
        let env = TestEnv::with_options(TestEnvOptions {
            session_hosts: true,
            extra_flags: vec![("--runner-mode", mode.to_owned())],
            ..TestEnvOptions::default()
        })
        .await;
        env.create_labelled_issue("ENG-1", "Add the feature");
        let job = env.wait_for_job_end("ENG-1").await;
        assert_eq!(job.state.status(), "completed", "{mode}: {job:#?}");
        env.wait_for_empty_outbox().await;
        // Its machine is gone.
        let lines = lines_of(&env, job.id.as_str()).await;
        for step in ["clone", "implement.1", "push"] {
            let mark = format!("##[step] {step}");
            assert!(lines.contains(&mark), "{mode} {step}: {lines:#?}");
        }
        assert!(lines.iter().any(|line| line == "Run succeeded"), "{mode}");
        let whole = lines.join("\n");
        assert!(!whole.contains("sk-ant-canary-of-the-model"), "{mode}");
        env.finish().await;
    }
}
