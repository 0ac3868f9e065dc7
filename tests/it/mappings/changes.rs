//! `PATCH` of a mapping: given fields change, all others are kept.

use serde_json::{Value, json};

use super::{MAPPINGS_PATH, MappingsClient, mapping_body};

const ENG: &str = "/api/mappings/ENG";

impl MappingsClient {
    async fn change(&self, body: &Value) -> (u16, Value) {
        self.request("PATCH", ENG, &body.to_string()).await
    }

    /// Stored mapping without `updatedAt`.
    async fn stored(&self) -> Value {
        let (_, mut all) = self.request("GET", MAPPINGS_PATH, "").await;
        let mut mapping = all["ENG"].take();
        mapping.as_object_mut().unwrap().remove("updatedAt");
        mapping
    }
}

/// Mapping body with almost no default values.
fn rich() -> Value {
    mapping_body(json!({
        "provider": "cloud", "cloudRegion": "eu-central-1", "machineCpus": 4, "machineMemoryMb": 8192,
        "branchPrefix": "bots", "extraEnv": {"A": "b"}, "maxInProgressAiIssues": 9, "paused": true,
        "planningEnabled": true, "planningWorkflowFile": "plan.yml", "workflowFile": "own.yml",
        "maxTurns": 7, "maxIterations": 5, "maxJobMinutes": 33, "budgetUsd": 12.34, "resumeAfterLimit": false,
        "ticketingProvider": "B",
        "ticketingConfig": {"kind": "B", "jql": "project = X", "repoFieldValue": "shop", "statusFieldOverride": "s",
            "repoFieldOverride": null},
    }))
}

#[tokio::test]
async fn a_patch_changes_only_the_given_fields() {
    let admin = MappingsClient::start().await;
    admin.saved(&rich()).await;
    let linear = json!({"ticketingProvider": "A", "ticketingConfig": {"kind": "A"}});
    let rows = [
        json!({"budgetUsd": 50.0}),
        json!({"budgetUsd": null}),
        json!({"maxTurns": 80, "maxJobMinutes": null}),
        json!({"branchPrefix": null, "extraEnv": {"C": "d"}}),
        json!({"owner": "other", "repo": "docs", "defaultBranch": "trunk"}),
        json!({"provider": "direct", "cloudRegion": null}),
        json!({"executionMode": "vm-machines", "sessionMode": "hybrid", "machineCpus": 8}),
        json!({"planningEnabled": false, "resumeAfterLimit": true}),
        json!({"ticketingConfig": {"kind": "B", "jql": "project = Y", "repoFieldValue": "web",
            "statusFieldOverride": null, "repoFieldOverride": null}}),
        linear,
    ];
    for row in rows {
        let mut expected = admin.stored().await;
        for (name, value) in row.as_object().unwrap() {
            expected[name] = value.clone();
        }
        assert_eq!(admin.change(&row).await, (200, json!({"updated": true})));
        assert_eq!(admin.stored().await, expected, "{row}");
    }
    let response = admin
        .change(&json!({"maxInProgressAiIssues": 2, "maxTurns": 5}))
        .await;
    let expected_body = json!({"updated": true, "maxInProgressAiIssues": 2});
    assert_eq!(response, (200, expected_body));
    let response = admin.change(&json!({"paused": false, "maxTurns": 6})).await;
    assert_eq!(response, (200, json!({"updated": true, "paused": false})));
    let kept = admin.stored().await;
    assert_eq!(
        (
            &kept["maxTurns"],
            &kept["maxInProgressAiIssues"],
            &kept["paused"]
        ),
        (&json!(6), &json!(2), &json!(false))
    );
}

#[tokio::test]
async fn a_patch_is_validated_like_a_whole_mapping() {
    let admin = MappingsClient::start().await;
    admin.saved(&mapping_body(json!({}))).await;
    admin.saved(&mapping_body(json!({"teamKey": "WEB"}))).await;
    let before = admin.stored().await;
    let cap = "maxInProgressAiIssues must be a positive integer";
    let rows = [
        (json!({"unknown": 1}), cap),
        (json!({"teamKey": "ENG"}), cap),
        (json!({"maxInProgressAiIssues": null, "maxTurns": 3}), cap),
        (json!({"maxInProgressAiIssues": 0, "maxTurns": 3}), cap),
        (
            json!({"paused": true, "maxInProgressAiIssues": 1, "maxTurns": 3}),
            "Specify either paused or maxInProgressAiIssues, not both",
        ),
        (
            json!({"teamKey": "NEW", "maxTurns": 3}),
            "teamKey cannot be changed; delete the mapping and create another",
        ),
        (
            json!({"owner": null}),
            "teamKey, owner, and repo are required",
        ),
        (
            json!({"maxTurns": 0}),
            "maxTurns must be a positive integer",
        ),
        (
            json!({"budgetUsd": -1}),
            "budgetUsd must be a positive number",
        ),
        (
            json!({"defaultBranch": "a b"}),
            "defaultBranch is not a valid branch name",
        ),
        (
            json!({"provider": "cloud"}),
            "awsRegion is required when provider is 'bedrock'",
        ),
        (
            json!({"machineMemoryMb": 255}),
            "machineMemoryMb must be an integer >= 256",
        ),
        (
            json!({"planningEnabled": true}),
            "planningWorkflowFile is required when planningEnabled is true",
        ),
        (
            json!({"ticketingProvider": "B"}),
            "ticketingConfig must be a plain object of the kind that ticketingProvider names",
        ),
        (
            json!({"ticketingConfig": {"kind": "B", "jql": "project = X"}}),
            "ticketingConfig.jql and ticketingConfig.repoFieldValue are required for Jira",
        ),
    ];
    for (body, text) in rows {
        let (status, response) = admin.change(&body).await;
        assert_eq!(
            (status, response["error"].as_str()),
            (400, Some(text)),
            "{body}"
        );
    }
    assert_eq!(admin.stored().await, before);
    let response = admin.request("PATCH", "/api/mappings/OPS", r#"{"maxTurns":3}"#);
    assert_eq!(response.await, (404, json!({"error": "Team not found"})));
}
