//! The example of a reverse proxy, `packaging/caddy/Caddyfile`, in front of the service: a real Caddy with
//! its own certificate.

use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use reqwest::{Certificate, Client};
use serde_json::json;
use store::{Store, StoreChange};
use tokio::process::{Child, Command};

use crate::api_server::{ALL_FEATURES, ApiServer};
use crate::requirements::require;

const EXAMPLE: &str = include_str!("../../packaging/caddy/Caddyfile");

/// How long may anything take that must happen?
const PATIENCE: Duration = Duration::from_secs(60);

/// The example as it is, but for the names: an address of this machine, and where the service listens.
fn adapted(port: u16, server: &ApiServer) -> String {
    let site = "agents.example.com {";
    assert!(EXAMPLE.contains(site) && EXAMPLE.contains("127.0.0.1:8080"));
    let here = format!("https://localhost:{port} {{\n\ttls internal");
    let body = EXAMPLE
        .replace(site, &here)
        .replace("127.0.0.1:8080", &server.address.to_string());
    let global = "admin off\n\tauto_https disable_redirects\n\tskip_install_trust";
    format!("{{\n\t{global}\n}}\n{body}")
}

fn start(dir: &Path) -> Child {
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

/// A client that trusts this Caddy alone and comes from this address.
fn client(root: &[u8], from: &str) -> Client {
    Client::builder()
        .tls_certs_only([Certificate::from_pem(root).unwrap()])
        .local_address(from.parse::<IpAddr>().unwrap())
        .resolve("localhost", ([127, 0, 0, 1], 0).into())
        .timeout(PATIENCE)
        .no_proxy()
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_example_of_a_reverse_proxy_serves_all_and_hides_the_figures() {
    let there = std::process::Command::new("caddy").arg("version").output();
    let there = there.map_err(|error| format!("caddy: {error}"));
    if require("caddy", "the example of a reverse proxy", there).is_none() {
        return;
    }
    let flags: Vec<&str> = ALL_FEATURES
        .iter()
        .copied()
        .chain(["--trusted-proxies", "127.0.0.1,::1"])
        .chain(["--scm-webhook-secret", "a secret of webhooks"])
        .collect();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let dir = tempfile::tempdir().unwrap();
    let (_caddy, root, url) = in_front_of(&server, dir.path()).await;

    let browser = client(&root, "127.0.0.5");
    let page = browser.get(format!("{url}/admin")).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("strict-transport-security"));
    assert!(page.text().await.unwrap().contains("<html"));

    news_flow(&server, &browser, &url).await;
    guessers_are_told_apart(&root, &url).await;

    // Caddy itself answers, and asks nobody.
    for path in ["/metrics", "/metrics/", "/metrics?x=1"] {
        let figures = browser.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(figures.status(), 404, "{path}");
        assert!(!figures.headers().contains_key("x-content-type-options"));
        assert_eq!(figures.text().await.unwrap(), "");
    }

    // The largest webhook passes; that it is not signed is for the service to say.
    let largest = vec![b' '; 25 << 20];
    let hook = browser.post(format!("{url}/api/repo-host/webhook"));
    let answer = hook.body(largest).send().await.unwrap();
    assert_eq!(answer.status(), 401);
}

/// A Caddy that serves, the certificate that it has made to sign with, and its address. Somebody else
/// may be faster to take the port that was found free; then another one is tried.
async fn in_front_of(server: &ApiServer, dir: &Path) -> (Child, Vec<u8>, String) {
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = free.unwrap().port();
        std::fs::write(dir.join("Caddyfile"), adapted(port, server)).unwrap();
        let mut caddy = start(dir);
        let url = format!("https://localhost:{port}");
        if let Some(root) = authority(&mut caddy, dir, &url).await {
            return (caddy, root, url);
        }
    }
    panic!("caddy does not serve: {}", log(dir));
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// The certificate, once it serves; None when it has ended.
async fn authority(caddy: &mut Child, dir: &Path, url: &str) -> Option<Vec<u8>> {
    let began = Instant::now();
    let file = dir.join("caddy/pki/authorities/local/root.crt");
    while caddy.try_wait().unwrap().is_none() {
        if let Ok(root) = std::fs::read(&file)
            && Certificate::from_pem(&root).is_ok()
            && client(&root, "127.0.0.1").get(url).send().await.is_ok()
        {
            return Some(root);
        }
        assert!(began.elapsed() < PATIENCE, "caddy is slow: {}", log(dir));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

/// What happens is read while the stream goes on: nothing is held back until more comes.
async fn news_flow(server: &ApiServer, browser: &Client, url: &str) {
    let token = server.sign_in().await;
    let stream = browser.get(format!("{url}/api/events")).bearer_auth(&token);
    let mut stream = stream.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut told = false;
    while !text.contains("event:") {
        let chunk = tokio::time::timeout(PATIENCE, stream.chunk()).await;
        let chunk = chunk.expect("nothing flows").unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream ended")).unwrap());
        if !told && text.contains("listening") {
            server.app.store.publish(StoreChange::Outbox);
            told = true;
        }
    }
}

/// Wrong codes count against who sent them, whatever he says of himself.
async fn guessers_are_told_apart(root: &[u8], url: &str) {
    let guess = async |from: &Client, claims: &str| {
        let asked = from
            .post(format!("{url}/api/auth"))
            .header("x-forwarded-for", claims)
            .json(&json!({"code": "not this one"}));
        asked.send().await.unwrap().status().as_u16()
    };
    let (one, other) = (client(root, "127.0.0.2"), client(root, "127.0.0.3"));
    for number in 1..=5 {
        assert_eq!(guess(&one, &format!("192.0.2.{number}")).await, 403);
    }
    assert_eq!(guess(&one, "192.0.2.6").await, 429);
    assert_eq!(guess(&other, "127.0.0.2").await, 403);
}
