//! Versions of mappings: `ETag`, `If-Match`, and changes of two people at once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{MAPPINGS_PATH, MappingsClient, mapping_body, minimal};
use crate::api_server::{ApiResponse, send_checked};

const ENG: &str = "/api/mappings/ENG";
const OUTDATED: (u16, &str) = (412, "The project was changed in the meantime");

impl MappingsClient {
    async fn send_if_match(
        &self,
        method: &str,
        path: &str,
        condition: &str,
        body: &Value,
    ) -> ApiResponse {
        let request = self.server.request(method, path).bearer_auth(&self.token);
        let request = request.header("if-match", condition);
        send_checked(request.body(body.to_string())).await
    }

    /// Stored mapping with its version.
    async fn show(&self) -> (Value, String) {
        let response = self.server.send("GET", ENG, &self.token, None).await;
        assert_eq!(response.status, 200);
        let etag = response.header("etag").to_owned();
        (response.body, etag)
    }
}

#[tokio::test]
async fn a_mapping_and_every_write_have_the_version_of_the_stored_content() {
    let admin = MappingsClient::start().await;
    let missing = admin.server.send("GET", ENG, &admin.token, None).await;
    assert_eq!(missing.error(), (404, "Team not found"));
    let send = |method: &'static str, path, body: Value| {
        let sent = admin
            .server
            .send(method, path, &admin.token, body.to_string());
        async { sent.await.header("etag").to_owned() }
    };
    let created = send("POST", MAPPINGS_PATH, minimal()).await;
    assert_eq!(created.len(), 34, "{created}");
    let (mapping, shown) = admin.show().await;
    assert_eq!(shown, created);
    let (_, all) = admin.request("GET", MAPPINGS_PATH, "").await;
    assert_eq!(mapping, all["ENG"]);
    let changed = send("PATCH", ENG, json!({"maxTurns": 7})).await;
    assert_ne!(changed, created);
    assert_eq!(admin.show().await.1, changed);
    let paused = send("PATCH", ENG, json!({"paused": true})).await;
    assert_eq!(admin.show().await.1, paused);
    let replaced = send("POST", MAPPINGS_PATH, minimal()).await;
    assert_eq!(admin.show().await.1, replaced);
    assert_eq!(
        BTreeSet::from([created, changed, paused, replaced]).len(),
        4
    );
}

#[tokio::test]
async fn a_change_of_an_outdated_mapping_is_refused_with_the_current_one() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let (_, outdated) = admin.show().await;
    admin.request("PATCH", ENG, r#"{"maxTurns":7}"#).await;
    let (current, version) = admin.show().await;
    let changes = [
        ("PATCH", ENG, json!({"maxTurns": 8})),
        ("PATCH", ENG, json!({"paused": true})),
        ("PATCH", ENG, json!({"maxInProgressAiIssues": 9})),
        ("PATCH", ENG, json!({"repo": "docs"})),
        ("POST", MAPPINGS_PATH, minimal()),
        ("DELETE", ENG, Value::Null),
    ];
    let unquoted = version.trim_matches('"');
    for condition in [
        &outdated,
        &format!("W/{version}"),
        unquoted,
        "\"\"",
        "",
        "\u{e4}",
    ] {
        for (method, path, body) in &changes {
            let refused = admin.send_if_match(method, path, condition, body).await;
            assert_eq!(refused.error(), OUTDATED, "{method} {condition}");
            assert_eq!(refused.body["mapping"], current);
            assert_eq!(refused.header("etag"), version);
        }
    }
    assert_eq!(admin.show().await, (current, version.clone()));

    // What is wrong in itself, or names no mapping, is refused as without the header.
    let invalid = admin
        .send_if_match("PATCH", ENG, &outdated, &json!({"paused": 1}))
        .await;
    assert_eq!(invalid.error(), (400, "paused must be a boolean"));
    let unknown = "/api/mappings/OPS";
    let change = admin
        .send_if_match("PATCH", unknown, &outdated, &json!({"maxTurns": 1}))
        .await;
    assert_eq!(change.error(), (404, "Team not found"));
    let removed = admin
        .send_if_match("DELETE", unknown, "*", &Value::Null)
        .await;
    assert_eq!(
        (removed.status, removed.body),
        (404, json!({"deleted": false}))
    );
    let create = mapping_body(json!({"teamKey": "OPS"}));
    for condition in [&version, "*"] {
        let refused = admin
            .send_if_match("POST", MAPPINGS_PATH, condition, &create)
            .await;
        assert_eq!(refused.error(), OUTDATED);
        assert_eq!(refused.body["mapping"], Value::Null);
    }
}

#[tokio::test]
async fn a_change_of_the_current_version_is_made() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let changes = [
        ("PATCH", ENG, json!({"maxTurns": 8})),
        ("PATCH", ENG, json!({"paused": true})),
        ("POST", MAPPINGS_PATH, minimal()),
        ("DELETE", ENG, Value::Null),
    ];
    for (method, path, body) in &changes {
        if *method == "DELETE" {
            admin.saved(&minimal()).await;
        }
        let (_, version) = admin.show().await;
        let listed = format!("\"0\", {version}");
        let response = admin.send_if_match(method, path, &listed, body).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    admin.saved(&minimal()).await;
    let any = admin
        .send_if_match("PATCH", ENG, "*", &json!({"maxTurns": 9}))
        .await;
    assert_eq!(any.status, 200);
}

#[tokio::test]
async fn one_of_many_changes_of_the_same_version_wins() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let (_, version) = admin.show().await;
    let changes: Vec<Value> = (1..=30).map(|turns| json!({"maxTurns": turns})).collect();
    let attempts = changes
        .iter()
        .map(|change| admin.send_if_match("PATCH", ENG, &version, change));
    let responses = futures_util::future::join_all(attempts).await;
    let (stored, current) = admin.show().await;
    let mut winners = Vec::new();
    for (response, change) in responses.iter().zip(&changes) {
        match response.status {
            200 => {
                assert_eq!(response.header("etag"), current);
                winners.push(&change["maxTurns"]);
            }
            _ => {
                assert_eq!(response.error(), OUTDATED);
                assert_eq!(response.body["mapping"], stored);
            }
        }
    }
    assert_eq!(winners, [&stored["maxTurns"]]);
}
