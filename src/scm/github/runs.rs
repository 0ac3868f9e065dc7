use crate::domain::ids::Repo;
use crate::domain::run_config::Inputs;
use crate::domain::time::Timestamp;
use crate::wire::VendorError;

use super::GitHub;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRef {
    pub id: u64,
    pub url: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRun {
    pub id: u64,
    pub name: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub head_branch: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    #[error("{message}. {remedy}")]
    Refused { message: String, remedy: String },
    #[error(transparent)]
    Vendor(#[from] VendorError),
}

impl GitHub {
    pub async fn dispatch_workflow(
        &self,
        repo: &Repo,
        workflow_file: &str,
        git_ref: &str,
        inputs: &Inputs,
    ) -> Result<Option<RunRef>, DispatchError> {
        todo!("{repo}{workflow_file}{git_ref}{}", inputs.len())
    }
    pub async fn runs_since(
        &self,
        repo: &Repo,
        since: Timestamp,
    ) -> Result<Vec<WorkflowRun>, VendorError> {
        todo!("{repo}{since}")
    }
    pub async fn run(&self, repo: &Repo, id: u64) -> Result<WorkflowRun, VendorError> {
        todo!("{repo}{id}")
    }
    pub async fn cancel_run(&self, repo: &Repo, id: u64) -> Result<(), VendorError> {
        todo!("{repo}{id}")
    }
    pub async fn failed_log_excerpt(
        &self,
        repo: &Repo,
        run_id: u64,
    ) -> Result<Option<String>, VendorError> {
        todo!("{repo}{run_id}")
    }
}
