//! Global override of the runner mode, over HTTP and in dispatches.

use fake_vendors::FakeService;
use serde_json::json;
use store::Store;

use crate::api_server::{ACCESS_CODE, ApiServer};
use crate::test_env::{TestEnv, mapping, mapping_with};

const PATH: &str = "/api/runner-mode";

async fn server(flags: &[&str], store: Store) -> (ApiServer, String) {
    let all: Vec<&str> = [
        "--admin-access-code",
        ACCESS_CODE,
        "--docker-host",
        "tcp://127.0.0.1:1",
    ]
    .into_iter()
    .chain(flags.iter().copied())
    .collect();
    let server = ApiServer::start_with(&all, store).await;
    let token = server.sign_in().await;
    for (team, execution) in [("ENG", "github-actions"), ("OPS", "fly-machines")] {
        let mapping = json!({
            "teamKey": team, "owner": "acme", "repo": "shop", "defaultBranch": "main",
            "executionMode": execution,
        });
        let saved = server.send("POST", "/api/mappings", &token, mapping.to_string());
        assert_eq!(saved.await.status, 200);
    }
    (server, token)
}

#[tokio::test]
async fn stores_a_mode_and_lists_the_ineligible_projects() {
    let (server, token) = server(&[], Store::in_memory().unwrap()).await;
    let shown = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        (&shown["mode"], &shown["source"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(shown["stored"], json!(null));
    let without_vm = "VM sessions are not configured: set VM_SESSIONS_TOKEN and VM_SESSIONS_APP.";
    assert_eq!(
        shown["ineligible"],
        json!([{"teamKey": "OPS", "reason": without_vm}])
    );

    let bad = "mode must be one of: default, gha, fly, local, shadow";
    for (body, error) in [
        ("", "Invalid request body"),
        ("{", "Invalid request body"),
        ("[]", "Invalid request body"),
        ("{}", bad),
        (r#"{"mode":7}"#, bad),
        (r#"{"mode":"docker"}"#, bad),
        (r#"{"mode":"CI"}"#, bad),
    ] {
        let response = server.send("POST", PATH, &token, body.to_owned()).await;
        assert_eq!(response.error(), (400, error), "{body}");
    }
    for (value, mode, ineligible) in [
        ("gha", "ci", 0),
        ("ci", "ci", 0),
        ("fly", "vm", 2),
        ("vm", "vm", 2),
        ("local", "local", 0),
        ("shadow", "shadow", 2),
        ("default", "default", 1),
    ] {
        let body = json!({"mode": value}).to_string();
        let response = server.send("POST", PATH, &token, body).await;
        assert_eq!(response.status, 200, "{response:?}");
        let shown = server.send("GET", PATH, &token, None).await.body;
        assert_eq!(response.body, shown);
        assert_eq!(shown["mode"], json!(mode));
        assert_eq!(
            (&shown["source"], &shown["stored"]),
            (&json!("stored"), &json!(mode))
        );
        assert_eq!(
            shown["ineligible"].as_array().unwrap().len(),
            ineligible,
            "{shown}"
        );
    }
}

#[tokio::test]
async fn environment_overrides_the_stored_mode() {
    let store = Store::in_memory().unwrap();
    let (overridden, token) = server(&["--runner-mode", "gha"], store.clone()).await;
    let body = json!({"mode": "shadow"}).to_string();
    let response = overridden.send("POST", PATH, &token, body).await;
    let error = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
    assert_eq!(response.error(), (409, error));
    assert_eq!(response.body["persisted"], json!(true));
    assert_eq!(
        (&response.body["mode"], &response.body["source"]),
        (&json!("ci"), &json!("env"))
    );
    let shown = overridden.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        (&shown["mode"], &shown["source"]),
        (&json!("ci"), &json!("env"))
    );
    assert_eq!(
        (&shown["stored"], &shown["env"]),
        (&json!("shadow"), &json!("ci"))
    );
    assert_eq!(shown["ineligible"], json!([]));

    let (server, token) = server(&[], store).await;
    let shown = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        (&shown["mode"], &shown["source"]),
        (&json!("shadow"), &json!("stored"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_several_repositories_are_read_with_one_request() {
    let others = ["OPS", "WEB"].map(|team| {
        let repo = format!("shop-{}", team.to_lowercase());
        mapping_with(&json!({"teamKey": team, "repo": repo}))
    });
    let mapped = std::iter::once(mapping()).chain(others.clone());
    let env = TestEnv::with_manual_engine(mapped.collect::<Vec<_>>()).await;
    for (number, mapping) in others.iter().enumerate() {
        let image = format!("image: ghcr.io/acme/runner:{number}\n");
        let files = [
            ("README.md", "# Shop\n"),
            (".agent-implement/image.yml", &image),
        ];
        let repo = env.vendors.github().repo("acme", &mapping.repo);
        repo.seed(&files, "Initial commit").unwrap();
    }
    for issue in ["ENG-1", "OPS-1", "WEB-1"] {
        env.create_labelled_issue(issue, "Add a feature");
    }
    env.vendors.requests().clear();
    engine::poll::run_once(&env.app).await.unwrap();
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let reads: Vec<&str> = requests
        .iter()
        .map(|request| request.url.as_str())
        .collect();
    let of_images = reads
        .iter()
        .filter(|url| url.contains("image.yml") || url.ends_with("/graphql"));
    assert_eq!(of_images.count(), 1, "{reads:?}");
    for (issue, image) in [
        ("ENG-1", None),
        ("OPS-1", Some("ghcr.io/acme/runner:0")),
        ("WEB-1", Some("ghcr.io/acme/runner:1")),
    ] {
        let job = env.jobs(issue).pop().unwrap();
        assert_eq!(job.session_image.as_deref(), image, "{issue}");
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_selects_its_image_within_the_allowed_prefix() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    let commit = |text: &str| {
        let files = [(".agent-implement/image.yml", text)];
        env.repo().commit("main", &files, "Image").unwrap();
    };
    commit("image: docker.io/evil/runner:1\n");
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert!(env.jobs("ENG-1").is_empty());
    let why = env.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["reason"], json!("ineligible"));
    let message = "acme/shop: .agent-implement/image.yml names docker.io/evil/runner:1, which does not begin with ghcr.io/acme/.";
    assert_eq!(why["decision"]["message"], json!(message));

    commit("image: ghcr.io/acme/shop-runner:3\n");
    env.tick().await;
    let job = env.jobs("ENG-1").pop().unwrap();
    let image = Some("ghcr.io/acme/shop-runner:3");
    assert_eq!(job.session_image.as_deref(), image);
    assert!(job.dispatched_at.is_some());
    env.stop().await;
}
