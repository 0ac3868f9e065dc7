//! Connections that are opened and do nothing.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::resident_memory;
use crate::process::{ServiceProcess, client_builder};

const IDLE: usize = 10_000;

/// What all of them together may take of the service's memory. A debug build takes half as much again
/// for each.
const TAKEN: usize = 32 << 20;

/// How many descriptors this process may have; it asks for as many as it can get.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Then what there is has to do.
    let _ = setrlimit(Resource::Nofile, raised);
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap())
}

/// Ten thousand connections that say nothing take a bounded part of the memory, keep nobody out, and
/// cut off nobody who is being answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ten_thousand_idle_ones_keep_nobody_out() {
    let count = IDLE.min(raise_descriptor_limit().saturating_sub(2_000));
    assert!(count > 3_000, "too few file descriptors to show anything");
    let dir = tempfile::tempdir().unwrap();
    let code = ["--admin-access-code", crate::api_server::ACCESS_CODE];
    let service = ServiceProcess::start(dir.path(), &code);
    let address = service.address.replace("http://", "");
    // Each comes anew: a connection that a client keeps may be the one that makes place.
    let client = client_builder().pool_max_idle_per_host(0).build().unwrap();
    let asked = |method, path: &str| client.request(method, format!("{}{path}", service.address));
    let signed_in = asked(reqwest::Method::POST, "/api/auth")
        .json(&serde_json::json!({"code": crate::api_server::ACCESS_CODE}))
        .send();
    let token: serde_json::Value = signed_in.await.unwrap().json().await.unwrap();
    let token = token["token"].as_str().unwrap();
    let events = asked(reqwest::Method::GET, "/api/events").bearer_auth(token);
    let mut events = events.send().await.unwrap();
    assert!(events.chunk().await.unwrap().is_some());

    let before = resident_memory(&service);
    let mut idle = Vec::with_capacity(count);
    for number in 0..count {
        idle.push(TcpStream::connect(&address).await.unwrap());
        if number % 1_000 == 0 {
            let told = asked(reqwest::Method::GET, "/").send().await.unwrap();
            assert_eq!(told.status(), 200, "after {number}");
        }
    }
    let told = asked(reqwest::Method::GET, "/").send().await.unwrap();
    assert_eq!(told.status(), 200);
    let taken = resident_memory(&service).saturating_sub(before);
    println!("{count} idle connections take {} KiB", taken >> 10);
    assert!(taken < TAKEN, "{} KiB", taken >> 10);

    // Those that came first have made place for the last, which are there yet.
    assert!(has_ended(&mut idle[0]).await);
    assert!(!has_ended(&mut idle[count - 1]).await);
    // Whoever is being told something still is.
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

/// An answer says how long it is, so that a connection can be used again by the simplest client.
#[tokio::test]
async fn an_answer_tells_its_length() {
    let server = crate::api_server::ApiServer::start().await;
    let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let told = crate::api_server::send_raw(server.address, head.as_bytes()).await;
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{told}");
    server.stop().await.unwrap();
}
