//! Credentials of vendors, stored over the API: tested first, in force at once, and never returned.

use domain::crypto::signature::sign;
use domain::issue::System;
use domain::job::JobState;
use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api_server::send_checked;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, app_key, mapping};

/// Flags of the credentials that these stories store instead.
const CREDENTIALS: &[&str] = &[
    "--linear-api-key",
    "--jira-site-url",
    "--jira-email",
    "--jira-api-token",
    "--github-app-id",
    "--github-app-private-key",
    "--notify-webhook-url",
];

fn unconfigured() -> TestEnvOptions {
    TestEnvOptions {
        omitted_flags: CREDENTIALS,
        ..TestEnvOptions::default()
    }
}

async fn save(env: &TestEnv, name: &str, values: Value) -> (u16, Value) {
    let path = format!("/api/connections/{name}");
    env.admin_request(Method::POST, &path, Some(values)).await
}

async fn shown(env: &TestEnv, name: &str) -> Value {
    let all = env.admin_get("/api/connections").await;
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap().clone()
}

fn github_app(env: &TestEnv) -> Value {
    json!({
        "GITHUB_APP_ID": env.vendors.github().app_id().to_string(),
        "GITHUB_APP_PRIVATE_KEY": app_key(),
    })
}

/// Returns the sources of the fields that have a value.
fn sources(connection: &Value) -> Vec<String> {
    let fields = connection["fields"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let set = fields.filter(|field| field["source"] != "none");
    set.map(|field| format!("{}={}", text(&field["name"]), text(&field["source"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_runs_after_credentials_are_stored_and_a_restart_keeps_them() {
    let env = TestEnv::with_options(unconfigured()).await;
    let linear = shown(&env, "linear").await;
    assert_eq!(
        (&linear["configured"], &linear["source"], &linear["status"]),
        (&json!(false), &json!("none"), &Value::Null)
    );
    env.create_labelled_issue("ENG-1", "Add the feature");

    let key = env.vendors.linear().api_key();
    let (status, linear) = save(&env, "linear", json!({"LINEAR_API_KEY": key})).await;
    assert_eq!(status, 200, "{linear}");
    assert_eq!(
        (&linear["source"], &linear["status"]),
        (&json!("stored"), &json!("ok"))
    );
    assert_eq!(sources(&linear), ["LINEAR_API_KEY=stored"]);
    let (status, github) = save(&env, "github", github_app(&env)).await;
    assert_eq!(status, 200, "{github}");
    let install = github["installUrl"].as_str().unwrap();
    assert!(install.ends_with("/installations/new"), "{install}");
    let chat = json!({"NOTIFY_WEBHOOK_URL": env.vendors.slack_url()});
    assert_eq!(save(&env, "chat", chat).await.0, 200);

    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    env.wait_for_empty_outbox().await;
    assert!(!env.vendors.chat().messages().is_empty());

    let redactor = &env.app.secrets.redactor;
    assert!(!redactor.redact(&key).contains(&key));
    let audit = env
        .admin_get("/api/audit?action=connection-set")
        .await
        .to_string();
    assert!(audit.contains("LINEAR_API_KEY"), "{audit}");
    let all = env.admin_get("/api/connections").await.to_string();
    for secret in [&key, &app_key()[40..80]] {
        assert!(!all.contains(secret) && !audit.contains(secret));
    }
    let store = std::fs::read(env.dir().join("data/agent-implement.redb"));
    if let Ok(store) = store {
        assert!(
            !store
                .windows(key.len())
                .any(|bytes| bytes == key.as_bytes())
        );
    }

    let env = env.restart_service(unconfigured()).await;
    assert_eq!(shown(&env, "github").await["source"], "stored");
    env.create_labelled_issue("ENG-2", "Add another feature");
    assert_eq!(
        env.wait_for_job_end("ENG-2").await.state,
        JobState::Completed
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_do_not_work_are_refused_and_not_stored() {
    let options = TestEnvOptions {
        mappings: Vec::new(),
        engine: EngineMode::manual(),
        ..unconfigured()
    };
    let env = TestEnv::with_options(options).await;
    let jira = env.vendors.jira_url();
    let rows = [
        (
            "linear",
            json!({"LINEAR_API_KEY": "lin_wrong_key"}),
            400,
            "set LINEAR_API_KEY",
        ),
        (
            "linear",
            json!({"LINEAR_CLIENT_ID": "id"}),
            400,
            "LINEAR_CLIENT_SECRET is not",
        ),
        ("linear", json!({"LINEAR_API_KEY": "a\nb"}), 400, "one line"),
        (
            "linear",
            json!({"LINEAR_API_KEY": " "}),
            400,
            "Fill in a field.",
        ),
        ("linear", json!({}), 400, "Fill in a field."),
        (
            "linear",
            json!({"LINEAR_APIKEY": "x"}),
            400,
            "did you mean LINEAR_API_KEY?",
        ),
        (
            "linear",
            json!({"GITHUB_TOKEN": "x"}),
            400,
            "no field of that name",
        ),
        (
            "linear",
            json!({"LINEAR_API_KEY": 7}),
            400,
            "must be a text",
        ),
        ("linear", json!([]), 400, "Invalid request body"),
        (
            "jira",
            json!({"JIRA_API_TOKEN": "t"}),
            400,
            "needs JIRA_SITE_URL and JIRA_EMAIL",
        ),
        (
            "jira",
            json!({"JIRA_SITE_URL": jira, "JIRA_EMAIL": "a@b.c", "JIRA_API_TOKEN": "wrong-token"}),
            400,
            "set JIRA_API_TOKEN",
        ),
        (
            "jira",
            json!({"JIRA_SITE_URL": "http://jira.example", "JIRA_EMAIL": "a@b.c", "JIRA_API_TOKEN": "t"}),
            400,
            "must be an https address",
        ),
        (
            "jira",
            json!({"JIRA_SITE_URL": "http://127.0.0.1:1", "JIRA_EMAIL": "a@b.c", "JIRA_API_TOKEN": "t"}),
            503,
            "could not be tested",
        ),
        (
            "github",
            json!({"GITHUB_APP_ID": "1", "GITHUB_APP_PRIVATE_KEY": "no key"}),
            400,
            "no PEM block",
        ),
        (
            "github",
            json!({"GITHUB_TOKEN": "ghp_wrong"}),
            400,
            "settings page",
        ),
        (
            "github",
            json!({"SCM_WEBHOOK_SECRET": "short"}),
            400,
            "at least 8 bytes",
        ),
        (
            "chat",
            json!({"NOTIFY_TYPE": "channel-b"}),
            400,
            "NOTIFY_WEBHOOK_URL is missing",
        ),
        (
            "fly",
            json!({"VM_SESSIONS_TOKEN": "t"}),
            400,
            "VM_SESSIONS_APP",
        ),
        ("gitlab", json!({"X": "y"}), 404, "Connection not found"),
    ];
    for (name, values, status, words) in rows {
        let (found, body) = save(&env, name, values.clone()).await;
        let error = body["error"].as_str().unwrap_or_default();
        assert!(
            found == status && error.contains(words),
            "{name} {values}: {found} {body}"
        );
        assert!(
            !error.contains("lin_wrong_key") && !error.contains("wrong-token"),
            "{body}"
        );
    }
    env.vendors.github().set_token_scopes("repo, workflow");
    let token = env.vendors.github().personal_token().to_owned();
    let (status, body) = save(&env, "github", json!({"GITHUB_TOKEN": token})).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.to_string().contains("may change workflows"), "{body}");
    for one in env.admin_get("/api/connections").await.as_array().unwrap() {
        assert_eq!(
            (&one["source"], &one["stored"]),
            (&json!("none"), &json!(false))
        );
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_takes_precedence() {
    let options = TestEnvOptions {
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    let env = TestEnv::with_options(options).await;
    let key = env.vendors.linear().api_key();
    let (status, body) = save(&env, "linear", json!({"LINEAR_API_KEY": key})).await;
    assert_eq!(status, 409, "{body}");
    assert!(
        body.to_string()
            .contains("LINEAR_API_KEY is set in the environment")
    );
    let linear = shown(&env, "linear").await;
    assert_eq!(sources(&linear), ["LINEAR_API_KEY=env"]);
    assert_eq!(linear["missing"].as_array().unwrap().len(), 1);
    // The webhook secret has a source of its own.
    let secret = json!({"LINEAR_WEBHOOK_SECRET": "the-secret-of-the-webhook"});
    let (status, linear) = save(&env, "linear", secret).await;
    assert_eq!((status, &linear["source"]), (200, &json!("env")));
    assert_eq!(
        sources(&linear),
        ["LINEAR_API_KEY=env", "LINEAR_WEBHOOK_SECRET=stored"]
    );
    assert_eq!(linear["missing"], json!([]));
    let path = "/api/connections/linear";
    let (status, linear) = env.admin_request(Method::DELETE, path, None).await;
    assert_eq!((status, sources(&linear).len()), (200, 1));
    let (status, _) = env.admin_request(Method::DELETE, path, None).await;
    assert_eq!(status, 404);
    env.stop().await;
}

/// Status of a webhook that is signed with this secret.
async fn deliver(env: &TestEnv, secret: &str) -> u16 {
    let body = br#"{"zen": "Keep it simple."}"#;
    let signature = format!("sha256={}", sign(body, &Secret::new(secret)));
    let client = reqwest::Client::new();
    let request = client
        .post(format!("{}/api/repo-host/webhook", env.address))
        .header("x-github-event", "ping")
        .header("x-github-delivery", secret)
        .header("x-hub-signature-256", signature)
        .body(body.to_vec());
    send_checked(request).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_credential_is_in_force_for_the_next_request_and_cycle() {
    let options = TestEnvOptions {
        engine: EngineMode::manual(),
        ..unconfigured()
    };
    let env = TestEnv::with_options(options).await;
    let (first, second) = ("the first secret", "the second secret");
    assert_eq!(deliver(&env, first).await, 503);
    for (secret, other) in [(first, second), (second, first)] {
        let stored = save(&env, "github", json!({"SCM_WEBHOOK_SECRET": secret})).await;
        assert_eq!(stored.0, 200, "{stored:?}");
        assert_eq!(deliver(&env, other).await, 401);
        assert_eq!(deliver(&env, secret).await, 200);
    }

    // A handle keeps the clients of its time, and unchanged clients are kept with their caches.
    assert_eq!(save(&env, "github", github_app(&env)).await.0, 200);
    let before = env.app.latest();
    let key = env.vendors.linear().api_key();
    assert_eq!(
        save(&env, "linear", json!({"LINEAR_API_KEY": key})).await.0,
        200
    );
    let after = env.app.latest();
    let has_linear = |app: &engine::app::App| app.vendors.account(System::Linear).is_some();
    assert!(!has_linear(&before) && has_linear(&after));
    let url = |app: &engine::app::App| app.vendors.github.as_ref().unwrap().install_url();
    assert!(url(&before).is_some() && url(&before) == url(&after));

    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    let (_, github) = env
        .admin_request(Method::DELETE, "/api/connections/github", None)
        .await;
    assert_eq!(github["configured"], false);
    let mode = env.admin_get("/api/runner-mode").await;
    assert_eq!(mode["ineligible"], json!([]));
    env.create_labelled_issue("ENG-2", "Add another feature");
    env.tick().await;
    let why = env.admin_get("/api/why/ENG-2").await.to_string();
    assert!(why.contains("repository host is not configured"), "{why}");
    env.admin_request(Method::DELETE, "/api/connections/linear", None)
        .await;
    env.tick().await;
    assert!(env.app.live.poll_snapshots.all().is_empty());
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_stored_credentials_and_names_their_source() {
    let options = TestEnvOptions {
        mappings: vec![mapping()],
        engine: EngineMode::manual(),
        ..unconfigured()
    };
    let env = TestEnv::with_options(options).await;
    let key = env.vendors.linear().api_key();
    assert_eq!(
        save(&env, "linear", json!({"LINEAR_API_KEY": key})).await.0,
        200
    );
    assert_eq!(save(&env, "github", github_app(&env)).await.0, 200);
    let stopped = env.stop_service().await;
    let command_line = stopped.command_line("http://127.0.0.1:1", &unconfigured());
    let before = doctor_report(command_line.clone()).await;
    let process = stopped.start_process(&unconfigured());
    let running = doctor_report(command_line).await;
    drop(process);
    for report in [before, running] {
        assert!(!report.contains(&key), "{report}");
        for words in [
            "GitHub: stored by this service; Linear: stored by this service; Jira: not set",
            "App agent-implement",
        ] {
            assert!(report.contains(words), "{words} in {report}");
        }
    }
    stopped.vendors.stop_and_kill_runs().await;
}

async fn doctor_report(command_line: Vec<String>) -> String {
    let mut args = vec!["doctor".to_owned()];
    args.extend(command_line);
    args.extend(["--port".to_owned(), "0".to_owned()]);
    let output = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        crate::process::exit_and_output(&crate::process::run(&args))
    });
    let (_, stdout, stderr) = output.await.unwrap();
    stdout + &stderr
}
