//! The real binary under a service manager: notifications of start, watchdog, and stop; exit codes; and
//! outbound requests through a proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixDatagram};
use tokio::process::{Child, Command};

use crate::api_server::ACCESS_CODE;
use crate::process::client_builder;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// Maximum duration of one wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts the service on a free port, with only these variables in its environment.
async fn serve(dir: &Path, variables: &[(&str, &str)]) -> (Child, SocketAddr) {
    let mut service = Command::new(PROGRAM)
        .arg("serve")
        .env_clear()
        .env("PORT", "0")
        .env("LOG_FORMAT", "json")
        .env("DATA_DIR", dir.join("data"))
        .envs(variables.iter().copied())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let address = loop {
        let line = with_timeout(log.next_line())
            .await
            .unwrap()
            .expect("the service exited");
        if let Some(address) = address_in(&line) {
            break address;
        }
    };
    // A full pipe would block the service.
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    (service, address)
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    fields["address"].as_str()?.parse().ok()
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("timeout")
}

async fn notification(manager: &UnixDatagram) -> String {
    let mut message = [0; 1024];
    let length = with_timeout(manager.recv(&mut message)).await.unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn notifies_the_service_manager_of_start_watchdog_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let variables = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "900000"),
    ];
    let (mut service, address) = serve(dir.path(), &variables).await;
    assert_eq!(notification(&manager).await, "READY=1\nSTATUS=Started.");
    // The service accepts connections as soon as it reports that it is ready.
    let health = client_builder()
        .build()
        .unwrap()
        .get(format!("http://{address}/"));
    assert_eq!(health.send().await.unwrap().status(), 200);
    for _ in 0..3 {
        let message = notification(&manager).await;
        let status = "WATCHDOG=1\nSTATUS=0 runs under way, 0 labelled tickets, 0 pending updates, ";
        assert!(message.starts_with(status), "{message}");
    }
    let pid = Pid::from_raw(service.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    while notification(&manager).await != "STOPPING=1\nSTATUS=Stopping." {}
    assert!(with_timeout(service.wait()).await.unwrap().success());
}

#[tokio::test]
async fn reaches_vendors_through_the_proxy_of_the_environment() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("us:proxy-word@{}", proxy.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (_service, address) = serve(
        dir.path(),
        &[
            ("HTTP_PROXY", &through),
            ("ADMIN_ACCESS_CODE", ACCESS_CODE),
            ("LINEAR_API_URL", "http://linear.invalid"),
            ("ALLOW_PLAIN_HTTP", "true"),
            ("LINEAR_API_KEY", "lin_api_key"),
        ],
    )
    .await;
    let client = client_builder().build().unwrap();
    let signed_in = client
        .post(format!("http://{address}/api/auth"))
        .json(&json!({"code": ACCESS_CODE}))
        .send();
    let token: Value = signed_in.await.unwrap().json().await.unwrap();
    // The configuration status sends a request to each vendor.
    let status = client
        .get(format!("http://{address}/api/admin/config-status"))
        .bearer_auth(token["token"].as_str().unwrap())
        .send();
    let pending = tokio::spawn(status);
    let (mut connection, _) = with_timeout(proxy.accept()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(with_timeout(connection.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("post http://linear.invalid/"), "{head}");
    assert!(head.contains("\r\nproxy-authorization: basic "), "{head}");
    let refusal = b"HTTP/1.1 407 No\r\ncontent-length: 10\r\nconnection: close\r\n\r\nproxy-word";
    connection.write_all(refusal).await.unwrap();
    let body = with_timeout(pending)
        .await
        .unwrap()
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(!body.contains("proxy-word"), "{body}");
}

#[tokio::test]
async fn exit_code_distinguishes_bad_settings_from_other_errors() {
    let dir = tempfile::tempdir().unwrap();
    let run = |variables: &'static [(&'static str, &'static str)]| {
        let mut service = Command::new(PROGRAM);
        service.arg("serve").env_clear().current_dir(dir.path());
        service.envs(variables.iter().copied()).output()
    };
    let misconfigured = with_timeout(run(&[("PORT", "none")])).await.unwrap();
    // The unit does not restart the service after this code, because a restart would not help.
    assert_eq!(misconfigured.status.code(), Some(78));
    let failed = with_timeout(run(&[("PORT", "0"), ("DATA_DIR", "/dev/null/data")]));
    assert_eq!(failed.await.unwrap().status.code(), Some(1));
}
