//! What a run asks the orchestrator: for access to its repository, for the plan that was made before,
//! and to take its result. Progress has a file of its own.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::console::print_line;
use super::retry::{RETRY_TIMEOUT, retry};
use domain::report::ResultReport;
use domain::run_config::RunCallback;
use domain::secret::Secret;
use vendors::http::{Client, Method, Request};

/// How long is the orchestrator asked for access before the run helps itself?
const ACCESS_PATIENCE: Duration = Duration::from_secs(2 * 60);

/// How long is it asked for the plan? It helps, and the work can be done without.
const PLAN_PATIENCE: Duration = Duration::from_secs(60);

/// Who gave the run its access to the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// The orchestrator, for this one repository.
    Orchestrator,
    /// The workflow's own token: pushes with it start no checks.
    Workflow,
}

/// Access to the repository, held for one phase and dropped.
#[derive(Debug)]
pub struct RepoAccess {
    pub token: Option<Secret>,
    pub source: TokenSource,
}

/// Where access comes from.
#[derive(Clone)]
pub struct OrchestratorClient {
    pub client: Client,
    pub callback: Option<RunCallback>,
    pub owner: String,
    /// What a session asks with, in place of its progress token.
    pub nonce: Option<Secret>,
    pub workflow_token: Option<Secret>,
}

#[derive(Deserialize)]
struct Minted {
    token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    planning_context: String,
}

impl OrchestratorClient {
    /// Asks the orchestrator; where it cannot be reached, takes the workflow's own token. A refusal
    /// is an answer: the run is not wanted any more.
    ///
    /// # Errors
    /// What the orchestrator said, or that there is nobody to ask.
    pub async fn fetch_repo_access(&self) -> Result<RepoAccess, String> {
        let failure = match self.ask().await {
            Some(Ok(token)) => {
                return Ok(RepoAccess {
                    token: Some(token),
                    source: TokenSource::Orchestrator,
                });
            }
            Some(Err(error)) if error.is_permanent() && error.status() != Some(501) => {
                return Err(format!("asking for repository access: {error}"));
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        match (&self.workflow_token, failure) {
            (Some(token), _) => Ok(RepoAccess {
                token: Some(token.clone()),
                source: TokenSource::Workflow,
            }),
            (None, Some(error)) => Err(format!("asking for repository access: {error}")),
            // A public repository can be read without.
            (None, None) => Ok(RepoAccess {
                token: None,
                source: TokenSource::Workflow,
            }),
        }
    }

    /// The plan that was made for the issue; empty when there is none, or nobody to ask.
    ///
    /// # Errors
    /// What the orchestrator said.
    pub async fn fetch_plan(&self) -> Result<String, vendors::http::VendorError> {
        let Some(callback) = &self.callback else {
            return Ok(String::new());
        };
        let url = format!(
            "{}/runner/planning-context",
            callback.url.trim_end_matches('/')
        );
        let request = Request::new("asking for the plan", Method::GET, url)
            .bearer(callback.progress_token.expose());
        let say = |text: &str| print_line(&format!("the plan: {text}"));
        let answer = retry(&say, PLAN_PATIENCE, async || {
            self.client.send(&request).await
        });
        let planned: Planned = answer.await?.json()?;
        Ok(planned.planning_context)
    }

    async fn ask(&self) -> Option<Result<Secret, vendors::http::VendorError>> {
        let callback = self.callback.as_ref()?;
        let url = format!("{}/api/token", callback.url.trim_end_matches('/'));
        let request = Request::new("asking for repository access", Method::POST, url).safe();
        let request = match &self.nonce {
            Some(nonce) => request.json(&json!({ "nonce": nonce.expose(), "owner": self.owner })),
            None => request
                .bearer(callback.progress_token.expose())
                .json(&json!({ "owner": self.owner })),
        };
        let say = |text: &str| print_line(&format!("repository access: {text}"));
        let answer = retry(&say, ACCESS_PATIENCE, async || {
            self.client.send(&request).await
        })
        .await;
        Some(answer.and_then(|response| {
            response
                .json::<Minted>()
                .map(|minted| Secret::new(minted.token))
        }))
    }
}

/// Delivers the result, again and again until it is taken or cannot be.
///
/// # Errors
/// Why it was not taken.
pub async fn report_result(
    client: &Client,
    callback: &RunCallback,
    report: &ResultReport,
) -> Result<(), String> {
    let url = format!("{}/runner/result", callback.url.trim_end_matches('/'));
    let request = Request::new("reporting the result", Method::POST, url)
        .bearer(callback.run_token.expose())
        .json(report)
        // Taken before: the first answer was lost.
        .accept_status(409);
    let say = |text: &str| print_line(&format!("the result was not taken yet, {text}"));
    let taken = retry(&say, RETRY_TIMEOUT, async || client.send(&request).await).await;
    taken.map(|_| ()).map_err(|error| error.to_string())
}
