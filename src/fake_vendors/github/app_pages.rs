//! Creation of the App from a manifest: the pages that a person sees, and the exchange of the code.

use std::collections::HashMap;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::model::Model;
use super::rest::{RestResult, not_found};
use super::{FakeGitHub, GitHubInner};
use crate::clock;
use crate::html_page::HtmlPage;
use crate::http::{HttpRequest, HttpResponse, percent_decode, percent_encode};
use crate::persistence::lock;

const HOUR_MS: i64 = 3_600_000;
/// Longest name of an App, in characters.
const MAX_NAME: usize = 34;

/// Apps that people have created and whose code was not exchanged.
#[derive(Default)]
pub(crate) struct CreatedApps {
    by_code: HashMap<String, CreatedApp>,
    /// Secret of the webhook of the App that was exchanged last.
    webhook_secret: Option<String>,
    /// Manifest that was sent last.
    manifest: Option<Value>,
}

struct CreatedApp {
    created_at: i64,
    has_webhook: bool,
}

impl FakeGitHub {
    /// Returns the manifest that was sent last.
    pub fn app_manifest(&self) -> Option<Value> {
        lock(&self.inner.created_apps).manifest.clone()
    }

    /// Returns the webhook secret of the App that was created last.
    pub fn app_webhook_secret(&self) -> Option<String> {
        lock(&self.inner.created_apps).webhook_secret.clone()
    }

    /// Removes the App from all accounts.
    pub fn uninstall_app(&self) {
        let edit = |model: &mut Model| model.is_app_uninstalled = true;
        self.inner.model.update_and_flush(edit);
    }

    /// Makes all codes older than an hour.
    pub fn expire_app_codes(&self) {
        for app in lock(&self.inner.created_apps).by_code.values_mut() {
            app.created_at -= HOUR_MS + 1;
        }
    }
}

impl GitHubInner {
    /// Handles the pages for a new App, of the person or of an organization.
    pub(super) fn app_page(&self, request: &HttpRequest, path: &[&str]) -> Option<HttpResponse> {
        let path = match path {
            ["organizations", _, rest @ ..] => rest,
            path => path,
        };
        match (request.method.as_str(), path) {
            ("POST", ["settings", "apps", "new"]) => Some(self.new_app_page(request)),
            ("POST", ["settings", "apps"]) => Some(self.create_app(request)),
            ("GET", ["apps" | "github-apps", _, "installations", "new"]) => {
                Some(self.installation_page(request))
            }
            ("POST", ["apps" | "github-apps", _, "installations", "new"]) => {
                Some(self.install_app())
            }
            _ => None,
        }
    }

    /// Shows the form in which the person confirms the App of a manifest.
    fn new_app_page(&self, request: &HttpRequest) -> HttpResponse {
        let text = form_value(request, "manifest").unwrap_or_default();
        let manifest: Value = serde_json::from_slice(text.as_bytes()).unwrap_or_default();
        let problems = manifest_problems(&manifest);
        if !problems.is_empty() {
            return HttpResponse::text(422, format!("Invalid manifest: {}", problems.join("; ")));
        }
        let mut page = HtmlPage::new(&format!("Create GitHub App: {}", manifest["name"]));
        page.preformatted(&format!("{manifest:#}"));
        let redirect = manifest["redirect_url"].as_str().unwrap_or_default();
        let state = request.query_param("state").unwrap_or_default();
        let active = manifest["hook_attributes"]["active"] == true;
        lock(&self.created_apps).manifest = Some(manifest.clone());
        let query = format!(
            "redirect={}&state={}&webhook={active}",
            percent_encode(redirect),
            percent_encode(&state)
        );
        let action = format!("{}/settings/apps?{query}", self.server_url);
        page.button("Create GitHub App", &action);
        page.into_response()
    }

    /// Shows the page on which the person installs the App.
    fn installation_page(&self, request: &HttpRequest) -> HttpResponse {
        let mut page = HtmlPage::new("Install GitHub App");
        let action = format!("{}{}", self.server_url, request.path);
        page.button("Install on all accounts", &action);
        page.into_response()
    }

    fn install_app(&self) -> HttpResponse {
        self.model
            .update(|model: &mut Model| model.is_app_uninstalled = false);
        HtmlPage::new("The App is installed").into_response()
    }

    /// Creates the App, and sends the person back with a code.
    fn create_app(&self, request: &HttpRequest) -> HttpResponse {
        let param = |name: &str| request.query_param(name).unwrap_or_default();
        let bytes: [u8; 20] = std::array::from_fn(|_| fastrand::u8(..));
        let code = HEXLOWER.encode(&bytes);
        let app = CreatedApp {
            created_at: clock::now_ms(),
            has_webhook: param("webhook") == "true",
        };
        lock(&self.created_apps).by_code.insert(code.clone(), app);
        let state = percent_encode(&param("state"));
        let location = format!("{}?code={code}&state={state}", param("redirect"));
        HttpResponse::empty(302).header("location", location)
    }

    /// Handles `POST /app-manifests/{code}/conversions`. Every created App is the one App of this host.
    pub(super) fn convert_manifest(&self, code: &str) -> RestResult {
        let mut apps = lock(&self.created_apps);
        let created = apps.by_code.remove(code);
        let is_valid = |app: &CreatedApp| app.created_at + HOUR_MS > clock::now_ms();
        let created = created.filter(is_valid).ok_or_else(not_found)?;
        let secret: Option<String> = created
            .has_webhook
            .then(|| (0..40).map(|_| fastrand::alphanumeric()).collect());
        apps.webhook_secret.clone_from(&secret);
        let app = &self.app;
        let body = json!({
            "id": app.id, "slug": app.slug, "name": app.slug, "node_id": "A_1",
            "owner": {"login": "sandbox", "id": 1, "type": "User"},
            "client_id": "Iv1.0123456789abcdef", "client_secret": "the-client-secret-of-the-fake-app",
            "webhook_secret": secret, "pem": app.private_key.as_deref().unwrap_or_default(),
            "html_url": format!("{}/apps/{}", self.server_url, app.slug),
            "permissions": self.app_permissions(), "events": [],
        });
        Ok(HttpResponse::json(201, &body))
    }
}

/// Returns a field of a form.
fn form_value(request: &HttpRequest, name: &str) -> Option<String> {
    let body = String::from_utf8_lossy(&request.body);
    body.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| percent_decode(&value.replace('+', " ")))
    })
}

/// Returns what GitHub would refuse of a manifest.
fn manifest_problems(manifest: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let is_url = |value: &Value| {
        let url = value.as_str().unwrap_or_default();
        url.starts_with("https://") || url.starts_with("http://")
    };
    let name = manifest["name"].as_str().unwrap_or_default();
    if name.is_empty() || name.chars().count() > MAX_NAME {
        problems.push("name must have 1 to 34 characters".to_owned());
    }
    for (field, value) in [
        ("url", &manifest["url"]),
        ("redirect_url", &manifest["redirect_url"]),
        ("hook_attributes.url", &manifest["hook_attributes"]["url"]),
    ] {
        if !is_url(value) {
            problems.push(format!("{field} must be a URL"));
        }
    }
    let hook = &manifest["hook_attributes"];
    let hook_url = hook["url"].as_str().unwrap_or_default();
    let is_local = ["//127.0.0.1", "//localhost", "//[::1]"]
        .iter()
        .any(|host| hook_url.contains(host));
    if is_local {
        problems.push(
            "Hook url is not supported because it isn't reachable over the public Internet"
                .to_owned(),
        );
    }
    let levels = manifest["default_permissions"].as_object();
    let are_levels = levels.is_some_and(|levels| {
        let mut levels = levels.values();
        levels.all(|level| level == "read" || level == "write")
    });
    if !are_levels {
        problems.push("default_permissions must have the levels read or write".to_owned());
    }
    if !manifest["default_events"].is_array() {
        problems.push("default_events must be a list".to_owned());
    }
    problems
}
