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

/// Changes the context of an issue.
pub fn update(
    tx: &WriteTx<'_>,
    issue: &IssueId,
    change: impl FnOnce(&mut IssueContext),
) -> StoreResult<()> {
    let before = get(tx, issue)?;
    let mut context = before.clone();
    change(&mut context);
    match context == before {
        true => Ok(()),
        false => ISSUE_CONTEXTS.put(tx, issue.as_str(), &context),
    }
}

/// Stores the related issues at the time of a dispatch.
pub fn put_related(tx: &WriteTx<'_>, issue: &IssueId, related: &RelatedIssues) -> StoreResult<()> {
    update(tx, issue, |context| context.related.clone_from(related))
}

/// Replaces the plan of an issue.
pub fn put_plan(tx: &WriteTx<'_>, issue: &IssueId, plan: Vec<PostedComment>) -> StoreResult<()> {
    update(tx, issue, |context| context.plan = plan)
}
