//! `POST /api/mappings/check`: all problems at once, and what the vendors say.

use std::time::{Duration, Instant};

use fake_vendors::FakeService;
use reqwest::Method;
use serde_json::{Value, json};

use super::{MappingsClient, mapping_body, minimal};
use crate::test_env::{TestEnv, TestEnvOptions};

const CHECK: &str = "/api/mappings/check";

fn fields(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["field"].as_str().unwrap()).collect()
}

fn of<'a>(list: &'a Value, field: &str) -> &'a str {
    let mut list = list.as_array().unwrap().iter();
    let found = list.find(|one| one["field"] == field);
    found.map_or("", |one| one["message"].as_str().unwrap())
}

fn body(fields: Value) -> Value {
    mapping_body(fields)
}

#[tokio::test]
async fn lists_all_problems_in_plain_words_and_stores_nothing() {
    let admin = MappingsClient::start().await;
    let (status, found) = admin
        .request(
            "POST",
            CHECK,
            &json!({"maxInProgressAiIssues": 0, "provider": "cloud"}).to_string(),
        )
        .await;
    assert_eq!((status, &found["ok"]), (200, &json!(false)));
    let expected = [
        "teamKey",
        "owner",
        "repo",
        "defaultBranch",
        "cloudRegion",
        "maxInProgressAiIssues",
    ];
    assert_eq!(fields(&found["problems"]), expected);
    assert_eq!(
        of(&found["problems"], "maxInProgressAiIssues"),
        "Max parallel issues must be at least 1"
    );
    assert_eq!(of(&found["problems"], "owner"), "Owner is required");
    let (status, found) = admin.request("POST", CHECK, &minimal().to_string()).await;
    assert_eq!(
        (status, &found["ok"], &found["problems"]),
        (200, &json!(true), &json!([]))
    );
    // Without vendors, only warnings.
    assert_eq!(fields(&found["warnings"]), ["ticketingProvider", "repo"]);
    assert_eq!(
        admin.request("GET", super::MAPPINGS_PATH, "").await,
        (200, json!({}))
    );
    for invalid in ["", "{", "[]", "7"] {
        let response = admin.request("POST", CHECK, invalid).await;
        assert_eq!(response, (400, json!({"error": "Invalid request body"})));
    }
    let region = body(json!({"provider": "cloud", "cloudRegion": "eu-cental-1"}));
    let (_, found) = admin.request("POST", CHECK, &region.to_string()).await;
    assert_eq!(found["ok"], true);
    assert!(of(&found["warnings"], "cloudRegion").ends_with("Did you mean eu-central-1?"));
    let runner = body(json!({"executionMode": "vm-machines"}));
    let (_, found) = admin.request("POST", CHECK, &runner.to_string()).await;
    assert!(of(&found["problems"], "executionMode").starts_with("VM sessions are not configured"));
}

/// What is saved has no problem, and what has a problem of a rule is not saved.
#[tokio::test]
async fn agrees_with_saving() {
    let admin = MappingsClient::start().await;
    let rows = [
        json!({}),
        json!({"maxTurns": ""}),
        json!({"maxTurns": 0}),
        json!({"teamKey": "a b"}),
        json!({"repo": ".."}),
        json!({"defaultBranch": null}),
        json!({"extraEnv": {"LD_PRELOAD": "x"}}),
        json!({"budgetUsd": 0.0}),
        json!({"planningEnabled": true}),
        json!({"planningEnabled": true, "planningWorkflowFile": "plan.yml"}),
        json!({"ticketingProvider": "A", "ticketingConfig": {"kind": "B"}}),
        json!({"ticketingProvider": "B", "ticketingConfig": {"jql": "a", "repoFieldValue": "b"}}),
        json!({"branchPrefix": "a/../b"}),
        json!({"sessionMode": "hybrid"}),
    ];
    for row in rows {
        let body = body(row).to_string();
        let (_, found) = admin.request("POST", CHECK, &body).await;
        let (status, _) = admin.request("POST", super::MAPPINGS_PATH, &body).await;
        assert_eq!(found["ok"] == true, status == 200, "{body} {found}");
        admin.request("DELETE", "/api/mappings/ENG", "").await;
    }
    // A key that contains another is a problem at the key.
    admin.saved(&minimal()).await;
    let overlapping = body(json!({"teamKey": "ENG_WEB"})).to_string();
    let (_, found) = admin.request("POST", CHECK, &overlapping).await;
    assert_eq!(fields(&found["problems"]), ["teamKey"]);
}

/// A path of its own for `POST` does not hide a mapping of that name.
#[tokio::test]
async fn a_mapping_may_be_named_check() {
    let admin = MappingsClient::start().await;
    admin.saved(&body(json!({"teamKey": "check"}))).await;
    let (status, shown) = admin.request("GET", CHECK, "").await;
    assert_eq!((status, &shown["teamKey"]), (200, &json!("check")));
    let changed = admin.request("PATCH", CHECK, r#"{"maxTurns":3}"#).await;
    assert_eq!(changed, (200, json!({"updated": true})));
    let removed = admin.request("DELETE", CHECK, "").await;
    assert_eq!(removed, (200, json!({"deleted": true})));
    let refused = admin.server.send("PUT", CHECK, &admin.token, None).await;
    assert_eq!(refused.error(), (405, "Method not allowed"));
    assert_eq!(refused.header("allow"), "POST, GET, PATCH, DELETE");
}

#[tokio::test]
async fn limits_checks_per_minute() {
    let admin = MappingsClient::start().await;
    for _ in 0..60 {
        assert_eq!(admin.request("POST", CHECK, "{}").await.0, 200);
    }
    let response = admin
        .server
        .send("POST", CHECK, &admin.token, "{}".to_owned())
        .await;
    assert_eq!(response.error(), (429, "Too many checks. Try again later."));
    assert_eq!(response.header("retry-after"), "60");
    admin.server.clock.advance(Duration::from_secs(60));
    assert_eq!(admin.request("POST", CHECK, "{}").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_the_vendors_what_exists() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: Vec::new(),
        ..TestEnvOptions::default()
    })
    .await;
    let check = async |fields: Value| {
        let (status, found) = env
            .admin_request(Method::POST, CHECK, Some(body(fields)))
            .await;
        assert_eq!(status, 200);
        found
    };
    let valid = check(json!({})).await;
    assert_eq!(valid, json!({"ok": true, "problems": [], "warnings": []}));

    let missing = check(json!({"teamKey": "NOPE", "repo": "none"})).await;
    assert_eq!(fields(&missing["problems"]), ["teamKey", "repo"]);
    assert!(of(&missing["problems"], "teamKey").starts_with("Linear shows no team \"NOPE\"."));
    assert!(of(&missing["problems"], "repo").starts_with("GitHub shows no repository acme/none."));
    let branch = check(json!({"defaultBranch": "trunk", "maxTurns": 0})).await;
    assert_eq!(fields(&branch["problems"]), ["maxTurns", "defaultBranch"]);
    assert_eq!(
        of(&branch["problems"], "defaultBranch"),
        "acme/shop has no branch \"trunk\". Check the default branch."
    );
    env.vendors.github().repo("acme", "cart").rename("basket");
    let renamed = check(json!({"repo": "cart"})).await;
    assert_eq!(
        of(&renamed["problems"], "repo"),
        "The repository is now acme/basket. Correct owner and repo."
    );
    let jira = json!({"teamKey": "OPS", "ticketingProvider": "B", "ticketingConfig": {
        "jql": "project = = OPS", "repoFieldValue": "shop", "statusFieldOverride": "No such field"}});
    let jira = check(jira).await;
    assert_eq!(fields(&jira["problems"]), ["jql", "statusFieldOverride"]);

    // A vendor that does not answer is a warning, in bounded time.
    env.vendors.faults(FakeService::Linear).set_outage(true);
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    let started = Instant::now();
    let unreachable = check(json!({"teamKey": "NOPE"})).await;
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(
        (&unreachable["ok"], &unreachable["problems"]),
        (&json!(true), &json!([]))
    );
    assert!(
        of(&unreachable["warnings"], "teamKey")
            .starts_with("The team could not be checked. Linear ")
    );
    assert!(
        of(&unreachable["warnings"], "repo")
            .starts_with("The repository could not be checked. GitHub ")
    );
    env.vendors.faults(FakeService::Linear).clear();
    env.vendors.faults(FakeService::GitHub).clear();
    assert_eq!(env.admin_get("/api/mappings").await, json!({}));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_about_a_missing_model_key_of_machines() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        omitted_flags: &["--anthropic-api-key"],
        ..TestEnvOptions::default()
    })
    .await;
    let machine = body(json!({"executionMode": "vm-machines"}));
    let found = env.admin_post(CHECK, machine.clone()).await;
    assert_eq!(
        (&found["ok"], fields(&found["warnings"])),
        (&json!(true), vec!["provider"])
    );
    let secret = json!({"name": "OPENAI_API_KEY", "value": "sk-of-the-team-in-this-test"});
    let (status, _) = env
        .admin_request(Method::POST, "/api/mappings/ENG/secrets", Some(secret))
        .await;
    assert_eq!(status, 200);
    let found = env.admin_post(CHECK, machine).await;
    assert_eq!(found["warnings"], json!([]));
    env.stop().await;
}
