//! Workflow runs: starting, finding, watching and cancelling.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, Request, Response, VendorError, percent_encode};
use domain::ids::Repo;
use domain::run_config::RunInputs;
use domain::time::Timestamp;

use super::{GitHub, dispatch_errors};

/// How far may the host's clock be behind ours, when we ask for runs since a moment?
const CLOCK_SKEW: Duration = Duration::from_secs(2 * 60);

/// How the host says that a run or a job is over.
pub(super) const COMPLETED: &str = "completed";

/// A run the host has just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunRef {
    pub id: u64,
    /// For people.
    pub url: String,
}

/// A run as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRun {
    pub id: u64,
    /// What the workflow's `run-name` made of its inputs.
    pub name: String,
    /// `queued`, `in_progress`, `completed`, …
    pub status: String,
    /// `success`, `failure`, `cancelled`, `timed_out`, … once completed.
    pub conclusion: Option<String>,
    pub url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub head_branch: Option<String>,
}

impl WorkflowRun {
    pub fn is_completed(&self) -> bool {
        self.status == COMPLETED
    }
}

/// Why a dispatch started no run that we know of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// The host understood and said no; it will again until somebody does what `remedy` says.
    #[error("{message}. {remedy}")]
    Refused {
        status: u16,
        message: String,
        remedy: String,
    },
    #[error(transparent)]
    Vendor(#[from] VendorError),
}

impl DispatchError {
    /// The status the host answered with, if it answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            DispatchError::Refused { status, .. } => Some(*status),
            DispatchError::Vendor(error) => error.status(),
        }
    }
}

impl GitHub {
    /// Starts a workflow on a branch. Newer hosts tell which run it became.
    ///
    /// # Errors
    /// [`DispatchError::Refused`] when the host says no; else what the call failed with, in which case an ambiguous error may have started the run.
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
        let ask = |body: serde_json::Value| {
            let request = Request::new("dispatching the workflow", Method::POST, &url)
                .json(&body)
                .accept_status(400)
                .accept_status(403)
                .accept_status(404)
                .accept_status(422);
            self.send(repo, request)
        };
        let mut response =
            ask(json!({"ref": git_ref, "inputs": inputs, "return_run_details": true})).await?;
        if response.status() == 400 {
            // Older enterprise hosts refuse what they do not know before doing anything.
            response = ask(json!({"ref": git_ref, "inputs": inputs})).await?;
        }
        match response.status() {
            400 | 403 | 404 | 422 => Err(refused(&response, repo, workflow_file, git_ref)),
            // The run exists, whatever became of its description.
            _ => Ok(response
                .json::<Dispatched>()
                .ok()
                .map(Dispatched::translate)),
        }
    }

    /// The dispatched runs of all workflows that were created at `since` or later, newest first.
    ///
    /// # Errors
    /// What reading any page failed with.
    pub async fn workflow_runs_since(
        &self,
        repo: &Repo,
        since: Timestamp,
    ) -> Result<Vec<WorkflowRun>, VendorError> {
        // Whole minutes, so that asking again is the same question and may cost nothing.
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
        .map(|runs| runs.into_iter().map(Run::translate).collect())
    }

    /// One run.
    ///
    /// # Errors
    /// `is_not_found()` when it was deleted.
    pub async fn workflow_run(&self, repo: &Repo, id: u64) -> Result<WorkflowRun, VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}"));
        let page = self
            .read::<Run>(repo, "reading the workflow run", url)
            .await?;
        Ok(page.value.translate())
    }

    /// Asks the host to stop a run. One that has finished is as good as stopped.
    ///
    /// # Errors
    /// `is_not_found()` when it was deleted.
    pub async fn cancel_workflow_run(&self, repo: &Repo, id: u64) -> Result<(), VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}/cancel"));
        let request =
            Request::new("cancelling the workflow run", Method::POST, url).accept_status(409);
        self.send(repo, request).await.map(drop)
    }
}

/// What to tell when the host refused a dispatch.
fn refused(response: &Response, repo: &Repo, workflow: &str, git_ref: &str) -> DispatchError {
    let said = response
        .json::<Said>()
        .map(|said| said.message)
        .unwrap_or_default();
    let error = response.status_error(response.status(), &said).to_string();
    let of = (repo, workflow, git_ref);
    let (message, remedy) = dispatch_errors::explain(response.status(), &said, &error, of);
    DispatchError::Refused {
        status: response.status(),
        message,
        remedy: remedy.to_owned(),
    }
}

#[derive(Deserialize)]
struct Said {
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
    workflow_runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    id: u64,
    #[serde(default)]
    display_title: Option<String>,
    /// The workflow's name; older enterprise hosts have no other.
    #[serde(default)]
    name: Option<String>,
    status: Option<String>,
    conclusion: Option<String>,
    html_url: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    head_branch: Option<String>,
}

impl Run {
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
        }
    }
}
