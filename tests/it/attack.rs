//! What strangers may try at the door, and what they get: the documented answer, within bounded memory.

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

/// How long may a head or a body take? The service's own bound, and what a busy machine adds.
const SLOW: Duration = Duration::from_secs(60);

/// A server to which runs report and hosts send webhooks.
async fn start_server_with_webhooks() -> ApiServer {
    let flags = [ALL_FEATURES, &WEBHOOK_SECRET_FLAGS].concat();
    ApiServer::start_with(&flags, Store::in_memory().unwrap()).await
}

fn first_line(told: &str) -> &str {
    told.lines().next().unwrap_or_default()
}

/// Heads beyond any measure are refused, and the next request is answered as ever.
#[tokio::test]
async fn heads_beyond_measure_are_refused() {
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
        let told = send_raw(server.address, head.as_bytes()).await;
        let line = first_line(&told);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status}")),
            "{line} to {:.60}",
            head
        );
    }
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
    server.stop().await.unwrap();
}

/// JSON that is deeper than any stack: refused in the words of each route.
#[tokio::test]
async fn deep_json_is_refused_in_the_words_of_each_route() {
    let server = start_server_with_webhooks().await;
    let running = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&running).await;
    let admin = server.sign_in().await;
    let result = server.run_token(&running, TokenAudience::Result);
    let progress = server.run_token(&running, TokenAudience::Progress);
    let deep = "[".repeat(200_000);
    let nested = format!("{}1{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    let nobody = String::new();
    for (path, token, fault) in [
        ("/runner/result", &result, (400, "invalid_body")),
        ("/runner/progress", &progress, (400, "invalid_body")),
        ("/api/auth", &nobody, (400, "Invalid request body")),
        ("/api/mappings", &admin, (400, "Invalid request body")),
        ("/api/status", &nobody, (400, "Invalid JSON body")),
        ("/api/step-report", &nobody, (400, "Invalid JSON body")),
    ] {
        for body in [&deep, &nested] {
            let told = server.send("POST", path, token, body.clone()).await;
            assert_eq!(told.error(), fault, "{path}");
        }
    }
    let signed = server.request("POST", "/api/repo-host/webhook");
    let signed = signed
        .header("x-github-event", "issue_comment")
        .header("x-github-delivery", "deep")
        .header("x-hub-signature-256", signature(deep.as_bytes()))
        .body(deep.clone());
    let told = crate::api_server::send_checked(signed).await;
    assert_eq!(told.error(), (400, "Invalid JSON payload"));
    server.stop().await.unwrap();
}

/// Who sends a byte now and then is let go, and holds nobody else up meanwhile.
#[tokio::test]
async fn slow_heads_and_bodies_are_let_go() {
    let server = ApiServer::start().await;
    let began = Instant::now();
    let mut head = TcpStream::connect(server.address).await.unwrap();
    head.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n")
        .await
        .unwrap();
    let mut body = TcpStream::connect(server.address).await.unwrap();
    let length = "POST /api/auth HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    body.write_all(length.as_bytes()).await.unwrap();
    let drip = |mut stream: TcpStream| async move {
        let mut told = Vec::new();
        loop {
            let mut chunk = [0; 1024];
            let heard = tokio::time::timeout(Duration::from_millis(500), stream.read(&mut chunk));
            match heard.await {
                Ok(Ok(0) | Err(_)) => return String::from_utf8_lossy(&told).into_owned(),
                Ok(Ok(count)) => told.extend_from_slice(&chunk[..count]),
                // It may be closed already; then the next read says so.
                Err(_) => drop(stream.write_all(b"x").await),
            }
        }
    };
    let (of_head, of_body) = tokio::join!(drip(head), drip(body));
    assert!(began.elapsed() < SLOW, "{:?}", began.elapsed());
    assert!(!of_head.contains("200 OK"), "{of_head}");
    assert!(first_line(&of_body).contains("408"), "{of_body}");
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
    server.stop().await.unwrap();
}

/// Whatever opens one door opens no other.
#[tokio::test]
async fn a_credential_opens_its_own_door_only() {
    let server = ApiServer::start().await;
    let mine = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&mine).await;
    let admin = server.sign_in().await;
    let result = server.run_token(&mine, TokenAudience::Result);
    let progress = server.run_token(&mine, TokenAudience::Progress);
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
        let told = server.send(method, path, token, step.to_string()).await;
        assert_eq!(told.error(), (status, sentence), "{method} {path}");
    }
    // What is stored of a token opens nothing: who reads the store's file cannot sign in with it.
    let stored = admin_token::hash_token(&admin, &Secret::new(ACCESS_CODE));
    let told = server.send("GET", "/api/mappings", &stored, None).await;
    assert_eq!(told.status, 401);
    // Another job's report is not taken for this one's.
    let other = dispatched_job("01B", JobKind::Implementation);
    server.put_job(&other).await;
    let told = server
        .send("POST", "/runner/progress", &progress, step.to_string())
        .await;
    assert_eq!(told.status, 200, "{told:?}");
    let steps = server
        .send("GET", "/api/jobs/01B/steps", &admin, None)
        .await;
    assert_eq!(steps.body["steps"], json!([]));
    assert_eq!(server.job("01B").state, JobState::Dispatched);
    server.stop().await.unwrap();
}

/// Paths lead to what is there and nowhere else, however they are written.
#[tokio::test]
async fn paths_lead_nowhere_else() {
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
        // Of any team: there are no sessions that would get secrets.
        ("/api/mappings/..%2fsecrets/secrets", 503),
        ("/api/why/..%2f..", 404),
        ("/api/global-secrets/..%2f..%2fsecrets.key", 405),
    ] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {admin}\r\nconnection: close\r\n\r\n"
        );
        let told = send_raw(server.address, head.as_bytes()).await;
        let line = first_line(&told);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line} to {path}"
        );
        assert!(
            !told.contains("[package]") && !told.contains("root:"),
            "{path}"
        );
    }
    server.stop().await.unwrap();
}

/// No address in a payload is ever asked: they are words that strangers choose.
#[tokio::test]
async fn no_address_of_a_payload_is_asked() {
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
    let told = server
        .send("POST", "/runner/progress", &progress, step.to_string())
        .await;
    assert_eq!(told.status, 200, "{told:?}");
    let report = json!({"phase": "implementation", "outcome": "success",
        "prUrl": format!("{address}/pull/7"), "comments": [{"body": format!("![x]({address})")}]});
    let told = server
        .send("POST", "/runner/result", &result, report.to_string())
        .await;
    assert_eq!(told.status, 200, "{told:?}");
    for name in ["review", "issue_comment", "merged", "review_comment"] {
        let mut payload = webhooks::payload(name);
        redirect(&mut payload, &address);
        webhooks::send(&server, event_of(name), &payload).await;
    }
    let nobody = tokio::time::timeout(Duration::from_millis(300), trap.accept()).await;
    assert!(nobody.is_err(), "somebody came: {nobody:?}");
    server.stop().await.unwrap();
}

fn event_of(name: &str) -> &'static str {
    match name {
        "review" => "pull_request_review",
        "review_comment" => "pull_request_review_comment",
        "merged" => "pull_request",
        _ => "issue_comment",
    }
}

/// Puts an address in the place of every other.
fn redirect(value: &mut Value, address: &str) {
    match value {
        Value::String(text) if text.starts_with("http") => *text = address.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, address)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| redirect(field, address)),
        _ => {}
    }
}

/// What the process takes of the machine's memory now, in bytes.
fn resident_memory(service: &ServiceProcess) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() << 10
}

const WEBHOOK_SECRET_FLAGS: [&str; 2] = ["--scm-webhook-secret", webhooks::WEBHOOK_SECRET];

/// Anybody may begin to send what the repository host sends, and hold it back: all of it together takes
/// no more memory than was set aside, and small requests pass by.
#[tokio::test]
async fn large_bodies_share_one_room() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &WEBHOOK_SECRET_FLAGS);
    let address = service.address.replace("http://", "");
    let before = resident_memory(&service);
    let piece = vec![b'x'; 20 << 20];
    let mut senders = Vec::new();
    for _ in 0..40 {
        let (address, piece) = (address.clone(), piece.clone());
        senders.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            let head = format!(
                "POST /api/repo-host/webhook HTTP/1.1\r\nhost: a\r\nx-hub-signature-256: sha256={:064}\r\ncontent-length: {}\r\n\r\n",
                0,
                piece.len() + 1
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            // Those that find no room are not read.
            let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&piece)).await;
            stream
        }));
    }
    let mut held = Vec::new();
    for sender in senders {
        held.push(sender.await.unwrap());
    }
    let taken = resident_memory(&service).saturating_sub(before);
    assert!(taken < 160 << 20, "{} MiB for 800 MiB", taken >> 20);
    let small = json!({"zen": "small"}).to_string();
    let told = client_builder()
        .build()
        .unwrap()
        .post(format!("{}/api/repo-host/webhook", service.address))
        .header("x-github-event", "ping")
        .header("x-github-delivery", "small")
        .header("x-hub-signature-256", signature(small.as_bytes()))
        .body(small)
        .send();
    assert_eq!(told.await.unwrap().status(), 200);
    drop(held);
    assert_eq!(service.stop(), 0);
}
