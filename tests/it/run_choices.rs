//! Where runs execute, and with which agent and model: mapping, labels of the ticket, and repository.

use std::time::Duration;

use domain::job::JobState;
use domain::mapping::Mapping;
use domain::report::FailureCode;
use reqwest::Method;
use serde_json::{Value, json};

use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{TestEnv, mapping_with};

/// Environment whose CI runs do not start.
async fn env_with_waiting_runs(mappings: impl IntoIterator<Item = Mapping>) -> TestEnv {
    let env = TestEnv::with_manual_engine(mappings).await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    env
}

/// Runner labels of the CI run of a ticket, and the options of its dispatch.
fn run_of(env: &TestEnv, key: &str) -> (Vec<String>, Value) {
    let mut runs = env.repo().runs();
    runs.retain(|run| run.inputs["issue_identifier"] == key);
    assert_eq!(runs.len(), 1, "{key}: {runs:#?}");
    let run = runs.remove(0);
    let options = run.inputs.get("options").and_then(Value::as_str);
    let mut options: Value =
        options.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
    if let Some(fields) = options.as_object_mut() {
        fields.remove("programSha256").unwrap();
    }
    match options.as_object().is_none_or(serde_json::Map::is_empty) {
        true => (run.runner_labels, Value::Null),
        false => (run.runner_labels, options),
    }
}

async fn start(env: &TestEnv, key: &str, labels: &[&str]) -> (Vec<String>, Value) {
    let mut issue = env.vendors.linear().issue(key).title("Add the feature");
    for label in labels {
        issue = issue.add_label(label);
    }
    issue.add_label("Agent-Implement");
    env.tick().await;
    run_of(env, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_labels_come_from_the_mapping_then_the_repository() {
    let own = json!({"runsOn": ["self-hosted", "linux", "large"], "maxInProgressAiIssues": 9});
    let plain = json!({"teamKey": "WEB", "maxInProgressAiIssues": 9});
    let env = env_with_waiting_runs([mapping_with(&own), mapping_with(&plain)]).await;
    assert_eq!(start(&env, "WEB-1", &[]).await.0, ["ubuntu-latest"]);
    let variable = |value: &str| {
        env.repo().set_variable("AGENT_IMPLEMENT_RUNS_ON", value);
    };
    variable("ubuntu-latest-16-cores");
    assert_eq!(
        start(&env, "WEB-2", &[]).await.0,
        ["ubuntu-latest-16-cores"]
    );
    variable(r#"["self-hosted", "arm64"]"#);
    assert_eq!(start(&env, "WEB-3", &[]).await.0, ["self-hosted", "arm64"]);
    let of_mapping = start(&env, "ENG-1", &[]).await;
    assert_eq!(of_mapping.0, ["self-hosted", "linux", "large"]);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_ticket_choose_agent_and_model_before_the_mapping() {
    let chosen = json!({"agent": "claude", "model": "opus", "maxInProgressAiIssues": 9});
    let plain = json!({"teamKey": "WEB", "maxInProgressAiIssues": 9});
    let of_jira = mapping_for_repo("OPS", "shop");
    let env = env_with_waiting_runs([mapping_with(&chosen), mapping_with(&plain), of_jira]).await;
    for (key, labels, expected) in [
        (
            "ENG-1",
            &["bug"][..],
            json!({"agent": "claude", "model": "opus"}),
        ),
        (
            "ENG-2",
            &["model:sonnet"],
            json!({"agent": "claude", "model": "sonnet"}),
        ),
        ("ENG-3", &["agent:codex"], json!({"agent": "codex"})),
        (
            "ENG-4",
            &["agent:codex", "model:gpt-5.1"],
            json!({"agent": "codex", "model": "gpt-5.1"}),
        ),
        (
            "ENG-5",
            &["agent:copilot", "model:--yolo"],
            json!({"agent": "claude", "model": "opus"}),
        ),
        ("WEB-1", &["ui"], Value::Null),
        ("WEB-2", &["agent:gemini"], json!({"agent": "gemini"})),
        (
            "WEB-3",
            &["agent:gemini", "agent:codex", "model:$(id)"],
            Value::Null,
        ),
    ] {
        assert_eq!(
            start(&env, key, labels).await.1,
            expected,
            "{key}: {labels:?}"
        );
    }
    let ticket = create_ticket(&env, "OPS-1", "Do it").label("agent:codex");
    ticket.status("Ready");
    env.tick().await;
    assert_eq!(run_of(&env, "OPS-1").1, json!({"agent": "codex"}));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_uses_the_chosen_model_and_agent() {
    let env = TestEnv::with_mapping(mapping_with(&json!({"model": "opus"}))).await;
    // The repository names models, too.
    let settings = [(
        ".agent-implement/config.yml",
        "models: {implement: haiku}\n",
    )];
    env.repo()
        .commit("main", &settings, "Choose a model")
        .unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:#?}");
    assert_eq!(
        (job.agent.as_deref(), job.model.as_deref()),
        (Some("claude"), Some("opus"))
    );
    // The agent has no credential in this repository, and the run says which one it needs.
    let linear = env.vendors.linear();
    let issue = linear.issue("ENG-2").title("Add the feature");
    issue.add_label("agent:codex").add_label("Agent-Implement");
    let job = env.wait_for_job_end("ENG-2").await;
    let JobState::Failed { code, reason } = &job.state else {
        panic!("{job:#?}")
    };
    assert_eq!(*code, Some(FailureCode::SetupFailed));
    assert!(
        reason.contains("agent codex has no model credential: set OPENAI_API_KEY"),
        "{reason}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_runs_are_validated() {
    let env = TestEnv::with_manual_engine([mapping_with(&json!({}))]).await;
    let change = async |body: &Value| {
        let path = "/api/mappings/ENG";
        env.admin_request(Method::PATCH, path, Some(body.clone()))
            .await
    };
    let runs_on = "runsOn must be a list of at most 10 labels of a runner, each 1 to 100 printable characters, \
                   without expressions";
    let agent = "agent must be 'claude', 'codex' or 'gemini'";
    let model = "model must be the name of a model: letters, digits and . _ : / @ + - [ ], beginning with a letter or \
                 digit, at most 100";
    for (body, error) in [
        (json!({"runsOn": "ubuntu-latest"}), runs_on),
        (json!({"runsOn": [7]}), runs_on),
        (json!({"runsOn": [""]}), runs_on),
        (json!({"runsOn": ["a\nb"]}), runs_on),
        (json!({"runsOn": ["${{ secrets.KEY }}"]}), runs_on),
        (json!({"runsOn": vec!["a"; 11]}), runs_on),
        (json!({"runsOn": ["x".repeat(101)]}), runs_on),
        (json!({"agent": "copilot"}), agent),
        (json!({"agent": ["claude"]}), agent),
        (json!({"model": "-m"}), model),
        (json!({"model": "a b"}), model),
        (json!({"model": "x".repeat(101)}), model),
        (
            json!({"agent": "codex", "provider": "cloud", "cloudRegion": "eu-central-1"}),
            "agent must be 'claude' with provider 'bedrock'",
        ),
    ] {
        assert_eq!(
            change(&body).await,
            (400, json!({"error": error})),
            "{body}"
        );
    }
    let fallback = "fallbackAgents must be a list of different agents: 'claude', 'codex', 'gemini'";
    for agents in [
        json!("codex"),
        json!(["copilot"]),
        json!(["codex", "codex"]),
        json!([7]),
    ] {
        let (status, body) = change(&json!({"fallbackAgents": agents})).await;
        assert_eq!((status, &body["error"]), (400, &json!(fallback)));
    }
    let cloud =
        json!({"fallbackAgents": ["codex"], "provider": "cloud", "cloudRegion": "eu-central-1"});
    let error = json!({"error": "fallbackAgents must be empty with provider 'bedrock'"});
    assert_eq!(change(&cloud).await, (400, error));
    let valid = json!({"fallbackAgents": ["gemini", "claude"], "runsOn": ["self-hosted", "linux"], "agent": "codex", "model": "gpt-5.1"});
    assert_eq!(change(&valid).await.0, 200);
    let stored = env.admin_get("/api/mappings/ENG").await;
    for (field, value) in valid.as_object().unwrap() {
        assert_eq!(&stored[field], value);
    }
    assert_eq!(
        change(&json!({"runsOn": null, "agent": null, "model": null}))
            .await
            .0,
        200
    );
    let stored = env.admin_get("/api/mappings/ENG").await;
    assert_eq!(
        (&stored["runsOn"], &stored["agent"]),
        (&json!([]), &Value::Null)
    );
    env.stop().await;
}
