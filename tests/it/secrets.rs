//! Secrets over HTTP: every refusal of the spec's tables, and that a value never comes out.

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

/// A value that stands nowhere else.
const CANARY: &str = "the-canary-of-a-secret-value";

const LOCAL: [&str; 4] = ["--admin-access-code", ACCESS_CODE, "--runner-mode", "local"];

struct Vault {
    server: ApiServer,
    token: String,
}

impl Vault {
    /// With mappings of two teams whose keys look alike.
    async fn start(store: Store) -> Self {
        let server = ApiServer::start_with(&LOCAL, store).await;
        let token = server.sign_in().await;
        let vault = Self { server, token };
        for team in ["ENG", "ENG2"] {
            let mapping = json!({
                "teamKey": team, "owner": "acme", "repo": "shop", "defaultBranch": "main",
            });
            let saved = vault.ask("POST", "/api/mappings", mapping.to_string());
            assert_eq!(saved.await.status, 200);
        }
        vault
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Option<String>>) -> ApiResponse {
        self.server.send(method, path, &self.token, body).await
    }

    async fn set(&self, path: &str, name: &str, value: &str) -> ApiResponse {
        let body = json!({"name": name, "value": value});
        self.ask("POST", path, body.to_string()).await
    }

    /// The names that a list shows.
    async fn names(&self, path: &str) -> Vec<String> {
        let told = self.ask("GET", path, None).await;
        assert_eq!(told.status, 200, "{told:?}");
        let name = |secret: &Value| secret["name"].as_str().unwrap().to_owned();
        told.body.as_array().unwrap().iter().map(name).collect()
    }

    /// What a session of a team would get.
    fn session(&self, team: &str) -> Vec<String> {
        let app = &self.server.app;
        let opened = app
            .store
            .read(|tx| Ok(app.vault.session_secrets(tx, &TeamKey::from(team))));
        let opened = opened.unwrap().unwrap();
        let show = |(name, value): (&String, &Secret)| format!("{name}={}", value.expose());
        opened.iter().map(show).collect()
    }
}

#[tokio::test]
async fn every_bad_request_is_told_apart() {
    let vault = Vault::start(Store::in_memory().unwrap()).await;
    let fault = "name and value are required";
    let characters = "name must contain only letters, digits, and underscores";
    let rows = [
        ("", "Invalid request body"),
        ("{", "Invalid request body"),
        ("[]", "Invalid request body"),
        ("{}", fault),
        (r#"{"name":"A"}"#, fault),
        (r#"{"name":"A","value":""}"#, fault),
        (r#"{"name":"A","value":7}"#, fault),
        (r#"{"name":"","value":"x"}"#, fault),
        (r#"{"name":7,"value":"x"}"#, fault),
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
        for (body, sentence) in rows {
            let told = vault.ask("POST", path, body.to_owned()).await;
            assert_eq!(told.error(), (400, sentence), "{path} {body}");
        }
        let absent = vault.ask("DELETE", &format!("{path}/NONE"), None).await;
        assert_eq!(absent.error(), (404, "Secret not found"), "{path}");
        let large = json!({"name": "A", "value": "x".repeat((32 << 10) + 1)});
        let told = vault.ask("POST", path, large.to_string()).await;
        assert_eq!(told.error(), (400, "value must be at most 32 KiB"));
        let wrong = vault.ask("PUT", path, None).await;
        assert_eq!(wrong.error(), (405, "Method not allowed"));
        let stranger = vault.server.send("GET", path, "", None).await;
        assert_eq!(stranger.error(), (401, "Unauthorized"));
    }
    let collides = vault.set(GLOBAL, "eng_token", "x").await;
    let sentence = "Secret name must not start with a team key prefix (ENG_)";
    assert_eq!(collides.error(), (400, sentence));
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
        let told = vault.ask(method, &path, body.map(str::to_owned)).await;
        assert_eq!(told.error(), (404, "Team not found"), "{method}");
    }
}

#[tokio::test]
async fn a_secret_is_set_listed_and_deleted_and_stays_with_its_team() {
    let vault = Vault::start(Store::in_memory().unwrap()).await;
    for (path, name, value) in [
        (GLOBAL, "shared", "all"),
        (GLOBAL, "TOKEN", "global"),
        (TEAM, "token", "eng"),
        (TEAM, "npm_token", "old"),
        (TEAM, "NPM_TOKEN", "npm"),
        (OTHER, "TOKEN", "eng2"),
    ] {
        let told = vault.set(path, name, value).await;
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(told.body, json!({"name": name.to_uppercase()}));
    }
    assert_eq!(vault.names(GLOBAL).await, ["SHARED", "TOKEN"]);
    assert_eq!(vault.names(TEAM).await, ["NPM_TOKEN", "TOKEN"]);
    assert_eq!(vault.names(OTHER).await, ["TOKEN"]);
    assert_eq!(
        vault.session("ENG"),
        ["NPM_TOKEN=npm", "SHARED=all", "TOKEN=eng"]
    );
    assert_eq!(vault.session("ENG2"), ["SHARED=all", "TOKEN=eng2"]);

    let told = vault
        .ask("DELETE", &format!("{TEAM}/npm_token"), None)
        .await;
    assert_eq!((told.status, told.body), (200, json!({"deleted": true})));
    assert_eq!(vault.names(TEAM).await, ["TOKEN"]);

    let gone = vault.ask("DELETE", "/api/mappings/ENG", None).await;
    assert_eq!(gone.status, 200);
    assert_eq!(vault.session("ENG"), ["SHARED=all", "TOKEN=global"]);
    assert_eq!(vault.names(OTHER).await, ["TOKEN"]);
}

#[tokio::test]
async fn without_sessions_there_are_no_secrets() {
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
        let told = server.send(method, path, &token, None).await;
        assert_eq!(told.error(), (503, "Fly sessions config not set"), "{path}");
    }
}

#[tokio::test]
async fn a_value_lies_on_no_disk_and_a_wrong_key_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::start(Store::open(dir.path()).unwrap()).await;
    for path in [GLOBAL, TEAM] {
        assert_eq!(vault.set(path, "CANARY", CANARY).await.status, 200);
        let listed = vault.ask("GET", path, None).await.body.to_string();
        assert!(!listed.contains(CANARY));
    }
    let Vault { server, .. } = vault;
    let app = server.app.clone();
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
    let reopened = |flags: &[&str]| {
        let setting = AppOptions::default();
        App::new(config(flags), app.store.clone(), setting).map(drop)
    };
    reopened(&LOCAL).unwrap();
    let other = data_encoding::BASE64.encode(&[7; 32]);
    let told = reopened(&["--secrets-key", &other]).unwrap_err();
    assert!(told.contains("cannot be opened"), "{told}");
    std::fs::remove_file(dir.path().join("secrets.key")).unwrap();
    let told = reopened(&LOCAL).unwrap_err();
    assert!(told.contains("is missing"), "{told}");
}

/// What the repository's setup script sees of its environment: names, and of the values only what
/// nobody could turn back. The agent makes it part of the change.
const LOOK_AROUND: &str = "---\nsetup: |\n  env | cut -d= -f1 | sort > names.txt\n  for name in TOKEN SHARED GREETING; do printf '%s=' $name; printf %s \"${!name}\" | sha256sum; done > values.txt\n  echo \"the token is $TOKEN\"\n---\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_sees_its_own_teams_secrets_and_no_others() {
    let greeting = [("GREETING".to_owned(), "hello".to_owned())];
    let mapping = crate::test_env::mapping();
    let other = Mapping {
        team_key: "ENG2".into(),
        ..mapping.clone()
    };
    let world = TestEnv::with_options(TestEnvOptions {
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
    let settings = [("WORKFLOW.md", LOOK_AROUND)];
    world.repo().commit("main", &settings, "Settings").unwrap();
    for (path, name, value) in [
        (GLOBAL, "SHARED", "shared-by-all-teams"),
        (GLOBAL, "TOKEN", "token-of-nobody"),
        (TEAM, "TOKEN", CANARY),
        (OTHER, "TOKEN", "token-of-the-other-team"),
        (OTHER, "THEIRS", "for-the-other-team-alone"),
    ] {
        world
            .admin_post(path, json!({"name": name, "value": value}))
            .await;
    }
    let keep = ScriptStep::Run {
        command: "cp names.txt seen-names.txt; cp values.txt seen-values.txt".to_owned(),
    };
    world.set_agent_script("ENG-1", Script::new().pass([keep]));
    world.create_labelled_issue("ENG-1", "Look around");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:#?}");
    let file = |path| world.repo().read_file(&job.branch, path).unwrap();
    let names = file("seen-names.txt");
    let names: Vec<&str> = names.lines().collect();
    for seen in ["GREETING", "SHARED", "TOKEN"] {
        assert!(names.contains(&seen), "{names:?}");
    }
    let hidden = [
        "THEIRS",
        "ENG_TOKEN",
        "ENG2_TOKEN",
        "RUN_CONFIG",
        "SESSION_NONCE",
        "ANTHROPIC_API_KEY",
    ];
    for unseen in hidden {
        assert!(!names.contains(&unseen), "{names:?}");
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
    let told = world.comments("ENG-1").join("\n");
    let steps = world
        .admin_get(&format!("/api/jobs/{}/steps", job.id))
        .await;
    for text in [told, steps.to_string()] {
        assert!(!text.contains(CANARY), "{text}");
    }
    world.finish().await;
}
