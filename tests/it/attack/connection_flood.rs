//! Strangers that hold connections and bodies, and whom they keep out: nobody.

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

/// Far less than anything is given up after, and more than a busy machine needs.
const SOON: Duration = Duration::from_secs(8);

/// What nobody can tell from a signature without the body.
const SIGNED: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

const HOOK: &str = "/api/repo-host/webhook";

fn head(path: &str, signature: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\n{signature}\r\ncontent-length: 26214400\r\n\r\n")
}

/// A connection from an address of this machine's own.
async fn from(address: &str, to: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(format!("{address}:0").parse().unwrap())
        .unwrap();
    socket.connect(to.parse().unwrap()).await.unwrap()
}

async fn asked(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut told = vec![0; 1024];
    let read = timeout(SOON, stream.read(&mut told))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&told[..read]).into_owned()
}

#[tokio::test]
async fn a_webhook_without_a_signature_is_refused_before_its_body() {
    let secrets = [
        "--linear-webhook-secret",
        "a secret of Linear, long enough",
        "--jira-webhook-secret",
        "a secret of Jira, long enough",
    ];
    let flags = [ALL_FEATURES, &WEBHOOK_SECRET_FLAGS, &secrets].concat();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for (path, header) in [
        (HOOK, "x-hub-signature-256"),
        ("/api/ticketing-a/webhook", "linear-signature"),
        ("/api/ticketing-b/webhook", "x-hub-signature"),
    ] {
        for given in [
            "x-nothing: 1".to_owned(),
            format!("{header}: sha256=00"),
            format!("{header}: sha256={}", "g".repeat(64)),
            format!("{header}: sha1={}", "0".repeat(64)),
        ] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = head(path, &given);
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut told = Vec::new();
            let read = timeout(SOON, stream.read_to_end(&mut told)).await;
            assert!(read.is_ok(), "it waits for the body after {given}");
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(first_line(&told).contains("401"), "{told}");
            assert!(told.ends_with(r#"{"error":"Invalid signature"}"#), "{told}");
        }
    }
    server.stop().await.unwrap();
}

/// A connection that is closed while its client still sends is reset, and the answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_reaches_a_client_that_still_sends() {
    let server = start_server_with_webhooks().await;
    for _ in 0..20 {
        let hook = server.request("POST", HOOK).body(vec![b' '; 25 << 20]);
        assert_eq!(send_checked(hook).await.status, 401);
    }
    server.stop().await.unwrap();
}

/// Three senders of what might be the largest webhook, who then say nothing.
#[tokio::test]
async fn bodies_that_do_not_come_hold_up_nobody() {
    let server = start_server_with_webhooks().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = head(HOOK, &format!("x-hub-signature-256: {SIGNED}"));
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
        silent.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let token = server.run_token(&running, TokenAudience::Progress);
    let step = json!({"id": "a", "type": "a", "status": "running", "started_at": "t"});
    let report = json!({"step": step, "log": "x".repeat(300_000)}).to_string();
    let told = timeout(
        SOON,
        server.send("POST", "/runner/progress", &token, report),
    );
    assert_eq!(told.await.expect("a report waits").status, 200);
    let large = json!({"zen": "x".repeat(300_000)}).to_string();
    let hook = server
        .request("POST", HOOK)
        .header("x-github-event", "ping")
        .header("x-hub-signature-256", signature(large.as_bytes()))
        .body(large);
    let told = timeout(SOON, send_checked(hook)).await;
    assert_eq!(told.expect("a webhook waits").status, 200);
    drop(silent);
    server.stop().await.unwrap();
}

/// As many as there is room for, and more, each with a request under way whose body does not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_that_do_not_end_keep_nobody_out() {
    let held = 3_000.min(raise_descriptor_limit().saturating_sub(2_000));
    assert!(held > 1_500, "too few file descriptors to show anything");
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    // Somebody who was there before, and says nothing meanwhile.
    let mut patient = from("127.0.0.3", &address).await;
    assert!(asked(&mut patient).await.contains("200 OK"));
    let head = head(HOOK, &format!("x-hub-signature-256: {SIGNED}"));
    let mut strangers = Vec::new();
    for number in 0..held {
        let mut stream = from(&format!("127.0.1.{}", 1 + number % 200), &address).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        strangers.push(stream);
    }
    let client = client_builder().pool_max_idle_per_host(0).build().unwrap();
    let told = timeout(SOON, client.get(&service.address).send()).await;
    let told = told.expect("somebody new waits").unwrap();
    assert_eq!(told.status(), 200);
    assert!(asked(&mut patient).await.contains("200 OK"));
    drop(strangers);
    assert_eq!(service.stop(), 0);
}

/// A client that reconnects as soon as it is closed would fill the queue of connections to accept.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_evicted_connection_stays_open_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    let mut first = from("127.0.0.2", &address).await;
    let began = Instant::now();
    // More than one client may have.
    let mut others = Vec::new();
    for _ in 0..300 {
        others.push(from("127.0.0.2", &address).await);
    }
    assert!(asked(&mut others[299]).await.contains("200 OK"));
    first
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let read = timeout(Duration::from_secs(30), first.read_u8()).await;
    assert!(read.expect("it stays open").is_err(), "it was not evicted");
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    drop(others);
    assert_eq!(service.stop(), 0);
}

/// Where a service is started with the usual limit, it asks for the file descriptors that it needs.
#[test]
fn the_limit_of_file_descriptors_is_raised() {
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
