//! Idle connections.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::resident_memory;
use crate::process::{ServiceProcess, client_builder};

const IDLE: usize = 10_000;

/// Maximum memory growth for all idle connections. A debug build needs half as much again per
/// connection.
const MAX_MEMORY_GROWTH: usize = 32 << 20;

/// Raises the file descriptor limit of this process to its maximum and returns it.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If this fails, the current limit applies.
    let _ = setrlimit(Resource::Nofile, raised);
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap())
}

/// Ten thousand idle connections use bounded memory, block no new client, and interrupt no open
/// response.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn accepts_new_clients_beside_ten_thousand_idle_connections() {
    let count = IDLE.min(raise_descriptor_limit().saturating_sub(2_000));
    assert!(count > 3_000, "too few file descriptors to show anything");
    let dir = tempfile::tempdir().unwrap();
    let code = ["--admin-access-code", crate::api_server::ACCESS_CODE];
    let service = ServiceProcess::start(dir.path(), &code);
    let address = service.address.replace("http://", "");
    // Each request uses a new connection, because a kept one may be evicted.
    let client = client_builder().pool_max_idle_per_host(0).build().unwrap();
    let request = |method, path: &str| client.request(method, format!("{}{path}", service.address));
    let signed_in = request(reqwest::Method::POST, "/api/auth")
        .json(&serde_json::json!({"code": crate::api_server::ACCESS_CODE}))
        .send();
    let token: serde_json::Value = signed_in.await.unwrap().json().await.unwrap();
    let token = token["token"].as_str().unwrap();
    let events = request(reqwest::Method::GET, "/api/events").bearer_auth(token);
    let mut events = events.send().await.unwrap();
    assert!(events.chunk().await.unwrap().is_some());

    let before = resident_memory(&service);
    let mut idle = Vec::with_capacity(count);
    for number in 0..count {
        idle.push(TcpStream::connect(&address).await.unwrap());
        if number % 1_000 == 0 {
            let response = request(reqwest::Method::GET, "/").send().await.unwrap();
            assert_eq!(response.status(), 200, "after {number}");
        }
    }
    let response = request(reqwest::Method::GET, "/").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let growth = resident_memory(&service).saturating_sub(before);
    println!("{count} idle connections take {} KiB", growth >> 10);
    assert!(growth < MAX_MEMORY_GROWTH, "{} KiB", growth >> 10);

    // The oldest connections are evicted, and the newest are still open.
    assert!(has_ended(&mut idle[0]).await);
    assert!(!has_ended(&mut idle[count - 1]).await);
    // The open event stream still works.
    let more = tokio::time::timeout(Duration::from_millis(200), events.chunk()).await;
    assert!(matches!(more, Err(_) | Ok(Ok(Some(_)))), "{more:?}");
    drop(idle);
    assert_eq!(service.stop(), 0);
}

async fn has_ended(stream: &mut TcpStream) -> bool {
    // An evicted connection stays open for four seconds.
    let read = stream.read_u8();
    tokio::time::timeout(Duration::from_secs(6), read)
        .await
        .is_ok()
}

/// A response has a content length, so that the simplest client can reuse the connection.
#[tokio::test]
async fn response_has_a_content_length() {
    let server = crate::api_server::ApiServer::start().await;
    let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let response = crate::api_server::send_raw(server.address, head.as_bytes()).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{response}");
    server.stop().await.unwrap();
}
