//! The real binary as a service manager runs it: told when it is ready, fed while it lives, told when
//! it stops; and as it goes out to the vendors from behind a proxy.

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

/// How long may anything take that must happen?
const PATIENCE: Duration = Duration::from_secs(120);

/// The service on a port of its own, with nothing of our environment but what is named.
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
        let line = within(log.next_line()).await.unwrap().expect("it ended");
        if let Some(address) = address_in(&line) {
            break address;
        }
    };
    // Whoever writes a log must be read.
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    (service, address)
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    fields["address"].as_str()?.parse().ok()
}

async fn within<T>(done: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, done)
        .await
        .expect("it took too long")
}

async fn heard(manager: &UnixDatagram) -> String {
    let mut word = [0; 1024];
    let length = within(manager.recv(&mut word)).await.unwrap();
    String::from_utf8(word[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn a_service_manager_hears_of_its_start_its_life_and_its_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let told = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "900000"),
    ];
    let (mut service, address) = serve(dir.path(), &told).await;
    assert_eq!(heard(&manager).await, "READY=1\nSTATUS=Started.");
    // Ready is ready: there is no moment at which it refuses connections.
    let health = client_builder()
        .build()
        .unwrap()
        .get(format!("http://{address}/"));
    assert_eq!(health.send().await.unwrap().status(), 200);
    for _ in 0..3 {
        let word = heard(&manager).await;
        let status = "WATCHDOG=1\nSTATUS=0 under way, 0 flagged in sight, 0 to deliver, ";
        assert!(word.starts_with(status), "{word}");
    }
    let pid = Pid::from_raw(service.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    while heard(&manager).await != "STOPPING=1\nSTATUS=Stopping." {}
    assert!(within(service.wait()).await.unwrap().success());
}

#[tokio::test]
async fn vendors_are_reached_through_the_proxy_that_the_environment_names() {
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
    // Asking who answers asks the vendors.
    let status = client
        .get(format!("http://{address}/api/admin/config-status"))
        .bearer_auth(token["token"].as_str().unwrap())
        .send();
    let asking = tokio::spawn(status);
    let (mut asked, _) = within(proxy.accept()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(asked.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("post http://linear.invalid/"), "{head}");
    assert!(head.contains("\r\nproxy-authorization: basic "), "{head}");
    let refusal = b"HTTP/1.1 407 No\r\ncontent-length: 10\r\nconnection: close\r\n\r\nproxy-word";
    asked.write_all(refusal).await.unwrap();
    let answer = within(asking).await.unwrap().unwrap().text().await.unwrap();
    assert!(!answer.contains("proxy-word"), "{answer}");
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_told_apart_from_bad_luck() {
    let dir = tempfile::tempdir().unwrap();
    let told = |variables: &'static [(&'static str, &'static str)]| {
        let mut service = Command::new(PROGRAM);
        service.arg("serve").env_clear().current_dir(dir.path());
        service.envs(variables.iter().copied()).output()
    };
    let wrong = within(told(&[("PORT", "none")])).await.unwrap();
    // Starting again would not help: the unit does not.
    assert_eq!(wrong.status.code(), Some(78));
    let unlucky = within(told(&[("PORT", "0"), ("DATA_DIR", "/dev/null/data")]));
    assert_eq!(unlucky.await.unwrap().status.code(), Some(1));
}
