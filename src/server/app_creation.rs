//! Pages on which a person creates the GitHub App while a service is set up, on a listener of their own.
//!
//! The listener is on loopback, which every user of the machine can reach. The key in the address proves that the person
//! began the setup: otherwise another user could connect an App of their own.

use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;
use warp::http::HeaderMap;
use warp::reply::Response;

use super::error::{ApiError, error_page};
use super::github_app::{self, local_address, set_cookie};
use super::html_page::{escape, html_page, link};
use super::routing::{Access, QueryParams, Route, Router, allow_forms_to};
use domain::audit::Actor;
use domain::crypto::admin_token::constant_time_eq;
use domain::secret::Secret;
use engine::app::App;
use engine::github_app::{
    BegunApp, GitHubAppError, RETURN_PATH, ReturnAddress, begin, install_url, web_origin,
};

/// Creation of an App during a setup.
#[derive(Debug)]
pub struct AppCreationRequest {
    /// Key that the address of the first page must contain.
    pub key: Secret,
    /// Organization that will own the App; `None` for the person.
    pub organization: Option<String>,
}

impl AppCreationRequest {
    /// Path of the first page, with the key.
    pub fn path(&self) -> String {
        format!("/?key={}", self.key.expose())
    }

    /// Builds the page that sends the manifest to GitHub.
    async fn begin(&self, app: &App, headers: &HeaderMap, params: &QueryParams) -> Response {
        match self.try_begin(app, headers, params).await {
            Ok((begun, base)) => {
                let mut page = allow_forms_to(html_page(&form(&begun)), &web_origin(app));
                if let Some(binding) = &begun.binding {
                    set_cookie(&mut page, binding.expose(), &base);
                }
                page
            }
            Err(error) => refusal(error),
        }
    }

    async fn try_begin(
        &self,
        app: &App,
        headers: &HeaderMap,
        params: &QueryParams,
    ) -> Result<(BegunApp, String), GitHubAppError> {
        let key = params.get("key").map_or("", String::as_str);
        if !constant_time_eq(key, &self.key) {
            return Err(GitHubAppError::Invalid(
                "This address is not complete.".to_owned(),
            ));
        }
        let base = local_address(headers).ok_or_else(|| {
            GitHubAppError::Invalid(
                "Open this page by a loopback address, such as http://127.0.0.1.".to_owned(),
            )
        })?;
        let back_to = ReturnAddress {
            base: base.clone(),
            is_same_browser: true,
        };
        let begun = begin(app, Actor::owner(), self.organization.as_deref(), &back_to).await?;
        Ok((begun, base))
    }

    /// Handles the return of the person: finishes the creation, and links to the page on which the App is installed.
    async fn finish(&self, app: &App, headers: &HeaderMap, params: &QueryParams) -> Response {
        match github_app::try_finish(app, headers, params).await {
            Ok(()) => {
                let install = install_url(app).await;
                let install = install.map(|url| link(&url, "Install the App on repositories"));
                let mut page = html_page(&format!(
                    "<p>The GitHub App is created. Its key is stored encrypted.</p><p>{}</p><p>Then return to the \
                     terminal.</p>",
                    install.unwrap_or_default()
                ));
                set_cookie(&mut page, "", "");
                page
            }
            Err(error) => refusal(error),
        }
    }
}

/// Page about an error. It does not contain the key, because anyone on this machine can request it.
fn refusal(error: GitHubAppError) -> Response {
    let next = "To begin again, open the address that agent-implement init printed.";
    error_page(&ApiError::from(error), next)
}

/// Form that sends the manifest.
fn form(begun: &BegunApp) -> String {
    format!(
        "<p>GitHub creates an App that belongs to you or your organization. It gets the permissions that this service \
         needs, and access only to the repositories on which you install it.</p>\
         <form method=post action=\"{}\"><input type=hidden name=manifest value=\"{}\">\
         <button>Create a GitHub App</button></form>",
        escape(&begun.action),
        escape(&begun.manifest.to_string())
    )
}

/// Serves the pages until `stop` resolves.
///
/// # Errors
/// When requests are still open 10 seconds after the stop.
pub async fn serve_app_creation(
    app: App,
    listener: TcpListener,
    request: Arc<AppCreationRequest>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (first, last) = (Arc::clone(&request), request);
    let begin = move |headers: HeaderMap, params: QueryParams, app: App| {
        let request = Arc::clone(&first);
        async move { Ok(request.begin(&app, &headers, &params).await) }
    };
    let finish = move |headers: HeaderMap, params: QueryParams, app: App| {
        let request = Arc::clone(&last);
        async move { Ok(request.finish(&app, &headers, &params).await) }
    };
    let routes = vec![
        Route::get("/", "appCreation", begin)
            .access(Access::Public)
            .undescribed(),
        Route::get(RETURN_PATH, "appCreated", finish)
            .access(Access::Public)
            .undescribed(),
    ];
    let router = Router::new(&app, routes, |_| true);
    super::listen::serve_pages(&app, listener, router, stop).await
}
