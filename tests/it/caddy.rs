//! The example `packaging/caddy/Caddyfile` in front of the service: a real Caddy with its own
//! certificate.

use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use requires::requires;
use reqwest::{Certificate, Client};
use serde_json::json;
use store::{Store, StoreChange};
use tokio::process::{Child, Command};

use crate::api_server::{ALL_FEATURES, ApiServer};
use crate::requirements::require;

const EXAMPLE: &str = include_str!("../../packaging/caddy/Caddyfile");

/// Maximum wait for any expected event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The example with a local site address and the service's listen address.
fn local_config(port: u16, server: &ApiServer) -> String {
    let site = "agents.example.com {";
    assert!(EXAMPLE.contains(site) && EXAMPLE.contains("127.0.0.1:8080"));
    let local_site = format!("https://localhost:{port} {{\n\ttls internal");
    let body = EXAMPLE
        .replace(site, &local_site)
        .replace("127.0.0.1:8080", &server.address.to_string());
    let global = "admin off\n\tauto_https disable_redirects\n\tskip_install_trust";
    format!("{{\n\t{global}\n}}\n{body}")
}

fn spawn_caddy(dir: &Path) -> Child {
    Command::new("caddy")
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(dir.join("Caddyfile"))
        .env("XDG_DATA_HOME", dir)
        .env("XDG_CONFIG_HOME", dir)
        .env("HOME", dir)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(dir.join("log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// HTTP client that trusts only this Caddy's certificate and connects from the given address.
fn client(root: &[u8], from: &str) -> Client {
    Client::builder()
        .tls_certs_only([Certificate::from_pem(root).unwrap()])
        .local_address(from.parse::<IpAddr>().unwrap())
        .resolve("localhost", ([127, 0, 0, 1], 0).into())
        .timeout(TIMEOUT)
        .no_proxy()
        .build()
        .unwrap()
}

#[requires("caddy")]
#[tokio::test]
async fn example_proxy_serves_everything_but_metrics() {
    let version = std::process::Command::new("caddy").arg("version").output();
    let version = version.map_err(|error| format!("caddy: {error}"));
    require("caddy", version);
    let flags: Vec<&str> = ALL_FEATURES
        .iter()
        .copied()
        .chain(["--trusted-proxies", "127.0.0.1,::1"])
        .chain(["--scm-webhook-secret", "a secret of webhooks"])
        .collect();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let dir = tempfile::tempdir().unwrap();
    let (_caddy, root, url) = start_caddy(&server, dir.path()).await;

    let browser = client(&root, "127.0.0.5");
    let page = browser.get(format!("{url}/admin")).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("strict-transport-security"));
    assert!(page.text().await.unwrap().contains("<html"));

    assert_events_are_not_buffered(&server, &browser, &url).await;
    assert_sign_in_limit_per_client(&root, &url).await;

    // Caddy responds itself and does not forward the request.
    for path in ["/metrics", "/metrics/", "/metrics?x=1"] {
        let response = browser.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert!(!response.headers().contains_key("x-content-type-options"));
        assert_eq!(response.text().await.unwrap(), "");
    }

    // The largest webhook passes the proxy; the service rejects it because it is unsigned.
    let largest = vec![b' '; 25 << 20];
    let hook = browser.post(format!("{url}/api/repo-host/webhook"));
    let response = hook.body(largest).send().await.unwrap();
    assert_eq!(response.status(), 401);
}

/// Starts Caddy and returns it with its root certificate and address. If another process takes the free
/// port first, another port is tried.
async fn start_caddy(server: &ApiServer, dir: &Path) -> (Child, Vec<u8>, String) {
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = free.unwrap().port();
        std::fs::write(dir.join("Caddyfile"), local_config(port, server)).unwrap();
        let mut caddy = spawn_caddy(dir);
        let url = format!("https://localhost:{port}");
        if let Some(root) = wait_for_root_certificate(&mut caddy, dir, &url).await {
            return (caddy, root, url);
        }
    }
    panic!("caddy does not serve: {}", log(dir));
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Root certificate once Caddy serves, or `None` if Caddy exited.
async fn wait_for_root_certificate(caddy: &mut Child, dir: &Path, url: &str) -> Option<Vec<u8>> {
    let started = Instant::now();
    let file = dir.join("caddy/pki/authorities/local/root.crt");
    while caddy.try_wait().unwrap().is_none() {
        if let Ok(root) = std::fs::read(&file)
            && Certificate::from_pem(&root).is_ok()
            && client(&root, "127.0.0.1").get(url).send().await.is_ok()
        {
            return Some(root);
        }
        assert!(started.elapsed() < TIMEOUT, "caddy is slow: {}", log(dir));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

/// Events arrive while the stream is open: the proxy does not buffer them.
async fn assert_events_are_not_buffered(server: &ApiServer, browser: &Client, url: &str) {
    let token = server.sign_in().await;
    let stream = browser.get(format!("{url}/api/events")).bearer_auth(&token);
    let mut stream = stream.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut published = false;
    while !text.contains("event:") {
        let chunk = tokio::time::timeout(TIMEOUT, stream.chunk()).await;
        let chunk = chunk.expect("no event arrived").unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream ended")).unwrap());
        if !published && text.contains("listening") {
            server.store.publish(StoreChange::Outbox);
            published = true;
        }
    }
}

/// Failed sign-ins count for the real client address, whatever `x-forwarded-for` it sends.
async fn assert_sign_in_limit_per_client(root: &[u8], url: &str) {
    let try_code = async |from: &Client, forwarded_for: &str| {
        let request = from
            .post(format!("{url}/api/auth"))
            .header("x-forwarded-for", forwarded_for)
            .json(&json!({"code": "not this one"}));
        request.send().await.unwrap().status().as_u16()
    };
    let (first, second) = (client(root, "127.0.0.2"), client(root, "127.0.0.3"));
    for number in 1..=5 {
        assert_eq!(try_code(&first, &format!("192.0.2.{number}")).await, 403);
    }
    assert_eq!(try_code(&first, "192.0.2.6").await, 429);
    assert_eq!(try_code(&second, "127.0.0.2").await, 403);
}
