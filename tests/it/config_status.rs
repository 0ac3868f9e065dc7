//! What an operator is told about each connection, and how little the vendors notice of it.

use std::time::{Duration, Instant};

use fake_vendors::{FakeService, FaultRates};
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;
use tokio::net::TcpListener;
use warp::Filter;
use warp::http::StatusCode;

use crate::api_server::{ACCESS_CODE, ApiServer};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const PATH: &str = "/api/admin/config-status";

/// Status and detail of one connection.
fn check<'a>(status: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = status["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let text = |field: &str| check[field].as_str().unwrap();
    (text("status"), text("detail"))
}

/// The usual world with these flags beside or in place of its own, on a clock that stands still.
async fn world(flags: Vec<(&'static str, String)>, without: &'static [&'static str]) -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        extra_flags: flags,
        omitted_flags: without,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

/// How often Linear was asked who we are.
fn probes(world: &TestEnv) -> usize {
    let requests = world.vendors.requests().for_service(FakeService::Linear);
    let asks_who = |body: &Value| body["query"].as_str().unwrap().contains("viewer");
    requests
        .iter()
        .filter(|request| asks_who(&request.body))
        .count()
}

#[tokio::test]
async fn what_is_off_says_what_switches_it_on() {
    let flags = ["--admin-access-code", ACCESS_CODE];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    let rows: [(&str, &[&str]); 9] = [
        ("ticketing-a", &["LINEAR_API_KEY", "LINEAR_CLIENT_ID"]),
        (
            "ticketing-b",
            &["JIRA_SITE_URL", "JIRA_EMAIL", "JIRA_API_TOKEN"],
        ),
        ("repo-host", &["GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY"]),
        (
            "runner-callback",
            &[
                "followed by polling alone",
                "Planning, VM sessions and local containers do not start",
                "Set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
            ],
        ),
        ("gap-fill-trigger", &["GAP_FILL_TRIGGER_SECRET"]),
        ("webhook", &["SCM_WEBHOOK_SECRET"]),
        ("vm-sessions", &["not configured", "VM_SESSIONS_TOKEN"]),
        ("local-containers", &["not configured", "DOCKER_HOST"]),
        ("notifications", &["NOTIFY_WEBHOOK_URL"]),
    ];
    let names: Vec<&Value> = status["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| &check["name"])
        .collect();
    assert_eq!(names, rows.map(|(name, _)| name));
    for (name, words) in rows {
        let (condition, detail) = check(&status, name);
        assert_eq!(condition, "off", "{name}");
        for word in words {
            assert!(detail.contains(word), "{word} in {detail}");
        }
    }
    assert_eq!(status["quota"], json!([]));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn strangers_are_told_nothing() {
    let server = ApiServer::start().await;
    let stranger = server.send("GET", PATH, "", None).await;
    assert_eq!(stranger.error(), (401, "Unauthorized"));
    let token = server.sign_in().await;
    let posted = server.send("POST", PATH, &token, None).await;
    assert_eq!(posted.error(), (405, "Method not allowed"));
    server.stop().await.unwrap();

    let without_admin = ApiServer::start_with(&[], Store::in_memory().unwrap()).await;
    let nowhere = without_admin.send("GET", PATH, "", None).await;
    assert_eq!(nowhere.error(), (404, "Not found"));
    without_admin.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_is_ok_and_says_who_answered() {
    let flags = vec![
        ("--scm-webhook-secret", "the host's own secret".to_owned()),
        (
            "--gap-fill-trigger-secret",
            "the trigger's own secret".to_owned(),
        ),
    ];
    let world = world(flags, &[]).await;
    let status = world.admin_get(PATH).await;
    let jira = format!("Agent Implement at {}", world.vendors.jira_url());
    let callback = format!(
        "This service answers at {}. It is an address of this machine: runs elsewhere cannot reach it.",
        world.address
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
            "NOTIFY_WEBHOOK_URL is set; nothing is posted to try it.",
        ),
    ] {
        assert_eq!(check(&status, name), ("ok", detail), "{status:#}");
    }
    assert!(world.vendors.chat().messages().is_empty());
    let accounts: Vec<&str> = status["quota"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| quota["account"].as_str().unwrap())
        .collect();
    assert_eq!(accounts, ["linear", "jira", "github app"]);
    let linear = &status["quota"][0];
    assert_eq!(linear["limit"], 5000);
    assert!(linear["remaining"].as_u64().unwrap() < 5000, "{linear}");
    assert!(linear["resetAt"].is_string(), "{linear}");
    world.finish().await;
}

/// Somebody who repeats the credential in the refusal, as careless proxies do.
async fn parrot() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let refuse = warp::header::<String>("authorization").map(|key| {
        let body = json!({"errors": [{"message": format!("Nobody knows {key} here")}]});
        warp::reply::with_status(warp::reply::json(&body), StatusCode::UNAUTHORIZED)
    });
    tokio::spawn(warp::serve(refuse).incoming(listener).run());
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_told_in_the_vendors_words_and_not_repeated() {
    let key = "quite-an-unusual-key";
    let wrong = vec![("--linear-api-key", key.to_owned())];
    let world = world(wrong, &["--linear-api-key"]).await;
    let status = world.admin_get(PATH).await;
    let (condition, detail) = check(&status, "ticketing-a");
    assert_eq!(condition, "error");
    assert_eq!(
        detail,
        "asking Linear who we are: linear answered 401: Authentication required, not authenticated"
    );
    assert_eq!(check(&status, "ticketing-b").0, "ok", "others are not hurt");
    world.finish().await;

    let parrot = parrot().await;
    let flags = [
        "--admin-access-code",
        ACCESS_CODE,
        "--linear-api-key",
        key,
        "--linear-api-url",
        &parrot,
    ];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        check(&status, "ticketing-a"),
        (
            "error",
            "asking Linear who we are: linear answered 401: Nobody knows [redacted] here"
        )
    );
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_within_a_minute_are_one_probe() {
    let world = world(Vec::new(), &[]).await;
    let slow = FaultRates {
        latency: Duration::from_millis(300),
        ..FaultRates::default()
    };
    world.set_fault_rates(&slow);
    let at_once = join_all((0..5).map(|_| world.admin_get(PATH))).await;
    world.set_fault_rates(&FaultRates::default());
    for status in at_once {
        assert_eq!(check(&status, "ticketing-a").0, "ok");
    }
    for _ in 0..5 {
        world.admin_get(PATH).await;
    }
    assert_eq!(probes(&world), 1);
    assert_eq!(
        world.vendors.requests().len(),
        3,
        "one request to each vendor"
    );

    world.advance_clock(Duration::from_secs(59));
    world.admin_get(PATH).await;
    assert_eq!(probes(&world), 1);
    world.vendors.linear().set_api_key("revoked");
    world.advance_clock(Duration::from_secs(1));
    assert_eq!(
        check(&world.admin_get(PATH).await, "ticketing-a").0,
        "error"
    );
    assert_eq!(probes(&world), 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_answer_holds_nobody_up() {
    let world = world(Vec::new(), &[]).await;
    let asleep = FaultRates {
        latency: Duration::from_secs(60),
        ..FaultRates::default()
    };
    for vendor in [FakeService::Linear, FakeService::GitHub] {
        world.vendors.faults(vendor).set_rates(asleep.clone());
    }
    let began = Instant::now();
    let status = world.admin_get(PATH).await;
    assert!(began.elapsed() < Duration::from_secs(9), "side by side");
    let silent = ("error", "no answer within 5 seconds");
    assert_eq!(check(&status, "ticketing-a"), silent);
    assert_eq!(check(&status, "repo-host"), silent);
    assert_eq!(check(&status, "ticketing-b").0, "ok");
    world.finish().await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_explained() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let status = server.send("GET", PATH, &token, None).await.body;
    let (condition, detail) = check(&status, "runner-callback");
    assert_eq!(condition, "error");
    for words in [
        "From here http://127.0.0.1:1 cannot be reached",
        "NAT",
        "RUNNER_CALLBACK_BASE_URL",
    ] {
        assert!(detail.contains(words), "{detail}");
    }
    server.stop().await.unwrap();
}
