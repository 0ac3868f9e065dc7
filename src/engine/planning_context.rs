//! What a run is told about its issue beside the ticket itself.
//!
//! The plan is read back from the ticket by the ids of the comments that we posted, so that what
//! people changed in it counts, and nothing that anybody else wrote under a similar heading does.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use domain::issue::RelatedIssues;
use domain::job::Job;
use domain::plan::{self, IssueContext, PostedComment};
use store::{StoreResult, issue_contexts};

/// How long is the ticketing system waited for? A run waits for us meanwhile.
const PATIENCE: Duration = Duration::from_secs(15);

/// The answer to a run's question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanningContext {
    /// The plan, wrapped; empty when there is none.
    pub plan: String,
    pub related: RelatedIssues,
}

/// What is known about the issue of a job.
pub async fn load(app: &App, job: &Job) -> StoreResult<PlanningContext> {
    let known = app
        .store
        .read(|tx| issue_contexts::get(tx, &job.issue.id))?;
    let IssueContext { related, plan } = known;
    let bodies = current(app, job, plan).await;
    let plan = plan::planning_context(&job.issue, &bodies);
    Ok(PlanningContext { plan, related })
}

/// The plan as it stands on the ticket; as we posted it when nobody there answers.
async fn current(app: &App, job: &Job, plan: Vec<PostedComment>) -> Vec<String> {
    let account = app.account(job.issue.system);
    let Some(account) = account.filter(|_| !plan.is_empty()) else {
        return plan.into_iter().map(|comment| comment.body).collect();
    };
    let effects: Vec<String> = plan
        .iter()
        .map(|comment| comment.effect_id.clone())
        .collect();
    let asked = timeout(PATIENCE, account.comments(&job.issue, &effects)).await;
    let why = match asked {
        Ok(Ok(bodies)) => return bodies,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, why, "The plan could not be read back; it is taken as it was posted.");
    plan.into_iter().map(|comment| comment.body).collect()
}
