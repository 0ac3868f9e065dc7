//! Secrets over HTTP: all error responses, and values that never leave the service.

use domain::crypto::sha256_hex;
use domain::ids::TeamKey;
use domain::job::JobState;
use domain::mapping::Mapping;
use domain::secret::Secret;
use engine::app::{App, AppOptions};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::Store;

use crate::api_server::{ACCESS_CODE, ApiResponse, ApiServer, config};
use crate::test_env::{TestEnv, TestEnvOptions};

const GLOBAL: &str = "/api/global-secrets";
const TEAM: &str = "/api/mappings/ENG/secrets";
const OTHER: &str = "/api/mappings/ENG2/secrets";

/// Secret value that occurs nowhere else.
const CANARY: &str = "the-canary-of-a-secret-value";

const LOCAL: [&str; 4] = ["--admin-access-code", ACCESS_CODE, "--runner-mode", "local"];

/// Server with a signed-in client.
struct SecretsApi {
    server: ApiServer,
    token: String,
}

impl SecretsApi {
    /// Starts a server with mappings of two teams whose keys have a common prefix.
    async fn start(store: Store) -> Self {
        let server = ApiServer::start_with(&LOCAL, store).await;
        let token = server.sign_in().await;
        let api = Self { server, token };
        for team in ["ENG", "ENG2"] {
            let mapping = json!({
                "teamKey": team, "owner": "acme", "repo": "shop", "defaultBranch": "main",
            });
            let saved = api.send("POST", "/api/mappings", mapping.to_string());
            assert_eq!(saved.await.status, 200);
        }
        api
    }

    async fn send(&self, method: &str, path: &str, body: impl Into<Option<String>>) -> ApiResponse {
        self.server.send(method, path, &self.token, body).await
    }

    async fn set(&self, path: &str, name: &str, value: &str) -> ApiResponse {
        let body = json!({"name": name, "value": value});
        self.send("POST", path, body.to_string()).await
    }

    /// Returns the names that a list shows.
    async fn names(&self, path: &str) -> Vec<String> {
        let response = self.send("GET", path, None).await;
        assert_eq!(response.status, 200, "{response:?}");
        let name = |secret: &Value| secret["name"].as_str().unwrap().to_owned();
        response.body.as_array().unwrap().iter().map(name).collect()
    }

    /// Returns the secrets that a session of a team gets, as `NAME=value`.
    fn session_secrets(&self, team: &str) -> Vec<String> {
        let app = &self.server.app;
        let secrets = app
            .core
            .store()
            .read(|tx| Ok(app.secrets.vault.session_secrets(tx, &TeamKey::from(team))));
        let secrets = secrets.unwrap().unwrap();
        let show = |(name, value): (&String, &Secret)| format!("{name}={}", value.expose());
        secrets.iter().map(show).collect()
    }
}

#[tokio::test]
async fn bad_requests_get_distinct_errors() {
    let api = SecretsApi::start(Store::in_memory().unwrap()).await;
    let required = "name and value are required";
    let characters = "name must contain only letters, digits, and underscores";
    let rows = [
        ("", "Invalid request body"),
        ("{", "Invalid request body"),
        ("[]", "Invalid request body"),
        ("{}", required),
        (r#"{"name":"A"}"#, required),
        (r#"{"name":"A","value":""}"#, required),
        (r#"{"name":"A","value":7}"#, required),
        (r#"{"name":"","value":"x"}"#, required),
        (r#"{"name":7,"value":"x"}"#, required),
        (r#"{"name":"A-B","value":"x"}"#, characters),
        (r#"{"name":"A B","value":"x"}"#, characters),
        (r#"{"name":"../A","value":"x"}"#, characters),
        (
            "{\"name\":\"A\",\"value\":\"x\\u0000y\"}",
            "value must not contain NUL",
        ),
        (
            r#"{"name":"run_config","value":"x"}"#,
            "RUN_CONFIG is set by the service itself in a run; choose another name",
        ),
        (
            r#"{"name":"LD_PRELOAD","value":"x"}"#,
            "LD_PRELOAD is set by the service itself in a run; choose another name",
        ),
    ];
    for path in [GLOBAL, TEAM] {
        for (body, error) in rows {
            let response = api.send("POST", path, body.to_owned()).await;
            assert_eq!(response.error(), (400, error), "{path} {body}");
        }
        let absent = api.send("DELETE", &format!("{path}/NONE"), None).await;
        assert_eq!(absent.error(), (404, "Secret not found"), "{path}");
        let large = json!({"name": "A", "value": "x".repeat((32 << 10) + 1)});
        let response = api.send("POST", path, large.to_string()).await;
        assert_eq!(response.error(), (400, "value must be at most 32 KiB"));
        let wrong_method = api.send("PUT", path, None).await;
        assert_eq!(wrong_method.error(), (405, "Method not allowed"));
        let unauthenticated = api.server.send("GET", path, "", None).await;
        assert_eq!(unauthenticated.error(), (401, "Unauthorized"));
    }
    let collides = api.set(GLOBAL, "eng_token", "x").await;
    let error = "Secret name must not start with a team key prefix (ENG_)";
    assert_eq!(collides.error(), (400, error));
    let nowhere = "/api/mappings/NONE/secrets";
    for (method, path, body) in [
        ("GET", nowhere.to_owned(), None),
        (
            "POST",
            nowhere.to_owned(),
            Some(r#"{"name":"A","value":"x"}"#),
        ),
        ("DELETE", format!("{nowhere}/A"), None),
    ] {
        let response = api.send(method, &path, body.map(str::to_owned)).await;
        assert_eq!(response.error(), (404, "Team not found"), "{method}");
    }
}

#[tokio::test]
async fn secret_is_set_listed_and_deleted_per_team() {
    let api = SecretsApi::start(Store::in_memory().unwrap()).await;
    for (path, name, value) in [
        (GLOBAL, "shared", "all"),
        (GLOBAL, "TOKEN", "global"),
        (TEAM, "token", "eng"),
        (TEAM, "npm_token", "old"),
        (TEAM, "NPM_TOKEN", "npm"),
        (OTHER, "TOKEN", "eng2"),
    ] {
        let response = api.set(path, name, value).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.body, json!({"name": name.to_uppercase()}));
    }
    assert_eq!(api.names(GLOBAL).await, ["SHARED", "TOKEN"]);
    assert_eq!(api.names(TEAM).await, ["NPM_TOKEN", "TOKEN"]);
    assert_eq!(api.names(OTHER).await, ["TOKEN"]);
    assert_eq!(
        api.session_secrets("ENG"),
        ["NPM_TOKEN=npm", "SHARED=all", "TOKEN=eng"]
    );
    assert_eq!(api.session_secrets("ENG2"), ["SHARED=all", "TOKEN=eng2"]);

    let response = api.send("DELETE", &format!("{TEAM}/npm_token"), None).await;
    assert_eq!(
        (response.status, response.body),
        (200, json!({"deleted": true}))
    );
    assert_eq!(api.names(TEAM).await, ["TOKEN"]);

    let deleted = api.send("DELETE", "/api/mappings/ENG", None).await;
    assert_eq!(deleted.status, 200);
    assert_eq!(api.session_secrets("ENG"), ["SHARED=all", "TOKEN=global"]);
    assert_eq!(api.names(OTHER).await, ["TOKEN"]);
}

#[tokio::test]
async fn secrets_require_configured_sessions() {
    let flags = ["--admin-access-code", ACCESS_CODE, "--runner-mode", "ci"];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    for (method, path) in [
        ("GET", GLOBAL),
        ("POST", GLOBAL),
        ("DELETE", "/api/global-secrets/A"),
        ("GET", TEAM),
        ("POST", TEAM),
        ("DELETE", "/api/mappings/ENG/secrets/A"),
    ] {
        let response = server.send(method, path, &token, None).await;
        assert_eq!(
            response.error(),
            (503, "Fly sessions config not set"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn values_are_not_stored_in_plain_text_and_a_wrong_key_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let api = SecretsApi::start(Store::open(dir.path()).unwrap()).await;
    for path in [GLOBAL, TEAM] {
        assert_eq!(api.set(path, "CANARY", CANARY).await.status, 200);
        let listed = api.send("GET", path, None).await.body.to_string();
        assert!(!listed.contains(CANARY));
    }
    let SecretsApi { server, .. } = api;
    let store = server.store.clone();
    server.stop().await.unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let base64 = data_encoding::BASE64.encode(CANARY.as_bytes());
        for needle in [CANARY.as_bytes(), base64.as_bytes()] {
            let found = bytes.windows(needle.len()).any(|window| window == needle);
            assert!(!found, "{}", file.display());
        }
    }
    let reopen = |flags: &[&str]| {
        let options = AppOptions::default();
        App::new(config(flags), store.clone(), options).map(drop)
    };
    reopen(&LOCAL).unwrap();
    let other = data_encoding::BASE64.encode(&[7; 32]);
    let error = reopen(&["--secrets-key", &other]).unwrap_err().to_string();
    assert!(error.contains("cannot be opened"), "{error}");
    std::fs::remove_file(dir.path().join("secrets.key")).unwrap();
    let error = reopen(&LOCAL).unwrap_err().to_string();
    assert!(error.contains("is missing"), "{error}");
}

/// `WORKFLOW.md` whose setup script writes the names of its environment variables and hashes of some values
/// to files, which the agent adds to its change.
const ENVIRONMENT_DUMP: &str = "---\nsetup: |\n  env | cut -d= -f1 | sort > names.txt\n  for name in TOKEN SHARED GREETING; do printf '%s=' $name; printf %s \"${!name}\" | sha256sum; done > values.txt\n  echo \"the token is $TOKEN\"\n---\n";

#[tokio::test(flavor = "multi_thread")]
async fn session_gets_only_the_secrets_of_its_team() {
    let greeting = [("GREETING".to_owned(), "hello".to_owned())];
    let mapping = crate::test_env::mapping();
    let other = Mapping {
        team_key: "ENG2".into(),
        ..mapping.clone()
    };
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        mappings: vec![
            Mapping {
                extra_env: greeting.into(),
                ..mapping
            },
            other,
        ],
        extra_flags: vec![("--runner-mode", "local".to_owned())],
        ..TestEnvOptions::default()
    })
    .await;
    let settings = [("WORKFLOW.md", ENVIRONMENT_DUMP)];
    env.repo().commit("main", &settings, "Settings").unwrap();
    for (path, name, value) in [
        (GLOBAL, "SHARED", "shared-by-all-teams"),
        (GLOBAL, "TOKEN", "overridden-global-token"),
        (TEAM, "TOKEN", CANARY),
        (OTHER, "TOKEN", "token-of-the-other-team"),
        (OTHER, "THEIRS", "only-for-the-other-team"),
    ] {
        env.admin_post(path, json!({"name": name, "value": value}))
            .await;
    }
    let copy_files = ScriptStep::Run {
        command: "cp names.txt seen-names.txt; cp values.txt seen-values.txt".to_owned(),
    };
    env.set_agent_script("ENG-1", Script::new().pass([copy_files]));
    env.create_labelled_issue("ENG-1", "Show the environment");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:#?}");
    let file = |path| env.repo().read_file(&job.branch, path).unwrap();
    let names = file("seen-names.txt");
    let names: Vec<&str> = names.lines().collect();
    for expected in ["GREETING", "SHARED", "TOKEN"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    let hidden = [
        "THEIRS",
        "ENG_TOKEN",
        "ENG2_TOKEN",
        "RUN_CONFIG",
        "SESSION_NONCE",
        "ANTHROPIC_API_KEY",
    ];
    for name in hidden {
        assert!(!names.contains(&name), "{names:?}");
    }
    let line = |name: &str, value: &str| format!("{name}={}  -", sha256_hex(value));
    assert_eq!(
        file("seen-values.txt").lines().collect::<Vec<_>>(),
        [
            line("TOKEN", CANARY),
            line("SHARED", "shared-by-all-teams"),
            line("GREETING", "hello"),
        ]
    );
    let comments = env.comments("ENG-1").join("\n");
    let steps = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    for text in [comments, steps.to_string()] {
        assert!(!text.contains(CANARY), "{text}");
    }
    env.finish().await;
}
