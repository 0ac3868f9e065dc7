//! Creation of the GitHub App from a manifest: two clicks, and every way in which it must not work.

use domain::job::JobState;
use engine::doctor::{self, ServiceState};
use fake_vendors::{FakeService, InjectedFault};
use reqwest::header::{COOKIE, HOST, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, Response, Url, redirect};
use serde_json::{Value, json};
use std::time::Duration;
use store::Store;

use crate::api_server::{ACCESS_CODE, ApiServer};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, app_key};

const MANIFEST: &str = "/api/github-app/manifest";

const WITHOUT_GITHUB: &[&str] = &["--github-app-id", "--github-app-private-key"];

fn options(engine: EngineMode) -> TestEnvOptions {
    TestEnvOptions {
        omitted_flags: WITHOUT_GITHUB,
        engine,
        ..TestEnvOptions::default()
    }
}

/// Browser of a person: it follows no redirect by itself and keeps one cookie.
struct Person<'e> {
    env: &'e TestEnv,
    client: Client,
    cookie: String,
}

impl<'e> Person<'e> {
    fn new(env: &'e TestEnv) -> Self {
        let client = Client::builder().redirect(redirect::Policy::none());
        Self {
            env,
            client: client.build().unwrap(),
            cookie: String::new(),
        }
    }

    /// Begins in the panel. Returns the response of the service.
    async fn begin(&mut self) -> Value {
        let url = format!("{}{MANIFEST}", self.env.address);
        let token = self.env.sign_in().await;
        let begun = self
            .client
            .get(url)
            .bearer_auth(token)
            .send()
            .await
            .unwrap();
        assert_eq!(begun.status(), 200);
        let cookie = begun.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/admin/github-app/created"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        self.cookie = cookie.split(';').next().unwrap().to_owned();
        begun.json().await.unwrap()
    }

    /// Sends the manifest to GitHub and confirms. Returns the address to which GitHub sends the person back.
    async fn confirm(&self, begun: &Value) -> String {
        let action = begun["action"].as_str().unwrap();
        confirm_app(&self.client, action, &begun["manifest"].to_string()).await
    }

    async fn follow(&self, address: &str) -> Response {
        let request = self.client.get(address).header(COOKIE, &self.cookie);
        request.send().await.unwrap()
    }

    /// Follows an address that is refused. Returns status and page.
    async fn refused(&self, address: &str) -> (u16, String) {
        let response = self.follow(address).await;
        let status = response.status().as_u16();
        let policy = response.headers()["content-security-policy"].to_str();
        assert!(policy.unwrap().contains("frame-ancestors 'none'"));
        let page = response.text().await.unwrap();
        let key = app_key();
        for secret in [&key[40..80], "the-client-secret-of-the-fake-app", "<script"] {
            assert!(!page.contains(secret), "{page}");
        }
        (status, page)
    }
}

/// Sends a manifest to GitHub and confirms. The client follows no redirect. Returns the address to which GitHub sends
/// the person back.
pub async fn confirm_app(client: &Client, action: &str, manifest: &str) -> String {
    let mut form = Url::parse("http://form").unwrap();
    form.query_pairs_mut().append_pair("manifest", manifest);
    let form = form.query().unwrap().to_owned();
    let page = client.post(action).body(form).send().await.unwrap();
    let status = page.status();
    let page = page.text().await.unwrap();
    assert_eq!(status, 200, "{page}");
    let action = page.split("action=\"").nth(1).unwrap();
    let action = action.split('"').next().unwrap().replace("&amp;", "&");
    let back = client.post(action).send().await.unwrap();
    assert_eq!(back.status(), 302);
    back.headers()[LOCATION].to_str().unwrap().to_owned()
}

async fn github(env: &TestEnv) -> Value {
    let all = env.admin_get("/api/connections").await;
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == "github").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clicks_create_the_app_that_runs_tickets() {
    let env = TestEnv::with_options(options(EngineMode::Running)).await;
    let mut person = Person::new(&env);
    let begun = person.begin().await;
    let manifest = &begun["manifest"];
    assert_eq!(manifest["public"], false);
    assert_eq!(manifest["hook_attributes"]["active"], false);
    let permissions = manifest["default_permissions"].as_object().unwrap();
    for (name, level) in [
        ("contents", "write"),
        ("issues", "write"),
        ("checks", "read"),
    ] {
        assert_eq!(permissions[name], level);
    }
    assert!(
        manifest["default_events"]
            .as_array()
            .unwrap()
            .contains(&json!("issues"))
    );
    let back = person.confirm(&begun).await;
    assert!(back.starts_with(&format!("{}/admin/github-app/created?code=", env.address)));

    let created = person.follow(&back).await;
    assert_eq!(created.status(), 303);
    assert_eq!(created.headers()[LOCATION], "/admin/connections");
    let shown = github(&env).await;
    assert_eq!(
        (&shown["source"], &shown["status"]),
        (&json!("stored"), &json!("ok"))
    );
    let install = shown["installUrl"].as_str().unwrap();
    assert!(install.ends_with("/installations/new"), "{install}");

    let (status, page) = person.refused(&back).await;
    assert_eq!(status, 403);
    assert!(page.contains("was used before"), "{page}");
    assert_eq!(github(&env).await["source"], "stored");

    env.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    let audit = env.admin_get("/api/audit").await.to_string();
    assert!(audit.contains("github-app-asked") && audit.contains("connection-set"));
    assert!(!audit.contains(&app_key()[40..80]));
    let state = begun["state"].as_str().unwrap();
    assert!(!audit.contains(state));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_state_and_a_wrong_code_are_refused_and_store_nothing() {
    let env = TestEnv::with_options(options(EngineMode::manual())).await;
    let mut person = Person::new(&env);
    let base = format!("{}/admin/github-app/created", env.address);

    // Nothing, a guessed state, and markup.
    for query in [
        "",
        "?code=&state=",
        "?code=abc",
        "?code=abc&state=guess",
        "?code=%3Cscript%3E&state=%3Cscript%3E",
        "?code=../../app&state=x",
    ] {
        let (status, page) = person.refused(&format!("{base}{query}")).await;
        assert!([400, 403].contains(&status), "{query}: {status} {page}");
    }

    // Another browser cannot use the state, nor use it up.
    let begun = person.begin().await;
    let back = person.confirm(&begun).await;
    let stranger = Person::new(&env);
    let (status, page) = stranger.refused(&back).await;
    assert_eq!(status, 403);
    assert!(page.contains("another browser"), "{page}");
    let bad_code = back.replace("code=", "code=..%2F");
    assert_eq!(person.refused(&bad_code).await.0, 400);

    // A code that GitHub does not know any more.
    env.vendors.github().expire_app_codes();
    let (status, page) = person.refused(&back).await;
    assert_eq!(status, 400);
    assert!(page.contains("does not accept the code"), "{page}");

    // A state that is older than an hour.
    let begun = person.begin().await;
    let back = person.confirm(&begun).await;
    env.advance_clock(Duration::from_secs(60 * 60));
    assert_eq!(person.refused(&back).await.0, 403);

    // A request that GitHub did not receive can be repeated; a response that was lost cannot.
    let begun = person.begin().await;
    let back = person.confirm(&begun).await;
    let faults = env.vendors.faults(FakeService::GitHub);
    faults.inject_on_match(
        "app-manifests",
        InjectedFault::RateLimited(Duration::from_secs(1)),
    );
    let (status, page) = person.refused(&back).await;
    assert_eq!(status, 503, "{page}");
    assert!(page.contains("Reload this page"), "{page}");
    faults.inject_on_match("app-manifests", InjectedFault::DropResponse);
    let (status, page) = person.refused(&back).await;
    assert_eq!(status, 502, "{page}");
    assert!(page.contains("Delete the App on GitHub"), "{page}");
    assert_eq!(person.refused(&back).await.0, 403);
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let exchanges = requests
        .iter()
        .filter(|one| one.url.contains("app-manifests"));
    assert_eq!(exchanges.count(), 3);

    let shown = github(&env).await;
    assert_eq!(
        (&shown["source"], &shown["stored"]),
        (&json!("none"), &json!(false))
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_takes_precedence_and_the_doctor_checks_the_app() {
    let env = TestEnv::with_options(TestEnvOptions {
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    let (status, body) = env.admin_request(Method::GET, MANIFEST, None).await;
    assert_eq!(status, 409, "{body}");
    let findings = || async {
        let found = doctor::examine(&env.app, ServiceState::Running)
            .await
            .unwrap();
        let found = found.into_iter().filter(|one| one.check == "github-app");
        found
            .map(|one| (one.level.as_str(), one.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(findings().await[0].0, "ok");
    env.vendors.github().deny_permission("issues");
    let found = findings().await;
    assert_eq!(found[0].0, "error");
    assert!(found[0].1.contains("issues: write"), "{found:?}");
    // The check of the clock calls addresses that no contract covers.
    let stopped = env.stop_service().await;
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test]
async fn the_manifest_names_the_public_address_or_that_of_this_machine() {
    let access = ["--admin-access-code", ACCESS_CODE];
    let local = ApiServer::start_with(&access, Store::in_memory().unwrap()).await;
    let token = local.sign_in().await;
    let begin = |server: &ApiServer, token: &str, path: &str, host: Option<&str>| {
        let request = server.request("GET", path).bearer_auth(token);
        let request = match host {
            Some(host) => request.header(HOST, host),
            None => request,
        };
        async move {
            let response = request.send().await.unwrap();
            let has_cookie = response.headers().contains_key(SET_COOKIE);
            let status = response.status().as_u16();
            (status, has_cookie, response.json::<Value>().await.unwrap())
        }
    };
    let (status, has_cookie, begun) = begin(&local, &token, MANIFEST, None).await;
    assert_eq!((status, has_cookie), (200, true));
    let action = begun["action"].as_str().unwrap();
    assert!(
        action.starts_with("https://github.com/settings/apps/new?state="),
        "{action}"
    );
    let redirect = format!("http://{}/admin/github-app/created", local.address);
    assert_eq!(begun["manifest"]["redirect_url"], redirect.as_str());
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example#127.0.0.1",
    ] {
        let (status, _, body) = begin(&local, &token, MANIFEST, Some(host)).await;
        assert_eq!(status, 400, "{host}: {body}");
    }
    let of_acme = format!("{MANIFEST}?organization=acme");
    let (_, _, begun) = begin(&local, &token, &of_acme, None).await;
    let action = begun["action"].as_str().unwrap();
    assert!(action.starts_with("https://github.com/organizations/acme/settings/apps/new?"));
    let bad = format!("{MANIFEST}?organization=a/b");
    assert_eq!(begin(&local, &token, &bad, None).await.0, 400);
    assert_eq!(local.send("GET", MANIFEST, "", None).await.status, 401);

    // Only the page that sends the form may send it, and to this origin alone.
    let policy = |path: &'static str| {
        let request = local.request("GET", path);
        async move {
            let response = request.send().await.unwrap();
            let policy = response.headers()["content-security-policy"].to_str();
            policy.unwrap().to_owned()
        }
    };
    assert!(
        policy("/admin/connections")
            .await
            .contains("form-action 'self' https://github.com;")
    );
    for path in ["/admin", "/admin/settings", "/admin/connections/x"] {
        assert!(policy(path).await.contains("form-action 'self';"), "{path}");
    }
    local.stop().await.unwrap();

    let flags = [
        "--admin-access-code",
        ACCESS_CODE,
        "--runner-callback-base-url",
        "https://agents.example.com",
    ];
    let public = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = public.sign_in().await;
    let (_, has_cookie, begun) = begin(&public, &token, MANIFEST, None).await;
    assert!(!has_cookie);
    let hook = json!({"url": "https://agents.example.com/api/repo-host/webhook", "active": true});
    assert_eq!(begun["manifest"]["hook_attributes"], hook);
    let redirect = "https://agents.example.com/admin/github-app/created";
    assert_eq!(begun["manifest"]["redirect_url"], redirect);
    public.stop().await.unwrap();
}
