//! `/api/why/:issue`: current and earlier decisions about an issue.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::jobs::JobView;
use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::decision::{self, Decision};
use domain::ids::IssueKey;
use domain::time::Timestamp;
use engine::app::App;
use store::{ReadTx, StoreResult, decisions, dispatch_breaker, jobs};

/// Routes of `/api/why`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/why/:issue", "why", show).returns::<IssueDecisionView>()]
}

async fn show(PathSegment(key): PathSegment, app: App) -> ApiResult {
    let now = app.core.now();
    let view = app
        .core
        .store()
        .read(|tx| explain_issue(tx, &IssueKey::new(key), now))?;
    Ok(ok(&view.ok_or(AdminApiError::IssueNotFound)?))
}

/// Loads the decisions about an issue; `None` if no poll has ever seen it.
///
/// # Errors
/// When the store cannot be read.
pub fn explain_issue(
    tx: &ReadTx,
    key: &IssueKey,
    now: Timestamp,
) -> StoreResult<Option<IssueDecisionView>> {
    let Some(mut row) = decisions::get(tx, key)? else {
        return Ok(None);
    };
    let jobs = jobs::of_issue(tx, &row.issue.id)?;
    let is_parked = dispatch_breaker::get(tx, &row.issue.id)?.is_some();
    let failed = decision::decision_after_failure(&jobs, row.current(), is_parked, now);
    let decision = failed.or_else(|| row.decisions.pop());
    row.decisions.reverse();
    Ok(Some(IssueDecisionView {
        identifier: row.issue.key,
        title: row.issue.title,
        url: row.issue.url,
        decision,
        history: row.decisions,
        job: match jobs.last() {
            Some(job) => super::jobs::job_json(tx, &job.id)?,
            None => None,
        },
    }))
}

/// JSON representation of the decisions about an issue, with its last job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IssueDecisions")]
pub struct IssueDecisionView {
    identifier: IssueKey,
    title: String,
    url: String,
    /// Current decision.
    decision: Option<Decision>,
    /// Earlier decisions, newest first.
    history: Vec<Decision>,
    /// Last job, if there is one.
    #[schemars(with = "Option<JobView<'_>>")]
    job: Option<Value>,
}
