//! `/api/github-app/manifest`, and the page to which GitHub sends the person back: the creation of the GitHub App.
//!
//! The person comes back by a navigation from another site, without the session cookie. The state in the address, and a
//! cookie of its own that only this page gets, take its place.

use warp::http::header::{COOKIE, HOST, HeaderMap, HeaderValue, LOCATION, SET_COOKIE};
use warp::http::{StatusCode, Uri};
use warp::reply::Response;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::error::{ApiError, error_page};
use super::html_page::link;
use super::routing::{ApiResult, QueryParams, Route, ok};
use domain::audit::Actor;
use engine::app::App;
use engine::config::is_loopback;
use engine::github_app::{self, GitHubAppError, LIFETIME, RETURN_PATH, ReturnAddress};

/// Name of the cookie that binds a creation to the browser.
const COOKIE_NAME: &str = "agent_implement_github_app";

/// Panel on which the person continues.
const PANEL: &str = "/admin/connections";

/// Routes of `/api/github-app`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/github-app/manifest", "beginGitHubApp", begin).returns::<BegunAppView>()]
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GitHubAppManifest")]
struct BegunAppView {
    /// Page of GitHub to which the manifest is sent as the field `manifest` of a form.
    action: String,
    /// Manifest of the App.
    manifest: Value,
    /// State that GitHub sends back. It is valid once, for an hour.
    state: String,
}

async fn begin(by: Actor, headers: HeaderMap, params: QueryParams, app: App) -> ApiResult {
    let address = return_address(&app, &headers)?;
    let organization = params.get("organization").map(String::as_str);
    let begun = github_app::begin(&app, by, organization, &address).await?;
    let mut response = ok(&BegunAppView {
        action: begun.action,
        manifest: begun.manifest,
        state: begun.state.expose().to_owned(),
    });
    if let Some(binding) = &begun.binding {
        set_cookie(&mut response, binding.expose(), &address.base);
    }
    Ok(response)
}

/// Returns the address to which GitHub sends the person back: the public one, else the one that the browser uses, if it
/// is on this machine.
fn return_address(app: &App, headers: &HeaderMap) -> Result<ReturnAddress, GitHubAppError> {
    if let Some(public) = &app.core.config.callback_base_url {
        let host = host(headers);
        return Ok(ReturnAddress {
            is_same_browser: host.is_some() && authority(public).as_deref() == host,
            base: public.clone(),
        });
    }
    let sentence = "GitHub cannot send you back: this service has no public address. Set RUNNER_CALLBACK_BASE_URL, or open the panel on the machine of the service, such as by `ssh -L 8080:127.0.0.1:8080`.";
    match local_address(headers) {
        Some(base) => Ok(ReturnAddress {
            base,
            is_same_browser: true,
        }),
        None => Err(GitHubAppError::Invalid(sentence.to_owned())),
    }
}

/// Address of this machine that the browser uses; `None` if it uses another.
pub(super) fn local_address(headers: &HeaderMap) -> Option<String> {
    let host = host(headers)?;
    let seen = format!("http://{host}");
    (is_loopback(&seen) && authority(&seen).as_deref() == Some(host)).then_some(seen)
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

fn authority(url: &str) -> Option<String> {
    let uri = url.parse::<Uri>().ok()?;
    Some(uri.authority()?.as_str().to_owned())
}

/// Handles the return of the person: finishes the creation, and continues in the panel.
pub(super) async fn finish(app: &App, headers: &HeaderMap, params: &QueryParams) -> Response {
    let refusal = match try_finish(app, headers, params).await {
        // GitHub gives the key of the App once, so another machine must have it, too.
        Ok(()) => match &app.live.standby {
            Some(standby) if !standby.covered().await => Some(ApiError::not_in_standby()),
            _ => None,
        },
        Err(error) => Some(error.into()),
    };
    match refusal {
        None => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::SEE_OTHER;
            let headers = response.headers_mut();
            headers.insert(LOCATION, HeaderValue::from_static(PANEL));
            set_cookie(&mut response, "", "");
            response
        }
        Some(refusal) => error_page(&refusal, &link(PANEL, "Continue in the panel")),
    }
}

/// Finishes the creation with what the browser brought back.
///
/// # Errors
/// Same as [`github_app::finish`].
pub(super) async fn try_finish(
    app: &App,
    headers: &HeaderMap,
    params: &QueryParams,
) -> Result<(), GitHubAppError> {
    let param = |name: &str| params.get(name).map_or("", String::as_str);
    github_app::finish(app, param("code"), param("state"), cookie(headers)).await
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let texts = headers.get_all(COOKIE).iter();
    let pairs = texts.filter_map(|text| text.to_str().ok());
    let mut pairs = pairs.flat_map(|pairs| pairs.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

/// Sets the cookie, or deletes it if the value is empty. Browsers send it with the navigation from GitHub, to the return
/// page only.
pub(super) fn set_cookie(response: &mut Response, value: &str, base: &str) {
    let secure = if base.starts_with("https://") {
        "; Secure"
    } else {
        ""
    };
    let max_age = if value.is_empty() {
        0
    } else {
        LIFETIME.as_secs()
    };
    let text = format!(
        "{COOKIE_NAME}={value}; Path={RETURN_PATH}; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"
    );
    // Values are URL-safe base64, so this cannot fail.
    if let Ok(mut text) = HeaderValue::from_str(&text) {
        text.set_sensitive(true);
        response.headers_mut().append(SET_COOKIE, text);
    }
}
