//! Plans that wait for an approval, or have one and wait for their implementation.

use domain::ids::IssueId;
use domain::plan_approval::PlanGate;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::PLAN_GATES;

/// All plans.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<PlanGate>> {
    PLAN_GATES.collect(tx, .., |_, gate| gate)
}

/// Plan of an issue.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<PlanGate>> {
    PLAN_GATES.get(tx, issue.as_str())
}

/// Inserts or replaces the plan of an issue.
pub fn put(tx: &WriteTx<'_>, gate: &PlanGate) -> StoreResult<()> {
    PLAN_GATES.put(tx, gate.issue.id.as_str(), gate)
}

/// Removes the plan of an issue.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    PLAN_GATES.remove(tx, issue.as_str()).map(drop)
}
