//! Workflow runs that push and pull request events started: state, and reruns of their failed jobs.

use serde::{Deserialize, Serialize};

use crate::http::{Method, Request, VendorError};
use domain::ids::Repo;
use domain::red_checks::ActionsRun;

use super::GitHub;
use super::workflow_runs::COMPLETED;

/// Events whose runs check a commit. Others may deploy, or were started by a person on purpose.
const CHECKING_EVENTS: [&str; 4] = ["push", "pull_request", "pull_request_target", "merge_group"];

/// Result of the request for a rerun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RerunOutcome {
    /// Failed jobs run again.
    Requested,
    /// The host refuses the request, with this reason. A repetition does not help.
    Refused(String),
}

impl GitHub {
    /// Reads a run that checks this commit. `None` if there is no such run.
    ///
    /// # Errors
    /// Fails if the run cannot be read.
    pub async fn checking_run(
        &self,
        repo: &Repo,
        id: u64,
        head: &str,
    ) -> Result<Option<ActionsRun>, VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}"));
        match self
            .read::<WireRun>(repo, "reading the workflow run", url)
            .await
        {
            Ok(page) => Ok(page.value.of_head(head)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the run of a check suite that checks this commit. `None` if there is no such run.
    ///
    /// # Errors
    /// Fails if the runs cannot be read.
    pub async fn checking_run_of_suite(
        &self,
        repo: &Repo,
        suite: u64,
        head: &str,
    ) -> Result<Option<ActionsRun>, VendorError> {
        let url = self.repo_url(
            repo,
            &format!("/actions/runs?check_suite_id={suite}&per_page=1"),
        );
        let page = self
            .read::<RunPage>(repo, "listing workflow runs", url)
            .await?;
        let mut runs = page.value.workflow_runs.into_iter();
        Ok(runs.find_map(|run| run.of_head(head)))
    }

    /// Runs the failed jobs of a workflow run again, and the jobs that need them.
    ///
    /// # Errors
    /// Fails if the request may succeed later. After an ambiguous error the jobs may run.
    pub async fn rerun_failed_jobs(
        &self,
        repo: &Repo,
        id: u64,
    ) -> Result<RerunOutcome, VendorError> {
        let url = self.repo_url(repo, &format!("/actions/runs/{id}/rerun-failed-jobs"));
        let request = Request::new("running failed jobs again", Method::POST, url);
        let request = [404, 409, 422]
            .into_iter()
            .fold(request, Request::accept_status);
        match self.send(repo, request).await {
            Ok(response) if response.status() < 400 => Ok(RerunOutcome::Requested),
            Ok(response) => {
                let error = response.status_error(response.status(), &response.text());
                Ok(RerunOutcome::Refused(error.to_string()))
            }
            // Not an exhausted rate limit, which has the same status.
            Err(error) if error.status() == Some(403) && !error.is_rate_limited() => {
                Ok(RerunOutcome::Refused(error.to_string()))
            }
            Err(error) => Err(error),
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
    event: String,
    #[serde(default)]
    head_sha: String,
    status: Option<String>,
    conclusion: Option<String>,
    #[serde(rename = "run_attempt", default = "first_attempt")]
    attempt: u64,
}

fn first_attempt() -> u64 {
    1
}

impl WireRun {
    fn of_head(self, head: &str) -> Option<ActionsRun> {
        let is_checking = CHECKING_EVENTS.contains(&self.event.as_str()) && self.head_sha == head;
        is_checking.then(|| ActionsRun {
            id: self.id,
            attempt: self.attempt,
            is_completed: self.status.as_deref() == Some(COMPLETED),
            has_succeeded: self.conclusion.as_deref() == Some("success"),
        })
    }
}
