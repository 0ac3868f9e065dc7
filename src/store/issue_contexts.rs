//! Context of issues: their plans and related issues.

use domain::ids::IssueId;
use domain::issue::RelatedIssues;
use domain::plan::{IssueContext, PostedComment};

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::ISSUE_CONTEXTS;

/// Context of an issue; empty if nothing is stored.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<IssueContext> {
    Ok(ISSUE_CONTEXTS.get(tx, issue.as_str())?.unwrap_or_default())
}

/// Stores the related issues at the time of a dispatch.
pub fn put_related(tx: &WriteTx<'_>, issue: &IssueId, related: &RelatedIssues) -> StoreResult<()> {
    let context = get(tx, issue)?;
    let related = related.clone();
    ISSUE_CONTEXTS.put(tx, issue.as_str(), &IssueContext { related, ..context })
}

/// Replaces the plan of an issue.
pub fn put_plan(tx: &WriteTx<'_>, issue: &IssueId, plan: Vec<PostedComment>) -> StoreResult<()> {
    let context = get(tx, issue)?;
    ISSUE_CONTEXTS.put(tx, issue.as_str(), &IssueContext { plan, ..context })
}
