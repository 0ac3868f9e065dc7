//! `GET /api/admin/config-status`: state of each connection, with few requests to the vendors.

use std::time::{Duration, Instant};

use fake_vendors::{FakeService, FaultRates};
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;
use warp::Filter;
use warp::http::StatusCode;

use crate::api_server::{ACCESS_CODE, ApiServer};
use crate::route_server;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const PATH: &str = "/api/admin/config-status";

/// Status and detail of one connection.
fn check<'a>(status: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = status["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let text = |field: &str| check[field].as_str().unwrap();
    (text("status"), text("detail"))
}

/// Default environment with these flags added and omitted, and a manual clock.
async fn start_env(
    flags: Vec<(&'static str, String)>,
    omitted: &'static [&'static str],
) -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        extra_flags: flags,
        omitted_flags: omitted,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

/// Number of credential checks sent to Linear.
fn probes(env: &TestEnv) -> usize {
    let requests = env.vendors.requests().for_service(FakeService::Linear);
    let is_probe = |body: &Value| body["query"].as_str().unwrap().contains("viewer");
    requests
        .iter()
        .filter(|request| is_probe(&request.body))
        .count()
}

#[tokio::test]
async fn a_connection_that_is_off_names_its_settings() {
    let flags = ["--admin-access-code", ACCESS_CODE];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    let rows: [(&str, &[&str]); 10] = [
        ("ticketing-a", &["LINEAR_API_KEY", "LINEAR_CLIENT_ID"]),
        (
            "ticketing-b",
            &["JIRA_SITE_URL", "JIRA_EMAIL", "JIRA_API_TOKEN"],
        ),
        ("repo-host", &["GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY"]),
        (
            "runner-callback",
            &[
                "local containers report through a socket",
                "VM sessions and Kubernetes Jobs do not start",
                "Set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
            ],
        ),
        ("gap-fill-trigger", &["GAP_FILL_TRIGGER_SECRET"]),
        ("webhook", &["SCM_WEBHOOK_SECRET"]),
        ("vm-sessions", &["not configured", "VM_SESSIONS_TOKEN"]),
        ("local-containers", &["not configured", "DOCKER_HOST"]),
        ("kubernetes", &["not configured", "KUBERNETES_NAMESPACE"]),
        ("notifications", &["NOTIFY_WEBHOOK_URL"]),
    ];
    let names: Vec<&Value> = status["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| &check["name"])
        .collect();
    assert_eq!(names, rows.map(|(name, _)| name));
    for (name, expected_texts) in rows {
        let (condition, detail) = check(&status, name);
        assert_eq!(condition, "off", "{name}");
        for expected_text in expected_texts {
            assert!(
                detail.contains(expected_text),
                "{expected_text} in {detail}"
            );
        }
    }
    assert_eq!(status["quota"], json!([]));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requires_a_signed_in_admin() {
    let server = ApiServer::start().await;
    let unauthenticated = server.send("GET", PATH, "", None).await;
    assert_eq!(unauthenticated.error(), (401, "Unauthorized"));
    let token = server.sign_in().await;
    let posted = server.send("POST", PATH, &token, None).await;
    assert_eq!(posted.error(), (405, "Method not allowed"));
    server.stop().await.unwrap();

    let without_admin = ApiServer::start_with(&[], Store::in_memory().unwrap()).await;
    let missing = without_admin.send("GET", PATH, "", None).await;
    assert_eq!(missing.error(), (404, "Not found"));
    without_admin.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_connection_is_ok_and_names_the_account() {
    let flags = vec![
        ("--scm-webhook-secret", "the host's own secret".to_owned()),
        (
            "--gap-fill-trigger-secret",
            "the trigger's own secret".to_owned(),
        ),
    ];
    let env = start_env(flags, &[]).await;
    let status = env.admin_get(PATH).await;
    let jira = format!("Agent Implement at {}", env.vendors.jira_url());
    let callback = format!(
        "This service responds at {}. It is a loopback address: runs on other machines cannot reach it.",
        env.address
    );
    for (name, detail) in [
        ("ticketing-a", "Agent Implement in Sandbox"),
        ("ticketing-b", &jira),
        ("repo-host", "App agent-implement, 1 installation"),
        ("runner-callback", &callback),
        ("gap-fill-trigger", "GAP_FILL_TRIGGER_SECRET is set."),
        ("webhook", "SCM_WEBHOOK_SECRET is set."),
        (
            "notifications",
            "NOTIFY_WEBHOOK_URL is set. It is not tested, because that would post a message.",
        ),
    ] {
        assert_eq!(check(&status, name), ("ok", detail), "{status:#}");
    }
    assert!(env.vendors.chat().messages().is_empty());
    let accounts: Vec<&str> = status["quota"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| quota["account"].as_str().unwrap())
        .collect();
    assert_eq!(
        accounts,
        ["Linear", "Linear complexity", "Jira", "GitHub app"]
    );
    let linear = &status["quota"][0];
    assert_eq!(linear["limit"], 5000);
    assert!(linear["remaining"].as_u64().unwrap() < 5000, "{linear}");
    assert!(linear["resetAt"].is_string(), "{linear}");
    env.finish().await;
}

/// Starts a vendor that repeats the credential in its error, as careless proxies do. Returns its URL.
async fn start_echoing_vendor() -> String {
    let refuse = warp::header::<String>("authorization").map(|key| {
        let body = json!({"errors": [{"message": format!("Unknown key {key}")}]});
        warp::reply::with_status(warp::reply::json(&body), StatusCode::UNAUTHORIZED)
    });
    route_server::start(refuse).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_reported_with_the_vendors_error_and_redacted() {
    let key = "quite-an-unusual-key";
    let wrong = vec![("--linear-api-key", key.to_owned())];
    let env = start_env(wrong, &["--linear-api-key"]).await;
    let status = env.admin_get(PATH).await;
    let (condition, detail) = check(&status, "ticketing-a");
    assert_eq!(condition, "error");
    assert_eq!(
        detail,
        "checking the Linear credentials: Linear answered 401: Authentication required, not authenticated"
    );
    assert_eq!(
        check(&status, "ticketing-b").0,
        "ok",
        "other connections are not affected"
    );
    env.finish().await;

    let url = start_echoing_vendor().await;
    let flags = [
        "--admin-access-code",
        ACCESS_CODE,
        "--linear-api-key",
        key,
        "--linear-api-url",
        &url,
    ];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        check(&status, "ticketing-a"),
        (
            "error",
            "checking the Linear credentials: Linear answered 401: Unknown key [redacted]"
        )
    );
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_within_a_minute_share_one_probe() {
    let env = start_env(Vec::new(), &[]).await;
    let slow = FaultRates {
        latency: Duration::from_millis(300),
        ..FaultRates::default()
    };
    env.set_fault_rates(&slow);
    let at_once = join_all((0..5).map(|_| env.admin_get(PATH))).await;
    env.set_fault_rates(&FaultRates::default());
    for status in at_once {
        assert_eq!(check(&status, "ticketing-a").0, "ok");
    }
    for _ in 0..5 {
        env.admin_get(PATH).await;
    }
    assert_eq!(probes(&env), 1);
    assert_eq!(
        env.vendors.requests().len(),
        3,
        "one request to each vendor"
    );

    env.advance_clock(Duration::from_secs(59));
    env.admin_get(PATH).await;
    assert_eq!(probes(&env), 1);
    env.vendors.linear().set_api_key("revoked");
    env.advance_clock(Duration::from_secs(1));
    assert_eq!(check(&env.admin_get(PATH).await, "ticketing-a").0, "error");
    assert_eq!(probes(&env), 2);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_vendor_does_not_delay_other_checks() {
    let env = start_env(Vec::new(), &[]).await;
    let stalled = FaultRates {
        latency: Duration::from_secs(60),
        ..FaultRates::default()
    };
    for vendor in [FakeService::Linear, FakeService::GitHub] {
        env.vendors.faults(vendor).set_rates(stalled.clone());
    }
    let began = Instant::now();
    let status = env.admin_get(PATH).await;
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "checks run concurrently"
    );
    let silent = ("error", "no response within 5 seconds");
    assert_eq!(check(&status, "ticketing-a"), silent);
    assert_eq!(check(&status, "repo-host"), silent);
    assert_eq!(check(&status, "ticketing-b").0, "ok");
    env.finish().await;
}

#[tokio::test]
async fn an_unreachable_callback_address_is_explained() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    let (condition, detail) = check(&status, "runner-callback");
    assert_eq!(condition, "error");
    for expected_text in [
        "This machine cannot reach http://127.0.0.1:1",
        "NAT",
        "RUNNER_CALLBACK_BASE_URL",
    ] {
        assert!(detail.contains(expected_text), "{detail}");
    }
    server.stop().await.unwrap();
}
