//! Client of the orchestrator's run endpoints: repository access, planning context, context of the ticket and result.
//! Progress: [`super::progress`].

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::print::print_line;
use super::retry::{RETRY_TIMEOUT, retry};
use domain::evidence::{self, EvidenceFile};
use domain::report::ResultReport;
use domain::run_config::RunCallback;
use domain::secret::Secret;
use domain::ticket_context::{MAX_ATTACHMENT_BYTES, TicketContext};
use vendors::http::{
    Client, Method, Request, Response, VendorError, VendorErrorKind, percent_encode,
};

/// Maximum time to retry a request for repository access before the workflow token is used.
const ACCESS_RETRY_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Maximum time to retry a request for the planning context, before the agent works without a plan. Longer than an
/// upgrade of the service takes.
const PLAN_RETRY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Maximum time to retry a request for an attachment, before the agent works without it.
const ATTACHMENT_RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time to retry a report of evidence, before it is only named in the pull request.
const EVIDENCE_RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of the context of a ticket, in bytes.
const MAX_CONTEXT_BYTES: usize = 1 << 20;

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
struct EvidenceResponse {
    #[serde(default)]
    warnings: Vec<String>,
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
    pub(crate) async fn fetch_plan(&self) -> Result<String, VendorError> {
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

    /// Fetches what people wrote on the ticket. Empty if the service does not know the route, or without a callback.
    ///
    /// # Errors
    /// The error of the request.
    pub(crate) async fn fetch_ticket_context(&self) -> Result<TicketContext, VendorError> {
        let Some(callback) = &self.callback else {
            return Ok(TicketContext::default());
        };
        let url = callback.route("/runner/ticket-context");
        let request = Request::new("fetching the context of the ticket", Method::GET, url)
            .bearer(callback.progress_token.expose())
            .max_body(MAX_CONTEXT_BYTES);
        let log = |text: &str| print_line(&format!("Context of the ticket: {text}"));
        match self.download(&request, PLAN_RETRY_TIMEOUT, &log).await {
            Ok(response) => response.json(),
            Err(error) if error.is_not_found() => Ok(TicketContext::default()),
            Err(error) => Err(error),
        }
    }

    /// Fetches an attachment of the ticket. `None` without a callback.
    pub(crate) async fn fetch_attachment(&self, id: &str) -> Option<Result<Vec<u8>, VendorError>> {
        let callback = self.callback.as_ref()?;
        let url = callback.route(&format!("/runner/attachments/{}", percent_encode(id)));
        let request = Request::new("fetching an attachment", Method::GET, url)
            .bearer(callback.progress_token.expose())
            .max_body(MAX_ATTACHMENT_BYTES);
        let log = |text: &str| print_line(&format!("Attachment of the ticket: {text}"));
        let response = self.download(&request, ATTACHMENT_RETRY_TIMEOUT, &log);
        Some(response.await.map(|response| response.body().to_vec()))
    }

    /// Reports evidence, instead of evidence that was reported before. Returns warnings of the service; `None` without a
    /// callback.
    pub(crate) async fn report_evidence(
        &self,
        files: &[EvidenceFile],
    ) -> Option<Result<Vec<String>, VendorError>> {
        let callback = self.callback.as_ref()?;
        let url = callback.route("/runner/evidence");
        let request = Request::new("reporting evidence", Method::POST, url)
            .bearer(callback.progress_token.expose())
            .json(&evidence::report(files))
            .safe();
        let log = |text: &str| print_line(&format!("Evidence: {text}"));
        let sent = retry(&log, EVIDENCE_RETRY_TIMEOUT, async || {
            self.client.send(&request).await
        });
        let response = sent
            .await
            .and_then(|response| response.json::<EvidenceResponse>());
        Some(response.map(|stored| stored.warnings))
    }

    /// Sends a request with a limited response, with retries. A response that is too large is not requested again.
    async fn download(
        &self,
        request: &Request,
        timeout: Duration,
        log: &(dyn Fn(&str) + Sync),
    ) -> Result<Response, VendorError> {
        retry(log, timeout, async || {
            match self.client.send(request).await {
                Err(error) if matches!(error.kind, VendorErrorKind::Decode(_)) => Ok(Err(error)),
                sent => sent.map(Ok),
            }
        })
        .await?
    }

    async fn request_token(&self) -> Option<Result<Secret, VendorError>> {
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
