//! Clients that hold connections and bodies open must not block other clients.

use std::time::{Duration, Instant};

use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use serde_json::json;
use store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::idle_connections::raise_descriptor_limit;
use super::{WEBHOOK_SECRET_FLAGS, first_line, start_server_with_webhooks};
use crate::api_server::{ALL_FEATURES, ApiServer, dispatched_job, send_checked};
use crate::process::{ServiceProcess, client_builder};
use crate::webhooks::signature;

/// Deadline of a normal response: shorter than every service timeout, with slack for a busy machine.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(8);

/// Well-formed signature that can only be rejected after reading the body.
const WRONG_SIGNATURE: &str =
    "sha256=0000000000000000000000000000000000000000000000000000000000000000";

const WEBHOOK_PATH: &str = "/api/repo-host/webhook";

fn head(path: &str, signature: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\n{signature}\r\ncontent-length: 26214400\r\n\r\n")
}

/// Opens a connection from a given loopback address.
async fn connect_from(address: &str, to: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(format!("{address}:0").parse().unwrap())
        .unwrap();
    socket.connect(to.parse().unwrap()).await.unwrap()
}

async fn get_root(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut response = vec![0; 1024];
    let read = timeout(RESPONSE_DEADLINE, stream.read(&mut response))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&response[..read]).into_owned()
}

#[tokio::test]
async fn rejects_an_unsigned_webhook_before_its_body() {
    let secrets = [
        "--linear-webhook-secret",
        "a secret of Linear, long enough",
        "--jira-webhook-secret",
        "a secret of Jira, long enough",
    ];
    let flags = [ALL_FEATURES, &WEBHOOK_SECRET_FLAGS, &secrets].concat();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for (path, header) in [
        (WEBHOOK_PATH, "x-hub-signature-256"),
        ("/api/ticketing-a/webhook", "linear-signature"),
        ("/api/ticketing-b/webhook", "x-hub-signature"),
    ] {
        for header_line in [
            "x-nothing: 1".to_owned(),
            format!("{header}: sha256=00"),
            format!("{header}: sha256={}", "g".repeat(64)),
            format!("{header}: sha1={}", "0".repeat(64)),
        ] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = head(path, &header_line);
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut response = Vec::new();
            let read = timeout(RESPONSE_DEADLINE, stream.read_to_end(&mut response)).await;
            assert!(read.is_ok(), "it waits for the body after {header_line}");
            let response = String::from_utf8_lossy(&response).into_owned();
            assert!(first_line(&response).contains("401"), "{response}");
            assert!(
                response.ends_with(r#"{"error":"Invalid signature"}"#),
                "{response}"
            );
        }
    }
    server.stop().await.unwrap();
}

/// A connection closed while its client still sends would be reset, and the answer would be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_still_sends_receives_the_rejection() {
    let server = start_server_with_webhooks().await;
    for _ in 0..20 {
        let hook = server
            .request("POST", WEBHOOK_PATH)
            .body(vec![b' '; 25 << 20]);
        assert_eq!(send_checked(hook).await.status, 401);
    }
    server.stop().await.unwrap();
}

/// Three clients declare the largest webhook body and then stop sending.
#[tokio::test]
async fn serves_others_while_bodies_stall() {
    let server = start_server_with_webhooks().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = head(
            WEBHOOK_PATH,
            &format!("x-hub-signature-256: {WRONG_SIGNATURE}"),
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
        stalled.push(stream);
    }
    // Time for the service to read what was sent: nothing outside of it shows that it has.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let step = json!({"id": "a", "type": "a", "status": "running", "started_at": "t"});
    let report = json!({"step": step, "log": "x".repeat(300_000)}).to_string();
    let response = timeout(
        RESPONSE_DEADLINE,
        server.send("POST", "/runner/progress", &token, report),
    );
    assert_eq!(response.await.expect("a report waits").status, 200);
    let large = json!({"zen": "x".repeat(300_000)}).to_string();
    let hook = server
        .request("POST", WEBHOOK_PATH)
        .header("x-github-event", "ping")
        .header("x-hub-signature-256", signature(large.as_bytes()))
        .body(large);
    let response = timeout(RESPONSE_DEADLINE, send_checked(hook)).await;
    assert_eq!(response.expect("a webhook waits").status, 200);
    drop(stalled);
    server.stop().await.unwrap();
}

/// Opens more connections than the limit, each with a request whose body never arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn accepts_new_clients_while_thousands_of_requests_stall() {
    let connection_count = 3_000.min(raise_descriptor_limit().saturating_sub(2_000));
    assert!(
        connection_count > 1_500,
        "too few file descriptors to show anything"
    );
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    // An idle client that was connected before the flood.
    let mut existing = connect_from("127.0.0.3", &address).await;
    assert!(get_root(&mut existing).await.contains("200 OK"));
    let head = head(
        WEBHOOK_PATH,
        &format!("x-hub-signature-256: {WRONG_SIGNATURE}"),
    );
    let mut flood = Vec::new();
    for number in 0..connection_count {
        let mut stream = connect_from(&format!("127.0.1.{}", 1 + number % 200), &address).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        flood.push(stream);
    }
    let client = client_builder().pool_max_idle_per_host(0).build().unwrap();
    let response = timeout(RESPONSE_DEADLINE, client.get(&service.address).send()).await;
    let response = response.expect("a new client waits").unwrap();
    assert_eq!(response.status(), 200);
    assert!(get_root(&mut existing).await.contains("200 OK"));
    drop(flood);
    assert_eq!(service.stop(), 0);
}

/// Without the delay, a client that reconnects at once would fill the accept queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn keeps_an_evicted_connection_open_for_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    let mut first = connect_from("127.0.0.2", &address).await;
    let started = Instant::now();
    // More connections than one client may have.
    let mut others = Vec::new();
    for _ in 0..300 {
        others.push(connect_from("127.0.0.2", &address).await);
    }
    assert!(get_root(&mut others[299]).await.contains("200 OK"));
    first
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let read = timeout(Duration::from_secs(30), first.read_u8()).await;
    assert!(read.expect("it stays open").is_err(), "it was not evicted");
    assert!(
        started.elapsed() >= Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    drop(others);
    assert_eq!(service.stop(), 0);
}

/// A service started with the usual limit raises it to the number of file descriptors that it needs.
#[test]
fn raises_the_file_descriptor_limit() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", service.pid())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = files.unwrap().split_whitespace().collect();
    let [.., soft, hard, _] = words[..] else {
        panic!("{words:?}");
    };
    let number = |word: &str| word.parse::<u64>().unwrap_or(u64::MAX);
    assert!(number(soft) >= number(hard).min(10_624), "{soft} of {hard}");
    assert_eq!(service.stop(), 0);
}
