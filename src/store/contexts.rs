//! What is known about issues beside their own text: their plans, and what stands around them.

use domain::ids::IssueId;
use domain::issue::Related;
use domain::plan::{IssueContext, PlanComment};

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::CONTEXTS;

/// What is known; nothing is a valid answer.
pub fn get(tx: &impl Rows, issue: &IssueId) -> StoreResult<IssueContext> {
    Ok(CONTEXTS.get(tx, issue.as_str())?.unwrap_or_default())
}

/// Keeps what stood around the issue when it was dispatched.
pub fn put_related(tx: &WriteTx<'_>, issue: &IssueId, related: &Related) -> StoreResult<()> {
    let known = get(tx, issue)?;
    let related = related.clone();
    CONTEXTS.put(tx, issue.as_str(), &IssueContext { related, ..known })
}

/// Replaces the issue's plan.
pub fn put_plan(tx: &WriteTx<'_>, issue: &IssueId, plan: Vec<PlanComment>) -> StoreResult<()> {
    let known = get(tx, issue)?;
    CONTEXTS.put(tx, issue.as_str(), &IssueContext { plan, ..known })
}
