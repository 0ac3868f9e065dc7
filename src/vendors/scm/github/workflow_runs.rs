//! Workflow runs: dispatch, list, read and cancel.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, Request, Response, VendorError, percent_encode};
use domain::ids::Repo;
use domain::run_config::RunInputs;
use domain::time::Timestamp;

use super::{GitHub, dispatch_errors};

/// Maximum time by which the host's clock may be behind ours when runs are listed by creation time.
const CLOCK_SKEW: Duration = Duration::from_secs(2 * 60);

const DISPATCHING: &str = "dispatching the workflow";

/// Status of a workflow run or job that has ended.
pub(super) const COMPLETED: &str = "completed";

/// Reference to a workflow run that a dispatch created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunRef {
    /// Id of the run.
    pub id: u64,
    /// Web address.
    pub url: String,
}

/// Workflow run of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRun {
    /// Id of the run.
    pub id: u64,
    /// Name, computed by the workflow's `run-name` from its inputs.
    pub name: String,
    /// `queued`, `in_progress`, `completed`, …
    pub status: String,
    /// `success`, `failure`, `cancelled`, `timed_out`, … once completed.
    pub conclusion: Option<String>,
    /// Web address.
    pub url: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last update.
    pub updated_at: Timestamp,
    /// Branch on which the run was dispatched.
    pub head_branch: Option<String>,
    /// Attempt, from 1. A person can run it again.
    pub attempt: u64,
}

impl WorkflowRun {
    /// Returns whether the run has ended.
    pub fn is_completed(&self) -> bool {
        self.status == COMPLETED
    }
}

/// Error of a workflow dispatch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// The host rejected the dispatch. It rejects every repetition until the remedy is applied.
    #[error("{message}. {remedy}")]
    Refused {
        /// HTTP status of the response.
        status: u16,
        /// Description of the failure, without a final full stop.
        message: String,
        /// Instruction for the operator, without a final full stop.
        remedy: String,
    },
    /// The request failed. The run may exist if the error is ambiguous.
    #[error(transparent)]
    Vendor(#[from] VendorError),
}

impl DispatchError {
    /// Returns whether the host rejected the dispatch because the workflow does not declare this input.
    pub fn is_unexpected_input(&self, name: &str) -> bool {
        let DispatchError::Refused { message, .. } = self else {
            return false;
        };
        let message = message.to_lowercase();
        message.contains("unexpected inputs") && message.contains(&format!("\"{name}\""))
    }

    /// Returns the HTTP status of the host's response. `None` without a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            DispatchError::Refused { status, .. } => Some(*status),
            DispatchError::Vendor(error) => error.status(),
        }
    }
}

impl GitHub {
    /// Dispatches a workflow on a branch. Newer hosts return the run; older hosts do not.
    ///
    /// # Errors
    /// [`DispatchError::Refused`] if the host rejects the dispatch. After an ambiguous
    /// [`DispatchError::Vendor`] the run may exist.
    pub async fn dispatch_workflow(
        &self,
        repo: &Repo,
        workflow_file: &str,
        git_ref: &str,
        inputs: &RunInputs,
    ) -> Result<Option<WorkflowRunRef>, DispatchError> {
        let url = self.repo_url(
            repo,
            &format!(
                "/actions/workflows/{}/dispatches",
                percent_encode(workflow_file)
            ),
        );
        let send = |body: serde_json::Value| {
            let request = Request::new(DISPATCHING, Method::POST, &url)
                .json(&body)
                .accept_status(400)
                .accept_status(403)
                .accept_status(404)
                .accept_status(422);
            self.send(repo, request)
        };
        let body = json!({"ref": git_ref, "inputs": inputs, "return_run_details": true});
        let mut response = send(body.clone()).await?;
        if matches!(response.status(), 403 | 404) {
            // The owner may have left this repository out of the App's installation, or transferred it.
            match self.has_other_installation(repo, DISPATCHING).await {
                Ok(true) => response = send(body).await?,
                Err(error) if error.is_not_found() => return Err(not_installed(repo)),
                // The refusal itself is explained.
                Ok(false) | Err(_) => {}
            }
        }
        if response.status() == 400 {
            // Older enterprise servers reject unknown fields before they start anything.
            response = send(json!({"ref": git_ref, "inputs": inputs})).await?;
        }
        match response.status() {
            400 | 403 | 404 | 422 => Err(refused(&response, repo, workflow_file, git_ref)),
            // The run exists, even if its description cannot be parsed.
            _ => Ok(response
                .json::<Dispatched>()
                .ok()
                .map(Dispatched::translate)),
        }
    }

    /// Lists the dispatched runs of all workflows that were created at `since` or later, newest first.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn workflow_runs_since(
        &self,
        repo: &Repo,
        since: Timestamp,
    ) -> Result<Vec<WorkflowRun>, VendorError> {
        // Whole minutes, so that repeated requests have the same address and can be answered from the cache.
        let from = (since - CLOCK_SKEW).as_secs() / 60 * 60;
        let from = Timestamp::from_millis(from * 1000).to_string();
        let from = from.replace(".000Z", "Z");
        let url = self.repo_url(
            repo,
            &format!(
                "/actions/runs?event=workflow_dispatch&per_page=100&created={}",
                percent_encode(&format!(">={from}"))
            ),
        );
        self.read_all(repo, "listing workflow runs", url, |page: RunPage| {
            page.workflow_runs
        })
        .await
        .map(|runs| runs.into_iter().map(WireRun::translate).collect())
    }

    /// Returns one run.
    ///
    /// # Errors
    /// `is_not_found()` if the run was deleted.
    pub async fn workflow_run(&self, repo: &Repo, id: u64) -> Result<WorkflowRun, VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}"));
        let page = self
            .read::<WireRun>(repo, "reading the workflow run", url)
            .await?;
        Ok(page.value.translate())
    }

    /// Cancels a run. Succeeds if the run has ended already.
    ///
    /// # Errors
    /// `is_not_found()` if the run was deleted.
    pub async fn cancel_workflow_run(&self, repo: &Repo, id: u64) -> Result<(), VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}/cancel"));
        let request =
            Request::new("cancelling the workflow run", Method::POST, url).accept_status(409);
        self.send(repo, request).await.map(drop)
    }
}

/// Builds the error of a dispatch to a repository that the App's installation leaves out.
fn not_installed(repo: &Repo) -> DispatchError {
    DispatchError::Refused {
        status: 404,
        message: format!("the App is not installed on {repo}"),
        remedy: dispatch_errors::INSTALL.to_owned(),
    }
}

/// Builds the error of a rejected dispatch.
fn refused(response: &Response, repo: &Repo, workflow: &str, git_ref: &str) -> DispatchError {
    let host_message = response
        .json::<ErrorBody>()
        .map(|body| body.message)
        .unwrap_or_default();
    let error = response
        .status_error(response.status(), &host_message)
        .to_string();
    let dispatch = (repo, workflow, git_ref);
    let (message, remedy) =
        dispatch_errors::explain(response.status(), &host_message, &error, dispatch);
    DispatchError::Refused {
        status: response.status(),
        message,
        remedy: remedy.to_owned(),
    }
}

#[derive(Deserialize)]
struct ErrorBody {
    message: String,
}

#[derive(Deserialize)]
struct Dispatched {
    workflow_run_id: u64,
    html_url: String,
}

impl Dispatched {
    fn translate(self) -> WorkflowRunRef {
        WorkflowRunRef {
            id: self.workflow_run_id,
            url: self.html_url,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct RunPage {
    workflow_runs: Vec<WireRun>,
}

#[derive(Serialize, Deserialize)]
struct WireRun {
    id: u64,
    #[serde(default)]
    display_title: Option<String>,
    /// Name of the workflow. The only name that older enterprise servers return.
    #[serde(default)]
    name: Option<String>,
    status: Option<String>,
    conclusion: Option<String>,
    html_url: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    head_branch: Option<String>,
    #[serde(rename = "run_attempt", default = "first_attempt")]
    attempt: u64,
}

fn first_attempt() -> u64 {
    1
}

impl WireRun {
    fn translate(self) -> WorkflowRun {
        WorkflowRun {
            id: self.id,
            name: self.display_title.or(self.name).unwrap_or_default(),
            status: self.status.unwrap_or_else(|| "queued".to_owned()),
            conclusion: self.conclusion,
            url: self.html_url,
            created_at: self.created_at,
            updated_at: self.updated_at,
            head_branch: self.head_branch,
            attempt: self.attempt,
        }
    }
}
