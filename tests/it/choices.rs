//! `/api/choices/*`: values to choose from in forms.

use fake_vendors::FakeService;
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::test_env::TestEnv;

fn values(list: &Value) -> Vec<&str> {
    let choices = list["choices"].as_array().unwrap().iter();
    choices.map(|one| one["value"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_what_the_vendors_have() {
    let env = TestEnv::with_manual_engine([]).await;
    env.vendors.linear().ensure_team("WEB", "Web");
    for number in 0..120 {
        let repo = env
            .vendors
            .github()
            .repo("acme", &format!("repo-{number:03}"));
        repo.set_secret("KEY", "value-of-no-use");
    }
    let head = env.repo().branches();
    assert!(head.contains(&"main".to_owned()));

    let teams = env.admin_get("/api/choices/teams?system=A").await;
    assert_eq!(
        (&teams["error"], &teams["note"]),
        (&json!(null), &json!(null))
    );
    assert!(values(&teams).contains(&"ENG") && values(&teams).contains(&"WEB"));
    let web = teams["choices"].as_array().unwrap().iter();
    let web = web.into_iter().find(|one| one["value"] == "WEB").unwrap();
    assert_eq!(web, &json!({"value": "WEB", "label": "Web"}));

    let projects = env.admin_get("/api/choices/teams?system=B").await;
    assert_eq!(
        projects["choices"],
        json!([{"value": "OPS", "label": "Operations"}])
    );

    let repositories = env.admin_get("/api/choices/repositories").await;
    assert_eq!(repositories["error"], Value::Null);
    assert!(values(&repositories).contains(&"acme/shop"));
    assert!(
        values(&repositories).contains(&"acme/repo-119"),
        "the second page"
    );

    let branches = env
        .admin_get("/api/choices/branches?owner=acme&repo=shop")
        .await;
    assert_eq!(
        branches["choices"][0],
        json!({"value": "main", "label": "main", "note": "Default branch of the repository."})
    );
    let unknown = env
        .admin_get("/api/choices/branches?owner=acme&repo=none")
        .await;
    assert_eq!(unknown["choices"], json!([]));
    let sentence = unknown["error"].as_str().unwrap();
    assert!(
        sentence.starts_with("GitHub shows no repository acme/none."),
        "{sentence}"
    );

    // A list is kept for 30 seconds, a failure is not.
    let linear = env.vendors.faults(FakeService::Linear);
    linear.set_outage(true);
    assert_eq!(env.admin_get("/api/choices/teams?system=A").await, teams);
    env.advance_clock(std::time::Duration::from_secs(31));
    let failed = env.admin_get("/api/choices/teams?system=A").await;
    assert_eq!(failed["choices"], json!([]));
    assert!(
        failed["error"].as_str().unwrap().starts_with("Linear "),
        "{failed}"
    );
    linear.clear();
    assert_eq!(env.admin_get("/api/choices/teams?system=A").await, teams);
    env.stop().await;
}

#[tokio::test]
async fn says_what_is_missing() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let get = |path: &str| {
        let path = format!("/api/choices/{path}");
        let (server, token) = (&server, token.clone());
        async move { server.send("GET", &path, &token, None).await }
    };
    for (path, sentence) in [
        ("teams?system=A", "Linear is not configured."),
        ("teams?system=B", "Jira is not configured."),
        ("teams?system=C", "GitHub is not configured."),
        ("repositories", "GitHub is not configured."),
        ("branches?owner=acme&repo=shop", "GitHub is not configured."),
    ] {
        let response = get(path).await;
        let expected = json!({"choices": [], "error": sentence, "note": null});
        assert_eq!((response.status, response.body), (200, expected), "{path}");
    }
    let owner = "owner must be an account name: letters, digits, '_' and '-', not a path";
    let repo = "repo must be a repository name: letters, digits, '.', '_' and '-', not a path";
    for (path, error) in [
        ("teams", "system must be A, B or C"),
        ("teams?system=D", "system must be A, B or C"),
        ("branches?owner=acme", "owner and repo are required"),
        ("branches?owner=..&repo=user", owner),
        ("branches?owner=a%2Fb&repo=user", owner),
        ("branches?owner=acme&repo=..", repo),
        ("branches?owner=acme&repo=", repo),
    ] {
        assert_eq!(get(path).await.error(), (400, error), "{path}");
    }
    let agents = get("agents").await;
    assert_eq!(values(&agents.body), ["claude", "codex", "gemini"]);
    let models = get("models?agent=claude").await;
    assert_eq!(models.body["choices"], json!([]));
    assert_eq!(models.body["note"], "No run has reported a model yet.");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn lists_the_models_of_the_latest_runs() {
    use crate::api_server::dispatched_job;
    use domain::job::{Job, JobKind};
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    for (id, agent, model) in [
        ("01A", "claude", "opus"),
        ("01B", "codex", "gpt"),
        ("01C", "claude", "opus"),
    ] {
        let job = Job {
            agent: Some(agent.to_owned()),
            model: Some(model.to_owned()),
            ..dispatched_job(id, JobKind::Implementation)
        };
        server.put_job(&job).await;
    }
    let all = server
        .send("GET", "/api/choices/models", &token, None)
        .await;
    assert_eq!(values(&all.body), ["gpt", "opus"]);
    let path = "/api/choices/models?agent=claude";
    let of_claude = server.send("GET", path, &token, None).await;
    assert_eq!(
        of_claude.body["choices"],
        json!([{"value": "opus", "label": "opus"}])
    );
    server.stop().await.unwrap();
}
