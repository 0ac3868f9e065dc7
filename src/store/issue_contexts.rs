//! What is known about issues beside their own text: their plans, and what stands around them.

use domain::ids::IssueId;
use domain::issue::RelatedIssues;
use domain::plan::{IssueContext, PostedComment};

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::ISSUE_CONTEXTS;

/// What is known; nothing is a valid answer.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<IssueContext> {
    Ok(ISSUE_CONTEXTS.get(tx, issue.as_str())?.unwrap_or_default())
}

/// Keeps what stood around the issue when it was dispatched.
pub fn put_related(tx: &WriteTx<'_>, issue: &IssueId, related: &RelatedIssues) -> StoreResult<()> {
    let known = get(tx, issue)?;
    let related = related.clone();
    ISSUE_CONTEXTS.put(tx, issue.as_str(), &IssueContext { related, ..known })
}

/// Replaces the issue's plan.
pub fn put_plan(tx: &WriteTx<'_>, issue: &IssueId, plan: Vec<PostedComment>) -> StoreResult<()> {
    let known = get(tx, issue)?;
    ISSUE_CONTEXTS.put(tx, issue.as_str(), &IssueContext { plan, ..known })
}
