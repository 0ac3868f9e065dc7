//! Planning context of a run: the posted plan and the related issues.
//!
//! The plan is read back from the ticket by the IDs of the comments that this service posted. Edits
//! by people count; comments by others under a similar heading do not.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::{App, Vendors};
use domain::issue::RelatedIssues;
use domain::job::Job;
use domain::plan::{self, IssueContext, PostedComment};
use store::{StoreResult, issue_contexts};

/// Timeout of reading the plan. The run's request waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Planning context of an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanningContext {
    /// Plan with its heading; empty if there is none.
    pub plan: String,
    /// Related issues.
    pub related: RelatedIssues,
}

/// Loads the planning context for the issue of a job.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn load(app: &App, job: &Job) -> StoreResult<PlanningContext> {
    let context = app
        .core
        .store
        .read(|tx| issue_contexts::get(tx, &job.issue.id))?;
    let IssueContext { related, plan, .. } = context;
    let bodies = read_plan(&app.vendors, job, plan).await;
    let plan = plan::planning_context(&job.issue, &bodies);
    Ok(PlanningContext { plan, related })
}

/// Reads the current plan from the ticket. Returns it as posted if the ticketing system does not
/// respond.
async fn read_plan(vendors: &Vendors, job: &Job, plan: Vec<PostedComment>) -> Vec<String> {
    let account = vendors.account(job.issue.system);
    let Some(account) = account.filter(|_| !plan.is_empty()) else {
        return plan.into_iter().map(|comment| comment.body).collect();
    };
    let effects: Vec<String> = plan
        .iter()
        .map(|comment| comment.effect_id.clone())
        .collect();
    let response = timeout(READ_TIMEOUT, account.comments(&job.issue, &effects)).await;
    let why = match response {
        Ok(Ok(bodies)) => return bodies,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no response in time".to_owned(),
    };
    tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, why, "Failed to read the plan from the ticket; using it as posted.");
    plan.into_iter().map(|comment| comment.body).collect()
}
