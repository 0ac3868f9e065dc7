//! Validation rules of the mapping routes, with their exact error texts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::ApiServer;

mod changes;
mod check;
mod landing;
mod versions;

const MAPPINGS_PATH: &str = "/api/mappings";

fn minimal() -> Value {
    json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main"})
}

/// Minimal mapping body with these fields set; null removes a field.
fn mapping_body(fields: Value) -> Value {
    let mut body = minimal();
    let object = body.as_object_mut().unwrap();
    for (name, value) in fields.as_object().unwrap() {
        object.insert(name.clone(), value.clone());
    }
    body
}

struct MappingsClient {
    server: ApiServer,
    token: String,
}

impl MappingsClient {
    async fn start() -> Self {
        let server = ApiServer::start().await;
        let token = server.sign_in().await;
        Self { server, token }
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let response = self.server.send(method, path, &self.token, body.to_owned());
        let response = response.await;
        (response.status, response.body)
    }

    async fn save(&self, body: &Value) -> (u16, Value) {
        self.request("POST", MAPPINGS_PATH, &body.to_string()).await
    }

    async fn saved(&self, body: &Value) -> Value {
        let (status, mapping) = self.save(body).await;
        assert_eq!(status, 200, "{mapping}");
        mapping
    }

    async fn assert_rejected(&self, body: Value, text: &str) {
        let (status, response) = self.save(&body).await;
        assert_eq!(
            (status, response["error"].as_str()),
            (400, Some(text)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_minimal_mapping_gets_the_defaults() {
    let admin = MappingsClient::start().await;
    assert_eq!(
        admin.request("GET", MAPPINGS_PATH, "").await,
        (200, json!({}))
    );
    let mapping = admin.saved(&minimal()).await;
    let mut expected = json!({
        "teamKey": "ENG",
        "owner": "acme",
        "repo": "shop",
        "defaultBranch": "main",
        "workflowFile": "agent-implement.yml",
        "ticketingProvider": "A",
        "ticketingConfig": {"kind": "A"},
        "provider": "direct",
        "cloudRegion": null,
        "executionMode": "ci-workflow",
        "machineCpus": 2,
        "machineMemoryMb": 4096,
        "sessionMode": "autonomous",
        "branchPrefix": null,
        "extraEnv": {},
        "maxInProgressAiIssues": 3,
        "paused": false,
        "planningEnabled": false,
        "planningWorkflowFile": null,
        "maxTurns": null,
        "maxIterations": null,
        "maxJobMinutes": null,
        "budgetUsd": null,
        "resumeAfterLimit": true,
        "runsOn": [],
        "nodeSelector": {},
        "agent": null,
        "model": null,
        "fallbackAgents": [],
        "questions": true,
        "questionTimeoutHours": null,
        "planApproval": "none",
        "planAutoApprove": null,
        "approvers": [],
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
    });
    let landing = json!({
        "maxOpenPulls": null, "maxAwaitingReview": null, "dispatchWindow": null, "collisions": "wait",
        "collisionIgnore": [], "merge": {"mode": "never"}, "deleteBranch": false,
    });
    let fields = expected.as_object_mut().unwrap();
    fields.extend(landing.as_object().unwrap().clone());
    assert_eq!(mapping, expected);
    let listed = admin.request("GET", MAPPINGS_PATH, "").await;
    assert_eq!(listed, (200, json!({"ENG": expected})));
}

#[tokio::test]
async fn all_given_fields_are_stored_and_returned() {
    let admin = MappingsClient::start().await;
    let body = json!({
        "teamKey": " OPS ", "owner": "acme", "repo": "shop.js", "defaultBranch": "release/1.x",
        "workflowFile": "build.yaml",
        "provider": "cloud", "cloudRegion": "eu-central-1", "executionMode": "ci-workflow",
        "machineCpus": 4.0, "machineMemoryMb": 256, "sessionMode": "hybrid",
        "branchPrefix": "/bots/", "extraEnv": {"A_1": "x"}, "maxInProgressAiIssues": 7,
        "paused": true, "planningEnabled": true, "planningWorkflowFile": "agent-plan.yml",
        "maxTurns": 80, "maxIterations": "", "maxJobMinutes": 30, "budgetUsd": 12.345678, "resumeAfterLimit": false,
        "ticketingProvider": "B",
        "ticketingConfig": {"jql": "project = OPS", "repoFieldValue": "shop", "statusFieldOverride": "customfield_1"},
        "unheardOf": 1,
    });
    let mapping = admin.saved(&body).await;
    let expected = [
        ("teamKey", json!("OPS")),
        ("defaultBranch", json!("release/1.x")),
        ("workflowFile", json!("build.yaml")),
        ("provider", json!("cloud")),
        ("cloudRegion", json!("eu-central-1")),
        ("machineCpus", json!(4)),
        ("machineMemoryMb", json!(256)),
        ("sessionMode", json!("hybrid")),
        ("branchPrefix", json!("bots")),
        ("extraEnv", json!({"A_1": "x"})),
        ("maxInProgressAiIssues", json!(7)),
        ("paused", json!(true)),
        ("planningEnabled", json!(true)),
        ("planningWorkflowFile", json!("agent-plan.yml")),
        ("maxTurns", json!(80)),
        ("maxIterations", Value::Null),
        ("maxJobMinutes", json!(30)),
        ("budgetUsd", json!(12.345678)),
        ("resumeAfterLimit", json!(false)),
        ("ticketingProvider", json!("B")),
        (
            "ticketingConfig",
            json!({
                "kind": "B", "jql": "project = OPS", "repoFieldValue": "shop",
                "statusFieldOverride": "customfield_1", "repoFieldOverride": null,
            }),
        ),
    ];
    for (name, value) in expected {
        assert_eq!(mapping[name], value, "{name}");
    }
    assert!(mapping.get("unheardOf").is_none());
}

#[tokio::test]
async fn vendor_names_are_accepted_and_normalized() {
    let admin = MappingsClient::start().await;
    let mapping = admin
        .saved(&mapping_body(json!({
            "provider": "bedrock", "awsRegion": "us-east-1", "executionMode": "github-actions",
            "ticketingProvider": "linear",
        })))
        .await;
    assert_eq!(mapping["provider"], "cloud");
    assert_eq!(mapping["cloudRegion"], "us-east-1");
    assert_eq!(mapping["executionMode"], "ci-workflow");
    assert_eq!(mapping["ticketingProvider"], "A");
    assert!(mapping.get("awsRegion").is_none());
    let mapping = admin
        .saved(&mapping_body(json!({
            "provider": "anthropic", "cloudRegion": "us-east-1", "executionMode": "fly-machines",
            "ticketingConfig": {"kind": "jira", "jql": "project = X", "repoFieldValue": "x"},
        })))
        .await;
    assert_eq!(mapping["provider"], "direct");
    assert_eq!(mapping["cloudRegion"], Value::Null);
    assert_eq!(mapping["executionMode"], "vm-machines");
    assert_eq!(mapping["ticketingConfig"]["kind"], "B");
}

#[tokio::test]
async fn omitted_fields_are_kept_or_reset() {
    let admin = MappingsClient::start().await;
    let full = mapping_body(json!({
        "paused": true, "planningEnabled": true, "planningWorkflowFile": "plan.yml",
        "maxTurns": 9, "maxInProgressAiIssues": 9, "workflowFile": "other.yml", "defaultBranch": "trunk",
    }));
    admin.saved(&full).await;
    admin.server.clock.advance(Duration::from_secs(60));
    let mapping = admin
        .saved(&mapping_body(json!({"defaultBranch": null})))
        .await;
    assert_eq!(mapping["paused"], true);
    assert_eq!(mapping["defaultBranch"], "trunk");
    assert_eq!(mapping["planningWorkflowFile"], "plan.yml");
    assert_eq!(mapping["planningEnabled"], false);
    assert_eq!(mapping["maxTurns"], Value::Null);
    assert_eq!(mapping["maxInProgressAiIssues"], 3);
    assert_eq!(mapping["workflowFile"], "agent-implement.yml");
    assert_eq!(mapping["createdAt"], "2027-01-15T08:00:00.000Z");
    assert_eq!(mapping["updatedAt"], "2027-01-15T08:01:00.000Z");
    // A stored planning workflow is enough to switch planning on again.
    let mapping = admin
        .saved(&mapping_body(json!({"planningEnabled": true})))
        .await;
    assert_eq!(mapping["planningWorkflowFile"], "plan.yml");
}

#[tokio::test]
async fn each_validation_rule_has_its_error_text() {
    let admin = MappingsClient::start().await;
    for body in ["", "{", "null", "[]", "7"] {
        let (status, response) = admin.request("POST", MAPPINGS_PATH, body).await;
        assert_eq!(
            (status, &response["error"]),
            (400, &json!("Invalid request body"))
        );
    }
    let required = "teamKey, owner, and repo are required";
    let region = "awsRegion is required when provider is 'bedrock'";
    let machines = "provider 'bedrock' is not supported with executionMode 'fly-machines'";
    let provider = "provider must be 'anthropic' or 'bedrock'";
    let mode = "executionMode must be 'github-actions' or 'fly-machines'";
    let cpus = "machineCpus must be a positive integer";
    let memory = "machineMemoryMb must be an integer >= 256";
    let session = "sessionMode must be 'autonomous', 'interactive', or 'hybrid'";
    let cap = "maxInProgressAiIssues must be a positive integer";
    let file = "planningWorkflowFile is required when planningEnabled is true";
    let rows = [
        (json!({"teamKey": null}), required),
        (json!({"owner": ""}), required),
        (json!({"repo": "  "}), required),
        (json!({"repo": 7}), required),
        (json!({"defaultBranch": null}), "defaultBranch is required"),
        (json!({"defaultBranch": ""}), "defaultBranch is required"),
        (json!({"provider": "cloud"}), region),
        (json!({"provider": "cloud", "cloudRegion": " "}), region),
        (
            json!({"provider": "bedrock", "executionMode": "vm-machines"}),
            region,
        ),
        (
            json!({"provider": "cloud", "cloudRegion": "eu-1", "executionMode": "vm-machines"}),
            machines,
        ),
        (json!({"provider": "openai"}), provider),
        (json!({"provider": 1}), provider),
        (json!({"executionMode": "docker"}), mode),
        (json!({"machineCpus": 0}), cpus),
        (json!({"machineCpus": 1.5}), cpus),
        (json!({"machineCpus": "2"}), cpus),
        (json!({"machineMemoryMb": 255}), memory),
        (json!({"machineMemoryMb": 512.5}), memory),
        (json!({"sessionMode": "manual"}), session),
        (
            json!({"branchPrefix": "a b"}),
            "branchPrefix invalid: only letters, digits, '.', '_', '-' and '/' are allowed",
        ),
        (
            json!({"branchPrefix": "a..b"}),
            "branchPrefix invalid: must not contain '..'",
        ),
        (
            json!({"branchPrefix": 1}),
            "branchPrefix invalid: must be a string",
        ),
        (json!({"extraEnv": []}), "extraEnv must be a plain object"),
        (
            json!({"extraEnv": "A=1"}),
            "extraEnv must be a plain object",
        ),
        (
            json!({"extraEnv": {"A": 1}}),
            "extraEnv values must all be strings",
        ),
        (
            json!({"extraEnv": {"A": null}}),
            "extraEnv values must all be strings",
        ),
        (json!({"maxInProgressAiIssues": 0}), cap),
        (json!({"maxInProgressAiIssues": -1}), cap),
        (json!({"maxInProgressAiIssues": "3"}), cap),
        (json!({"planningEnabled": true}), file),
        (
            json!({"planningEnabled": true, "planningWorkflowFile": ""}),
            file,
        ),
    ];
    for (fields, text) in rows {
        admin.assert_rejected(mapping_body(fields), text).await;
    }
    assert_eq!(
        admin.request("GET", MAPPINGS_PATH, "").await,
        (200, json!({}))
    );
}

#[tokio::test]
async fn additional_validation_rules_have_their_error_text() {
    let budget = "budgetUsd must be a positive number";
    let admin = MappingsClient::start().await;
    let team = "teamKey must be letters, digits, '_' and '-', beginning with a letter or digit";
    let owner = "owner must be an account name: letters, digits, '_' and '-', not a path";
    let repo = "repo must be a repository name: letters, digits, '.', '_' and '-', not a path";
    let branch = "defaultBranch is not a valid branch name";
    let region = "cloudRegion must be the name of a region, such as eu-central-1";
    let query = "ticketingConfig.jql and ticketingConfig.repoFieldValue are required for Jira";
    let config = "ticketingConfig must be a plain object of the kind that ticketingProvider names";
    let system = "ticketingProvider must be 'A', 'B' or 'C'";
    let rows = [
        (json!({"teamKey": "a/b"}), team),
        (json!({"teamKey": "-a"}), team),
        (json!({"owner": "../acme"}), owner),
        (json!({"owner": "acme/shop"}), owner),
        (json!({"repo": ".."}), repo),
        (json!({"repo": "a/b"}), repo),
        (json!({"repo": "shop.git"}), repo),
        (json!({"defaultBranch": "a b"}), branch),
        (json!({"defaultBranch": "-d"}), branch),
        (json!({"defaultBranch": "a..b"}), branch),
        (json!({"defaultBranch": 5}), branch),
        (
            json!({"provider": "cloud", "cloudRegion": "eu central"}),
            region,
        ),
        (json!({"cloudRegion": 5}), region),
        (json!({"awsRegion": {}}), region),
        (
            json!({"extraEnv": {"A-B": "x"}}),
            "extraEnv names must be letters, digits and '_', not beginning with a digit, and values without NUL",
        ),
        (
            json!({"extraEnv": {"A": "x", "LD_PRELOAD": "/tmp/x.so"}}),
            "extraEnv must not set LD_PRELOAD: the service sets it in a run, or it changes how programs start",
        ),
        (
            json!({"extraEnv": {"https_proxy": "http://elsewhere"}}),
            "extraEnv must not set https_proxy: the service sets it in a run, or it changes how programs start",
        ),
        (json!({"paused": "yes"}), "paused must be a boolean"),
        (
            json!({"planningEnabled": 1}),
            "planningEnabled must be a boolean",
        ),
        (
            json!({"workflowFile": "../x.yml"}),
            "workflowFile must be the name of a .yml or .yaml file in .github/workflows",
        ),
        (
            json!({"planningWorkflowFile": "x.txt"}),
            "planningWorkflowFile must be the name of a .yml or .yaml file in .github/workflows",
        ),
        (
            json!({"maxTurns": 0}),
            "maxTurns must be a positive integer",
        ),
        (
            json!({"maxIterations": 1.5}),
            "maxIterations must be a positive integer",
        ),
        (
            json!({"maxJobMinutes": "90"}),
            "maxJobMinutes must be a positive integer",
        ),
        (
            json!({"ticketingConfig": {"jql": "project = OPS", "repoFieldValue": "shop"}}),
            "ticketingConfig must be a plain object of the kind that ticketingProvider names",
        ),
        (json!({"budgetUsd": 0}), budget),
        (json!({"budgetUsd": -1}), budget),
        (json!({"budgetUsd": "10"}), budget),
        (json!({"budgetUsd": ""}), budget),
        (json!({"budgetUsd": 1e300}), budget),
        (json!({"budgetUsd": 0.0000001}), budget),
        (json!({"budgetUsd": true}), budget),
        (json!({"budgetUsd": [1]}), budget),
        (
            json!({"resumeAfterLimit": "yes"}),
            "resumeAfterLimit must be a boolean",
        ),
        (json!({"ticketingProvider": "trello"}), system),
        (json!({"ticketingConfig": {"kind": "D"}}), system),
        (json!({"ticketingConfig": "A"}), config),
        (
            json!({"ticketingProvider": "A", "ticketingConfig": {"kind": "B"}}),
            config,
        ),
        (json!({"ticketingProvider": "B"}), query),
        (
            json!({"ticketingConfig": {"kind": "B", "jql": "project = X"}}),
            query,
        ),
        (
            json!({"ticketingConfig": {"kind": "B", "jql": "x", "repoFieldValue": "y", "repoFieldOverride": 1}}),
            "ticketingConfig.repoFieldOverride must be a string",
        ),
    ];
    for (fields, text) in rows {
        admin.assert_rejected(mapping_body(fields), text).await;
    }
}

#[tokio::test]
async fn the_first_error_in_a_fixed_order_is_returned() {
    let admin = MappingsClient::start().await;
    let mut body = json!({
        "teamKey": "", "owner": "acme", "repo": "shop", "provider": "x", "executionMode": "x",
        "machineCpus": 0, "machineMemoryMb": 0, "sessionMode": "x", "branchPrefix": "..",
        "extraEnv": {"A": 1}, "maxInProgressAiIssues": 0, "planningEnabled": true,
        "ticketingProvider": "x",
    });
    let order = [
        (
            "teamKey",
            json!("ENG"),
            "teamKey, owner, and repo are required",
        ),
        ("defaultBranch", json!("main"), "defaultBranch is required"),
        (
            "provider",
            Value::Null,
            "provider must be 'anthropic' or 'bedrock'",
        ),
        (
            "executionMode",
            Value::Null,
            "executionMode must be 'github-actions' or 'fly-machines'",
        ),
        (
            "machineCpus",
            Value::Null,
            "machineCpus must be a positive integer",
        ),
        (
            "machineMemoryMb",
            Value::Null,
            "machineMemoryMb must be an integer >= 256",
        ),
        (
            "sessionMode",
            Value::Null,
            "sessionMode must be 'autonomous', 'interactive', or 'hybrid'",
        ),
        (
            "branchPrefix",
            Value::Null,
            "branchPrefix invalid: must not contain '..'",
        ),
        (
            "extraEnv",
            Value::Null,
            "extraEnv values must all be strings",
        ),
        (
            "maxInProgressAiIssues",
            Value::Null,
            "maxInProgressAiIssues must be a positive integer",
        ),
        (
            "planningEnabled",
            Value::Null,
            "planningWorkflowFile is required when planningEnabled is true",
        ),
        (
            "ticketingProvider",
            Value::Null,
            "ticketingProvider must be 'A', 'B' or 'C'",
        ),
    ];
    for (field, value, text) in order {
        admin.assert_rejected(body.clone(), text).await;
        body[field] = value;
    }
    admin.saved(&body).await;
}

#[tokio::test]
async fn rejects_team_keys_with_overlapping_secret_names() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let overlap = |one: &str| {
        format!(
            "teamKey {one} overlaps with the existing teamKey ENG: their secrets could have the same stored names; choose another teamKey"
        )
    };
    for key in ["ENG_WEB", "eng", "Eng_web"] {
        admin
            .assert_rejected(mapping_body(json!({"teamKey": key})), &overlap(key))
            .await;
    }
    for key in ["ENGINE", "WEB_ENG", "ENG-2"] {
        admin.saved(&mapping_body(json!({"teamKey": key}))).await;
    }
    // A mapping does not overlap with itself.
    admin.saved(&minimal()).await;
    let (_, all) = admin.request("GET", MAPPINGS_PATH, "").await;
    let keys: Vec<&String> = all.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ENG", "ENG-2", "ENGINE", "WEB_ENG"]);
}

#[tokio::test]
async fn a_patch_of_paused_or_the_cap_is_validated() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let cap = "maxInProgressAiIssues must be a positive integer";
    let both = "Specify either paused or maxInProgressAiIssues, not both";
    let rows = [
        ("", "Invalid request body"),
        ("{", "Invalid request body"),
        ("[]", "Invalid request body"),
        ("{}", cap),
        (r#"{"maxInProgressAiIssues":0}"#, cap),
        (r#"{"maxInProgressAiIssues":1.5}"#, cap),
        (r#"{"maxInProgressAiIssues":"1"}"#, cap),
        (r#"{"maxInProgressAiIssues":null}"#, cap),
        (r#"{"paused":"true"}"#, "paused must be a boolean"),
        (r#"{"paused":true,"maxInProgressAiIssues":1}"#, both),
    ];
    for (body, text) in rows {
        let (status, response) = admin.request("PATCH", "/api/mappings/ENG", body).await;
        assert_eq!(
            (status, response["error"].as_str()),
            (400, Some(text)),
            "{body}"
        );
    }
    let (status, response) = admin
        .request("PATCH", "/api/mappings/OPS", r#"{"paused":true}"#)
        .await;
    assert_eq!(
        (status, &response["error"]),
        (404, &json!("Team not found"))
    );

    let response = admin
        .request("PATCH", "/api/mappings/ENG", r#"{"paused":true}"#)
        .await;
    assert_eq!(response, (200, json!({"updated": true, "paused": true})));
    // Percent-encoded paths are decoded.
    let response = admin
        .request(
            "PATCH",
            "/api/mappings/EN%47",
            r#"{"maxInProgressAiIssues":5}"#,
        )
        .await;
    assert_eq!(
        response,
        (200, json!({"updated": true, "maxInProgressAiIssues": 5}))
    );
    let (_, all) = admin.request("GET", MAPPINGS_PATH, "").await;
    assert_eq!(all["ENG"]["paused"], true);
    assert_eq!(all["ENG"]["maxInProgressAiIssues"], 5);
}

#[tokio::test]
async fn a_mapping_is_deleted_once() {
    let admin = MappingsClient::start().await;
    admin.saved(&minimal()).await;
    let response = admin.request("DELETE", "/api/mappings/ENG", "").await;
    assert_eq!(response, (200, json!({"deleted": true})));
    for path in ["/api/mappings/ENG", "/api/mappings/%45NG"] {
        let response = admin.request("DELETE", path, "").await;
        assert_eq!(response, (404, json!({"deleted": false})));
    }
}
