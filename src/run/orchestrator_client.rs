//! Client of the orchestrator's run endpoints: repository access, planning context and result.
//! Progress: [`super::progress`].

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::print::print_line;
use super::retry::{RETRY_TIMEOUT, retry};
use domain::report::ResultReport;
use domain::run_config::RunCallback;
use domain::secret::Secret;
use vendors::http::{Client, Method, Request};

/// Maximum time to retry a request for repository access before the workflow token is used.
const ACCESS_RETRY_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Maximum time to retry a request for the planning context, before the agent works without a plan. Longer than an
/// upgrade of the service takes.
const PLAN_RETRY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Origin of a repository token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// Token minted by the orchestrator for this repository.
    Orchestrator,
    /// Workflow token of CI. Pushes with it start no checks.
    Workflow,
}

/// Repository access, held for one step and then dropped.
#[derive(Debug)]
pub(crate) struct RepoAccess {
    /// Token, or `None` for anonymous reads of a public repository.
    pub token: Option<Secret>,
    /// Origin of the token.
    pub source: TokenSource,
}

/// Client of the orchestrator.
#[derive(Clone)]
pub(crate) struct OrchestratorClient {
    /// HTTP client.
    pub client: Client,
    /// URL and tokens of the orchestrator, if the run has any.
    pub callback: Option<RunCallback>,
    /// Owner of the repository.
    pub owner: String,
    /// Nonce that a session sends instead of a progress token.
    pub nonce: Option<Secret>,
    /// Workflow token of CI, used if the orchestrator cannot be reached.
    pub workflow_token: Option<Secret>,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanResponse {
    planning_context: String,
}

impl OrchestratorClient {
    /// Requests repository access. Falls back to the workflow token if the orchestrator cannot be
    /// reached, but not if it refuses: then the run is no longer wanted.
    ///
    /// # Errors
    /// The error of the orchestrator, if there is no workflow token to fall back to.
    pub(crate) async fn fetch_repo_access(&self) -> Result<RepoAccess, String> {
        let failure = match self.request_token().await {
            Some(Ok(token)) => {
                return Ok(RepoAccess {
                    token: Some(token),
                    source: TokenSource::Orchestrator,
                });
            }
            Some(Err(error)) if error.is_permanent() && error.status() != Some(501) => {
                return Err(format!("cannot get repository access: {error}"));
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        match (&self.workflow_token, failure) {
            (Some(token), _) => Ok(RepoAccess {
                token: Some(token.clone()),
                source: TokenSource::Workflow,
            }),
            (None, Some(error)) => Err(format!("cannot get repository access: {error}")),
            // A public repository can be read without a token.
            (None, None) => Ok(RepoAccess {
                token: None,
                source: TokenSource::Workflow,
            }),
        }
    }

    /// Fetches the plan of the issue. Empty if there is no plan or no callback.
    ///
    /// # Errors
    /// The error of the request.
    pub(crate) async fn fetch_plan(&self) -> Result<String, vendors::http::VendorError> {
        let Some(callback) = &self.callback else {
            return Ok(String::new());
        };
        let url = callback.route("/runner/planning-context");
        let request = Request::new("fetching the planning context", Method::GET, url)
            .bearer(callback.progress_token.expose());
        let log = |text: &str| print_line(&format!("Planning context: {text}"));
        let response = retry(&log, PLAN_RETRY_TIMEOUT, async || {
            self.client.send(&request).await
        });
        let plan: PlanResponse = response.await?.json()?;
        Ok(plan.planning_context)
    }

    async fn request_token(&self) -> Option<Result<Secret, vendors::http::VendorError>> {
        let callback = self.callback.as_ref()?;
        let url = callback.route("/api/token");
        let request = Request::new("requesting repository access", Method::POST, url).safe();
        let request = match &self.nonce {
            Some(nonce) => request.json(&json!({ "nonce": nonce.expose(), "owner": self.owner })),
            None => request
                .bearer(callback.progress_token.expose())
                .json(&json!({ "owner": self.owner })),
        };
        let log = |text: &str| print_line(&format!("Repository access: {text}"));
        let response = retry(&log, ACCESS_RETRY_TIMEOUT, async || {
            self.client.send(&request).await
        })
        .await;
        Some(response.and_then(|response| {
            response
                .json::<TokenResponse>()
                .map(|body| Secret::new(body.token))
        }))
    }
}

/// Posts the result, with retries.
///
/// # Errors
/// The last error if the result was not accepted.
pub(crate) async fn report_result(
    client: &Client,
    callback: &RunCallback,
    report: &ResultReport,
) -> Result<(), String> {
    let url = callback.route("/runner/result");
    let request = Request::new("reporting the result", Method::POST, url)
        .bearer(callback.run_token.expose())
        .json(report)
        // 409: the result was accepted before and the response was lost.
        .accept_status(409);
    let log = |text: &str| print_line(&format!("Result not accepted yet: {text}"));
    let response = retry(&log, RETRY_TIMEOUT, async || client.send(&request).await).await;
    response.map(|_| ()).map_err(|error| error.to_string())
}
