//! Hostile requests get the documented answer within bounded memory.

use std::fs;
use std::time::{Duration, Instant};

use domain::crypto::admin_token;
use domain::crypto::run_token::TokenAudience;
use domain::job::{JobKind, JobState};
use domain::secret::Secret;
use serde_json::{Value, json};
use store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

mod connection_flood;
mod forged_credentials;
mod idle_connections;
mod step_flood;
mod untrusted_text;

use crate::api_server::{
    ACCESS_CODE, ALL_FEATURES, ApiServer, TOKEN_SECRET, dispatched_job, send_raw,
};
use crate::process::{ServiceProcess, client_builder};
use crate::webhooks::{self, signature};

/// Maximum time until a slow head or body is rejected: the service's own limit plus slack for a busy
/// machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a server that accepts run reports and repository webhooks.
async fn start_server_with_webhooks() -> ApiServer {
    let flags = [ALL_FEATURES, &WEBHOOK_SECRET_FLAGS].concat();
    ApiServer::start_with(&flags, Store::in_memory().unwrap()).await
}

fn first_line(response: &str) -> &str {
    response.lines().next().unwrap_or_default()
}

/// Oversized heads are rejected, and the next request is answered normally.
#[tokio::test]
async fn rejects_oversized_and_malformed_heads() {
    let server = ApiServer::start().await;
    let many: String = (0..300).map(|n| format!("x-{n}: y\r\n")).collect();
    let heads = [
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), "431"),
        (
            format!(
                "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
                "y".repeat(1 << 20)
            ),
            "431",
        ),
        (
            format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(100_000)),
            "414",
        ),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n".to_owned(),
            "400",
        ),
        ("\u{1}\u{2}\u{3} / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello"
                .to_owned(),
            "400",
        ),
    ];
    for (head, status) in heads {
        let response = send_raw(server.address, head.as_bytes()).await;
        let line = first_line(&response);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status}")),
            "{line} to {:.60}",
            head
        );
    }
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
    server.stop().await.unwrap();
}

/// JSON nested deeper than any stack is rejected with the documented error of each route.
#[tokio::test]
async fn rejects_deeply_nested_json_with_the_error_of_each_route() {
    let server = start_server_with_webhooks().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let admin = server.sign_in().await;
    let result = server.run_token(&running, TokenAudience::Result);
    let progress = server.run_token(&running, TokenAudience::Progress);
    let deep = "[".repeat(200_000);
    let nested = format!("{}1{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    let no_token = String::new();
    for (path, token, expected) in [
        ("/runner/result", &result, (400, "invalid_body")),
        ("/runner/progress", &progress, (400, "invalid_body")),
        ("/api/auth", &no_token, (400, "Invalid request body")),
        ("/api/mappings", &admin, (400, "Invalid request body")),
        ("/api/status", &no_token, (400, "Invalid JSON body")),
        ("/api/step-report", &no_token, (400, "Invalid JSON body")),
    ] {
        for body in [&deep, &nested] {
            let response = server.send("POST", path, token, body.clone()).await;
            assert_eq!(response.error(), expected, "{path}");
        }
    }
    let signed = server.request("POST", "/api/repo-host/webhook");
    let signed = signed
        .header("x-github-event", "issue_comment")
        .header("x-github-delivery", "deep")
        .header("x-hub-signature-256", signature(deep.as_bytes()))
        .body(deep.clone());
    let response = crate::api_server::send_checked(signed).await;
    assert_eq!(response.error(), (400, "Invalid JSON payload"));
    server.stop().await.unwrap();
}

/// A client that sends single bytes slowly is disconnected and delays no other client.
#[tokio::test]
async fn closes_slow_requests() {
    let server = ApiServer::start().await;
    let started = Instant::now();
    let mut head = TcpStream::connect(server.address).await.unwrap();
    head.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n")
        .await
        .unwrap();
    let mut body = TcpStream::connect(server.address).await.unwrap();
    let length = "POST /api/auth HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    body.write_all(length.as_bytes()).await.unwrap();
    let send_slowly = |mut stream: TcpStream| async move {
        let mut received = Vec::new();
        loop {
            let mut chunk = [0; 1024];
            let read = tokio::time::timeout(Duration::from_millis(500), stream.read(&mut chunk));
            match read.await {
                Ok(Ok(0) | Err(_)) => return String::from_utf8_lossy(&received).into_owned(),
                Ok(Ok(count)) => received.extend_from_slice(&chunk[..count]),
                // The stream may be closed already; the next read reports it.
                Err(_) => drop(stream.write_all(b"x").await),
            }
        }
    };
    let (head_response, body_response) = tokio::join!(send_slowly(head), send_slowly(body));
    assert!(started.elapsed() < READ_TIMEOUT, "{:?}", started.elapsed());
    assert!(!head_response.contains("200 OK"), "{head_response}");
    assert!(
        first_line(&body_response).contains("408"),
        "{body_response}"
    );
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
    server.stop().await.unwrap();
}

/// A credential of one route is rejected on every other route.
#[tokio::test]
async fn accepts_a_credential_only_on_its_own_routes() {
    let server = ApiServer::start().await;
    let own_job = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&own_job).await;
    let admin = server.sign_in().await;
    let result = server.run_token(&own_job, TokenAudience::Result);
    let progress = server.run_token(&own_job, TokenAudience::Progress);
    let step = json!({"step": {"id": "a", "type": "a", "status": "running", "started_at": "t"}});
    let rows: [(&str, &str, &str, u16, &str); 8] = [
        ("POST", "/runner/result", &progress, 401, "wrong_audience"),
        ("POST", "/runner/progress", &result, 401, "wrong_audience"),
        (
            "GET",
            "/runner/planning-context",
            &result,
            401,
            "wrong_audience",
        ),
        ("POST", "/runner/result", &admin, 401, "malformed"),
        ("POST", "/runner/progress", TOKEN_SECRET, 401, "malformed"),
        ("GET", "/api/mappings", &result, 401, "Unauthorized"),
        ("GET", "/api/mappings", &progress, 401, "Unauthorized"),
        ("GET", "/api/events", TOKEN_SECRET, 401, "Unauthorized"),
    ];
    for (method, path, token, status, sentence) in rows {
        let response = server.send(method, path, token, step.to_string()).await;
        assert_eq!(response.error(), (status, sentence), "{method} {path}");
    }
    // The stored token hash does not authenticate, so reading the store is not enough to sign in.
    let stored = admin_token::hash_token(&admin, &Secret::new(ACCESS_CODE));
    let response = server.send("GET", "/api/mappings", &stored, None).await;
    assert_eq!(response.status, 401);
    // A report changes only the job of its token.
    let other = dispatched_job("01B", JobKind::Implementation);
    server.put_job(&other).await;
    let response = server
        .send("POST", "/runner/progress", &progress, step.to_string())
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    let steps = server
        .send("GET", "/api/jobs/01B/steps", &admin, None)
        .await;
    assert_eq!(steps.body["steps"], json!([]));
    assert_eq!(server.job("01B").state, JobState::Dispatched);
    server.stop().await.unwrap();
}

/// Every spelling of a path resolves to a route or to 404, never to another file.
#[tokio::test]
async fn rejects_path_traversal() {
    let server = ApiServer::start().await;
    let admin = server.sign_in().await;
    for (path, status) in [
        ("/admin/assets/../../Cargo.toml", 404),
        ("/admin/assets/%2e%2e/%2e%2e/Cargo.toml", 404),
        ("/admin/assets/..%2f..%2fCargo.toml", 404),
        ("/admin/assets//etc/passwd", 404),
        ("/admin/assets/js/%00main.js", 404),
        ("/api/jobs/..%2f..%2fetc%2fpasswd", 404),
        ("/api/jobs/%2e%2e/patch", 404),
        // For every team: no session hosts are configured, so there are no secrets.
        ("/api/mappings/..%2fsecrets/secrets", 503),
        ("/api/why/..%2f..", 404),
        ("/api/global-secrets/..%2f..%2fsecrets.key", 405),
    ] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {admin}\r\nconnection: close\r\n\r\n"
        );
        let response = send_raw(server.address, head.as_bytes()).await;
        let line = first_line(&response);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line} to {path}"
        );
        assert!(
            !response.contains("[package]") && !response.contains("root:"),
            "{path}"
        );
    }
    server.stop().await.unwrap();
}

/// The service never requests an address from a payload.
#[tokio::test]
async fn never_requests_an_address_from_a_payload() {
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/secret", trap.local_addr().unwrap());
    let server = start_server_with_webhooks().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let (result, progress) = (
        server.run_token(&running, TokenAudience::Result),
        server.run_token(&running, TokenAudience::Progress),
    );
    let step = json!({"step": {"id": "a", "type": "a", "status": "running", "started_at": "t",
        "logs_url": address, "outputs": {"url": address}}});
    let response = server
        .send("POST", "/runner/progress", &progress, step.to_string())
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    let report = json!({"phase": "implementation", "outcome": "success",
        "prUrl": format!("{address}/pull/7"), "comments": [{"body": format!("![x]({address})")}]});
    let response = server
        .send("POST", "/runner/result", &result, report.to_string())
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    for name in ["review", "issue_comment", "merged", "review_comment"] {
        let mut payload = webhooks::payload(name);
        replace_urls(&mut payload, &address);
        webhooks::send(&server, event_name(name), &payload).await;
    }
    let connection = tokio::time::timeout(Duration::from_millis(300), trap.accept()).await;
    assert!(connection.is_err(), "a request arrived: {connection:?}");
    server.stop().await.unwrap();
}

fn event_name(name: &str) -> &'static str {
    match name {
        "review" => "pull_request_review",
        "review_comment" => "pull_request_review_comment",
        "merged" => "pull_request",
        _ => "issue_comment",
    }
}

/// Replaces every URL in a JSON value.
fn replace_urls(value: &mut Value, address: &str) {
    match value {
        Value::String(text) if text.starts_with("http") => *text = address.to_owned(),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_urls(item, address)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| replace_urls(field, address)),
        _ => {}
    }
}

/// Resident memory of the process, in bytes.
fn resident_memory(service: &ServiceProcess) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() << 10
}

const WEBHOOK_SECRET_FLAGS: [&str; 2] = ["--scm-webhook-secret", webhooks::WEBHOOK_SECRET];

/// Unauthenticated clients may start large webhook bodies and hold them back. All of them together take
/// no more than the reserved memory, and small requests are still served.
#[tokio::test]
async fn bounds_the_memory_of_all_large_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    let before = resident_memory(&service);
    let body = vec![b'x'; 20 << 20];
    let mut senders = Vec::new();
    for _ in 0..40 {
        let (address, body) = (address.clone(), body.clone());
        senders.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            let head = format!(
                "POST /api/repo-host/webhook HTTP/1.1\r\nhost: a\r\nx-hub-signature-256: sha256={:064}\r\ncontent-length: {}\r\n\r\n",
                0,
                body.len() + 1
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            // Bodies beyond the memory limit are not read.
            let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&body)).await;
            stream
        }));
    }
    let mut open_streams = Vec::new();
    for sender in senders {
        open_streams.push(sender.await.unwrap());
    }
    let growth = resident_memory(&service).saturating_sub(before);
    assert!(growth < 160 << 20, "{} MiB for 800 MiB", growth >> 20);
    let small = json!({"zen": "small"}).to_string();
    let response = client_builder()
        .build()
        .unwrap()
        .post(format!("{}/api/repo-host/webhook", service.address))
        .header("x-github-event", "ping")
        .header("x-github-delivery", "small")
        .header("x-hub-signature-256", signature(small.as_bytes()))
        .body(small)
        .send();
    assert_eq!(response.await.unwrap().status(), 200);
    drop(open_streams);
    assert_eq!(service.stop(), 0);
}
