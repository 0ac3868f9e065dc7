//! The GitHub App that `init` creates from a manifest, with the person's browser.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use reqwest::header::{COOKIE, HOST, SET_COOKIE};
use reqwest::{Client, redirect};
use serde_json::{Value, json};

use super::{NewMachine, Running, Terminal, text_of, wait_until};
use crate::github_app::confirm_app;
use crate::process::ServiceProcess;
use crate::test_env::app_key;

const ARGUMENTS: [&str; 4] = ["--runner", "ci", "--system", "github"];

/// Browser of the person at the page that `init` prints.
struct Browser {
    client: Client,
    address: String,
    cookie: String,
}

impl Browser {
    /// Takes the address from what the command has printed last.
    fn at(shown: &str) -> Self {
        let address = shown.rsplit("http://127.0.0.1:").next().unwrap();
        let address = address.split_whitespace().next().unwrap();
        let client = Client::builder().redirect(redirect::Policy::none());
        Self {
            client: client.build().unwrap(),
            address: format!("http://127.0.0.1:{address}"),
            cookie: String::new(),
        }
    }

    fn base(&self) -> &str {
        self.address.split("/?").next().unwrap()
    }

    fn key(&self) -> &str {
        self.address.split("key=").nth(1).unwrap()
    }

    /// Opens an address. Returns the status and the page.
    async fn open(&self, address: &str) -> (u16, String) {
        let request = self.client.get(address).header(COOKIE, &self.cookie);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let page = response.text().await.unwrap();
        for secret in [&app_key()[40..80], "the-client-secret", "<script"] {
            assert!(!page.contains(secret), "{page}");
        }
        (status, page)
    }

    /// Opens the first page. Returns the action and the manifest of its form.
    async fn begin(&mut self) -> (String, String) {
        let response = self.client.get(&self.address).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let policy = &response.headers()["content-security-policy"];
        assert!(policy.to_str().unwrap().contains("form-action 'self' http"));
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        self.cookie = cookie.split(';').next().unwrap().to_owned();
        let page = response.text().await.unwrap();
        let value = |before: &str| {
            let value = page.split(before).nth(1).unwrap();
            let value = value.split('"').next().unwrap();
            value.replace("&quot;", "\"").replace("&amp;", "&")
        };
        (value("action=\""), value("value=\""))
    }

    /// Creates the App at GitHub. Returns the address to which GitHub sends the person back.
    async fn create(&mut self) -> String {
        let (action, manifest) = self.begin().await;
        confirm_app(&self.client, &action, &manifest).await
    }

    /// Presses the button on GitHub's page for installations.
    async fn install(&self, page: &str) {
        let installed = self.client.post(page).send().await.unwrap();
        assert_eq!(installed.status(), 200);
    }
}

/// Address of GitHub's page for installations in what was printed.
fn installation_page(shown: &str) -> &str {
    let after = shown.rsplit("Install the App on the repository: ").next();
    after.unwrap().split_whitespace().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn enter_creates_an_app_and_its_repositories_are_offered() {
    let machine = NewMachine::start().await;
    let github = machine.vendors.github();
    github.uninstall_app();
    let mut terminal = Terminal::start(&machine, "init --runner ci --system github");
    terminal.answer("GitHub token (not shown", "");
    terminal.answer("Enter for your own account: ", "no/name");
    terminal.answer("Enter for your own account: ", "acme");
    terminal.wait_for("Waiting for the App.");
    let shown = terminal.shown();
    assert!(shown.contains("ssh -L "), "{shown}");
    let mut browser = Browser::at(&shown);

    // Others on this machine do not know the key. Pages of other sites have another host.
    let refused = [
        format!("{}/", browser.base()),
        format!("{}/?key=guess", browser.base()),
        format!("{}/admin/github-app/created", browser.base()),
        format!(
            "{}/admin/github-app/created?code=abc&state=guess",
            browser.base()
        ),
    ];
    for address in &refused {
        let (status, page) = browser.open(address).await;
        assert!([400, 403].contains(&status), "{address}: {status} {page}");
        assert!(!page.contains(browser.key()), "{page}");
    }
    let foreign = browser
        .client
        .get(&browser.address)
        .header(HOST, "evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), 400);

    let (action, manifest) = browser.begin().await;
    assert!(action.contains("/organizations/acme/settings/apps/new?state="));
    assert!(manifest.contains("\"active\":false"), "{manifest}");
    let back = confirm_app(&browser.client, &action, &manifest).await;
    assert!(back.starts_with(browser.base()), "{back}");
    let stranger = Browser::at(&shown);
    let (status, page) = stranger.open(&back).await;
    assert_eq!(status, 403);
    assert!(page.contains("began in another browser"), "{page}");
    github.expire_app_codes();
    let (status, page) = browser.open(&back).await;
    assert_eq!(status, 400);
    assert!(page.contains("GitHub does not accept the code"), "{page}");
    assert_eq!(browser.open(&back).await.0, 403, "a state works once");

    let back = browser.create().await;
    let (status, page) = browser.open(&back).await;
    assert_eq!(status, 200);
    assert!(page.contains("/installations/new"), "{page}");
    terminal.wait_for("Waiting for the installation.");
    let shown = terminal.shown();
    assert!(shown.contains("Created the GitHub App."), "{shown}");
    assert!(!shown.contains("Which repository"), "{shown}");
    browser.install(installation_page(&shown)).await;
    terminal.answer("Number or name [1]: ", "1");
    let (code, text) = terminal.end();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1) acme/web.shop"), "{text}");
    assert!(text.contains("Stored project web-shop."), "{text}");

    for stored in [&app_key()[40..80], "GITHUB_TOKEN", "GITHUB_APP_ID"] {
        assert!(!text.contains(&app_key()[40..80]), "{text}");
        for (path, content) in machine.files() {
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(stored), "{stored} in {}", path.display());
        }
    }
    let store = fs::read(machine.path("data/agent-implement.redb")).unwrap();
    let key = app_key().as_bytes()[40..80].to_vec();
    assert!(
        !store.windows(key.len()).any(|part| part == key),
        "the key is sealed"
    );

    let files = machine.files();
    let again = [&ARGUMENTS[..], &["--create-github-app=acme"]].concat();
    let (code, text) = machine.init(&again, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("Open this page"), "{text}");
    assert!(
        text.contains("Project web-shop is stored already."),
        "{text}"
    );
    assert!(machine.files() == files, "a file changed");
    machine.assert_requests_conform();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_waits_for_the_browser_and_continues_after_a_kill() {
    let machine = NewMachine::start().await;
    machine.vendors.github().uninstall_app();
    let wrong = [&ARGUMENTS[..], &["--create-github-app=no/name"]].concat();
    let (code, text) = machine.init(&wrong, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("must be the name of an organization"),
        "{text}"
    );
    let arguments = [&ARGUMENTS[..], &["--create-github-app"]].concat();
    let start = || {
        let mut command = machine.command(&arguments, &["GITHUB_TOKEN"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let shown = text_of(child.stdout.take().unwrap());
        (Running(child), shown)
    };
    // Killed before the App is created: the address of the next start is another.
    let (child, shown) = start();
    wait_until("the address", || {
        shown.lock().unwrap().contains("Waiting for the App.")
    });
    let first = Browser::at(&shown.lock().unwrap());
    drop(child);
    assert!(first.client.get(&first.address).send().await.is_err());

    let (child, shown) = start();
    wait_until("the address", || {
        shown.lock().unwrap().contains("Waiting for the App.")
    });
    let mut browser = Browser::at(&shown.lock().unwrap());
    assert_ne!(first.key(), browser.key());
    let back = browser.create().await;
    assert!(!back.contains("/organizations/"));
    assert_eq!(browser.open(&back).await.0, 200);
    wait_until("the App", || {
        shown
            .lock()
            .unwrap()
            .contains("Waiting for the installation.")
    });
    // Killed before it is installed: it is not created again.
    drop(child);
    let (code, text) = machine.init(&ARGUMENTS, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 1);
    assert!(
        text.contains("the GitHub App is not installed yet. Install it"),
        "{text}"
    );

    let (mut child, shown) = start();
    wait_until("the App", || {
        shown
            .lock()
            .unwrap()
            .contains("Waiting for the installation.")
    });
    assert!(!shown.lock().unwrap().contains("Open this page"));
    let page = installation_page(&shown.lock().unwrap()).to_owned();
    browser.install(&page).await;
    let status = tokio::task::spawn_blocking(move || child.0.wait().unwrap());
    let code = status.await.unwrap().code();
    assert_eq!(code, Some(0), "{}", shown.lock().unwrap());
    let text = shown.lock().unwrap().clone();
    assert!(text.contains("Stored project web-shop."), "{text}");
    assert!(!text.contains(&app_key()[40..80]), "{text}");
    let requests = machine.vendors.requests().all();
    let exchanged = requests
        .iter()
        .filter(|one| one.url.contains("app-manifests"));
    assert_eq!(exchanged.count(), 1, "one App");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_creates_the_app_in_its_panel() {
    let machine = NewMachine::start().await;
    let data = machine.path("data");
    fs::create_dir_all(&data).unwrap();
    let api_url = machine.vendors.github_api_url();
    let code = "the access code of the panel";
    let flags = ["--admin-access-code", code, "--github-api-url", &api_url];
    let service = tokio::task::block_in_place(|| ServiceProcess::start(&data, &flags));
    let mut command = machine.command(
        &[&ARGUMENTS[..], &["--create-github-app"]].concat(),
        &["GITHUB_TOKEN"],
    );
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = text_of(child.stdout.take().unwrap());
    let mut child = Running(child);
    wait_until("the panel", || {
        shown
            .lock()
            .unwrap()
            .contains("The service runs. Create the App in its panel: ")
    });

    let client = Client::builder().redirect(redirect::Policy::none());
    let mut browser = Browser {
        client: client.build().unwrap(),
        address: service.address.clone(),
        cookie: String::new(),
    };
    let signed_in = browser.client.post(format!("{}/api/auth", service.address));
    let signed_in = signed_in
        .body(json!({"code": code}).to_string())
        .send()
        .await
        .unwrap();
    let token: Value = signed_in.json().await.unwrap();
    let begun = browser
        .client
        .get(format!("{}/api/github-app/manifest", service.address));
    let begun = begun.bearer_auth(token["token"].as_str().unwrap());
    let begun = begun.send().await.unwrap();
    let cookie = begun.headers()[SET_COOKIE].to_str().unwrap();
    browser.cookie = cookie.split(';').next().unwrap().to_owned();
    let begun: Value = begun.json().await.unwrap();
    let (action, manifest) = (
        begun["action"].as_str().unwrap(),
        begun["manifest"].to_string(),
    );
    let back = confirm_app(&browser.client, action, &manifest).await;
    assert_eq!(browser.open(&back).await.0, 303);

    let mut error = child.0.stderr.take().unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        error.read_to_string(&mut text).unwrap();
        (child.0.wait().unwrap().code(), text)
    });
    let (exit_code, error) = ended.await.unwrap();
    let text = shown.lock().unwrap().clone();
    assert!(text.contains("Created the GitHub App."), "{text}{error}");
    // The settings are new, too, and the service is not that of the package.
    assert_eq!(exit_code, Some(1), "{text}{error}");
    assert!(
        error.contains("Stop it and run this command again"),
        "{error}"
    );
    tokio::task::block_in_place(|| service.stop());
    let (code, text) = machine.init(&ARGUMENTS, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Stored project web-shop."), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_set_takes_precedence_over_an_app() {
    let machine = NewMachine::start().await;
    let file = machine.path("credentials/GITHUB_TOKEN");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "revoked\n").unwrap();
    let env = machine.path("agent-implement.env");
    fs::write(&env, "DATA_DIR=data\n").unwrap();
    let mut terminal = Terminal::start(&machine, "init --runner ci --system github");
    terminal.wait_for("GitHub answered 401");
    terminal.answer("GitHub token (not shown", "");
    terminal.wait_for("takes precedence over an App. Remove it there");
    let text = terminal.shown();
    assert!(!text.contains("revoked"), "{text}");
    assert!(!text.contains("Open this page"), "{text}");
}
