//! Socket of runs: what it offers, to whom, and what a hostile run can do with it.

use std::path::Path;
use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use domain::report::RunPhase;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::api_server::{ACCESS_CODE, dispatched_job};
use crate::process::{ServiceProcess, client_builder};
use crate::test_env::{TestEnv, TestEnvOptions};

/// Sends a request to the socket of runs. Returns status and body.
async fn socket_request(
    data_dir: &Path,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> (u16, Value) {
    let socket = data_dir.join("run-socket/service.sock");
    let client = client_builder().unix_socket(socket).build().unwrap();
    let request = client.request(method, format!("http://service{path}"));
    let request = token
        .into_iter()
        .fold(request.json(body), |request, token| {
            request.bearer_auth(token)
        });
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or_default())
}

async fn env() -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        omitted_flags: &["--runner-callback-base-url", "--runner-token-secret"],
        ..TestEnvOptions::default()
    })
    .await
}

/// Stores a running job and returns a valid token of it.
async fn job_token(env: &TestEnv, id: &str, audience: TokenAudience) -> String {
    let job = dispatched_job(id, JobKind::Implementation);
    let (id, now) = (job.id.clone(), env.app.core.now());
    let put = env.store.write(move |tx| store::jobs::put(tx, &job));
    put.await.unwrap();
    let expires = now + Duration::from_secs(3600);
    let phase = RunPhase::Implementation;
    let token = env
        .app
        .secrets
        .run_tokens
        .issue(&id, audience, phase, now, expires);
    token.expose().to_owned()
}

fn step() -> Value {
    json!({"step": {"id": "clone", "type": "clone", "status": "passed", "started_at": "2027-01-15T08:00:00Z"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn derived_tokens_count_on_the_socket_and_not_on_the_network() {
    let env = env().await;
    let token = job_token(&env, "01SOCKET", TokenAudience::Progress).await;
    let data = env.dir().join("data");
    let path = "/runner/progress";
    let post = async |token| socket_request(&data, Method::POST, path, token, &step()).await;
    assert_eq!(post(Some(&token)).await.0, 200);
    assert_eq!(post(None).await.0, 401);
    assert_eq!(post(Some("a.b.c")).await.0, 401);
    let stored = env
        .store
        .read(|tx| store::steps::of_job(tx, &"01SOCKET".into()));
    assert_eq!(stored.unwrap().len(), 1);

    let url = format!("{}{path}", env.address);
    let request = reqwest::Client::new().post(url).bearer_auth(&token);
    let response = request.json(&step()).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 501, "as without callbacks");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_offers_no_other_route() {
    let env = env().await;
    let data = env.dir().join("data");
    let token = env.sign_in().await;
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/admin"),
        (Method::GET, "/metrics"),
        (Method::GET, "/api/mappings"),
        (Method::GET, "/api/backup"),
        (Method::GET, "/api/openapi.json"),
        (Method::GET, "/api/events"),
        (Method::POST, "/api/auth"),
        (Method::POST, "/api/repo-host/webhook"),
        (Method::POST, "/api/mappings"),
    ] {
        for token in [None, Some(token.as_str())] {
            let body = json!({"code": ACCESS_CODE});
            let (status, _) = socket_request(&data, method.clone(), path, token, &body).await;
            assert_eq!(status, 404, "{method} {path}");
        }
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_stops_neither_the_network_nor_other_runs() {
    let env = env().await;
    let token = job_token(&env, "01SOCKET", TokenAudience::Progress).await;
    let data = env.dir().join("data");
    let socket = data.join("run-socket/service.sock");
    let mut flood = Vec::new();
    for number in 0..1_000 {
        if let Ok(mut stream) = UnixStream::connect(&socket).await {
            // Half of them send the beginning of a request and then nothing.
            if number % 2 == 0 {
                let _ = stream
                    .write_all(b"POST /runner/log HTTP/1.1\r\nHost: x\r\n")
                    .await;
            }
            flood.push(stream);
        }
    }
    let body = step();
    let post = socket_request(&data, Method::POST, "/runner/progress", Some(&token), &body);
    let (status, _) = tokio::time::timeout(Duration::from_secs(10), post)
        .await
        .unwrap();
    assert_eq!(status, 200, "another run reports");
    let front = reqwest::get(format!("{}/", env.address)).await.unwrap();
    assert!(front.status().is_success(), "the network is served");
    let mut open = 0;
    for stream in &mut flood {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut byte)).await;
        open += usize::from(read.is_err());
    }
    // Connections, those that are closing, and the tarpit.
    assert!(open <= 128 + 64 + 128, "{open} connections are open");
    env.stop().await;
}

#[tokio::test]
async fn the_service_replaces_the_socket_and_keeps_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    ServiceProcess::start(dir.path(), &[]).kill();
    let folder = dir.path().join("run-socket");
    let opened = std::fs::File::open(&folder).unwrap();
    let service = ServiceProcess::start(dir.path(), &[]);
    let status = socket_request(dir.path(), Method::GET, "/", None, &json!({}))
        .await
        .0;
    assert_eq!(status, 404);
    // A container that mounted the folder sees the new socket.
    use std::os::fd::AsRawFd;
    let mounted = format!("/proc/self/fd/{}/service.sock", opened.as_raw_fd());
    assert!(UnixStream::connect(mounted).await.is_ok());
    assert_eq!(service.stop(), 0);
    assert!(!folder.join("service.sock").exists() && folder.exists());
}
