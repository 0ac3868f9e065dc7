//! Vendors that do not answer: `/api/incidents`, `/api/poll`, `/` and the outbox say so until they answer.

use std::time::{Duration, SystemTime};

use domain::time::Timestamp;
use fake_vendors::FakeService;
use serde_json::{Value, json};

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// Longer than any delay between two attempts of an effect.
const LONGER_THAN_RETRY_DELAY: Duration = Duration::from_secs(5 * 60);

async fn incidents(env: &TestEnv) -> Vec<Value> {
    let shown = env.admin_get("/api/incidents").await;
    shown["incidents"].as_array().unwrap().clone()
}

async fn health(env: &TestEnv) -> Value {
    env.admin_get("/").await
}

/// Entry of `/api/poll` for Linear.
async fn polled_linear(env: &TestEnv) -> Value {
    let poll = env.admin_get("/api/poll").await;
    let systems = poll["systems"].as_array().unwrap().iter();
    let mut linear = systems.filter(|one| one["name"] == "Linear");
    linear.next().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_linear_is_an_incident_and_no_successful_poll() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    env.vendors
        .linear()
        .issue("ENG-9")
        .title("Stands in the way");
    let blocked = env.vendors.linear().issue("ENG-1").title("Waits");
    blocked.blocked_by("ENG-9").add_label("Agent-Implement");
    env.create_labelled_issue("ENG-2", "Add the feature");
    env.tick().await;
    let polled_at = json!(env.app.core.now());
    assert_eq!(health(&env).await["lastPollAt"], polled_at);
    let poll = env.admin_get("/api/poll").await;
    assert_eq!(
        (&poll["running"], &poll["last"]["waiting"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(poll["last"]["dispatched"], 1, "{poll}");
    env.wait_until("the run has reported", || !env.jobs("ENG-2")[0].is_active())
        .await;

    let until = SystemTime::now() + Duration::from_secs(44 * 60);
    env.vendors
        .faults(FakeService::Linear)
        .rate_limit_until(Some(until));
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;

    let health = health(&env).await;
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(health["reasons"], json!(["Linear is rate limited"]));
    assert_eq!(health["lastPollAt"], polled_at, "the last successful poll");
    let linear = polled_linear(&env).await;
    assert_eq!(linear["lastSuccessAt"], polled_at);
    assert_eq!(linear["lastAttemptAt"], json!(env.app.core.now()));
    assert_eq!(linear["error"], "Linear is rate limited.");
    assert_eq!(linear["issues"], 2);

    let all = incidents(&env).await;
    let [incident] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (&incident["vendor"], &incident["kind"], &incident["id"]),
        (&json!("Linear"), &json!("rate-limited"), &json!("linear"))
    );
    let named = Timestamp::parse(incident["until"].as_str().unwrap()).unwrap();
    let until = Timestamp::EPOCH + until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(named + Duration::from_secs(1) >= until, "{incident}");
    assert_eq!(incident["issuesWaiting"], 1, "{incident}");
    let waiting = incident["updatesWaiting"].as_u64().unwrap();
    let message = incident["message"].as_str().unwrap();
    assert!(waiting > 0, "{incident}");
    let end = format!("(in 44 min). Nothing new starts; 1 issue and {waiting} updates wait.");
    assert!(message.ends_with(&end), "{message}");

    let outbox = env.admin_get("/api/outbox").await;
    let pending = outbox["pending"].as_array().unwrap();
    assert_eq!(pending.len() as u64, waiting, "{outbox}");
    for (entry, description) in pending.iter().zip(["update status label", "post comment"]) {
        assert_eq!(entry["issueIdentifier"], "ENG-2", "{entry}");
        assert_eq!(entry["description"], description, "{entry}");
        assert_eq!(entry["waitsFor"], "Linear", "{entry}");
        assert_eq!(entry["waitsUntil"], incident["until"], "{entry}");
    }
    // Its updates wait for the end of the limit.
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_vendor_is_one_incident_until_it_answers() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    env.tick().await;
    assert_eq!(incidents(&env).await, [] as [Value; 0]);
    for vendor in [FakeService::Linear, FakeService::GitHub] {
        env.vendors.faults(vendor).set_outage(true);
    }
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    let first = incidents(&env).await;
    assert_eq!(first.len(), 1, "GitHub was not asked: {first:?}");
    assert_eq!(
        (&first[0]["vendor"], &first[0]["kind"], &first[0]["until"]),
        (&json!("Linear"), &json!("unreachable"), &Value::Null)
    );
    assert_eq!(
        health(&env).await["reasons"],
        json!(["Linear is unreachable"])
    );
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    let second = incidents(&env).await;
    assert_eq!(second[0]["since"], first[0]["since"], "it is the same");

    env.vendors.faults(FakeService::Linear).set_outage(false);
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    let github = incidents(&env).await;
    assert_eq!(github.len(), 1, "Linear answered: {github:?}");
    assert_eq!(github[0]["vendor"], "GitHub");
    assert_eq!(
        github[0]["affects"],
        "No CI runs start. Pull requests and their comments are updated later."
    );

    env.vendors.faults(FakeService::GitHub).set_outage(false);
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    assert!(env.jobs("ENG-1")[0].dispatched_at.is_some());
    assert_eq!(incidents(&env).await, [] as [Value; 0]);
    assert_eq!(health(&env).await["status"], "ok");
    env.wait_until("the run has reported", || !env.jobs("ENG-1")[0].is_active())
        .await;
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_credential_degrades_the_service_without_an_incident() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        engine: EngineMode::manual(),
        extra_flags: vec![("--linear-api-key", "lin_api_wrong".to_owned())],
        omitted_flags: &["--linear-api-key"],
        ..TestEnvOptions::default()
    })
    .await;
    env.tick().await;
    assert_eq!(incidents(&env).await, [] as [Value; 0]);
    let health = health(&env).await;
    assert_eq!(health["reasons"], json!(["the last poll of Linear failed"]));
    assert_eq!(health["lastPollAt"], Value::Null);
    let linear = polled_linear(&env).await;
    let error = linear["error"].as_str().unwrap();
    assert!(
        error.starts_with("Linear answered with status 401"),
        "{error}"
    );
    assert_eq!(linear["lastSuccessAt"], Value::Null);
    env.finish().await;
}
