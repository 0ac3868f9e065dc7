//! Issues for which an operator has requested another run.
//!
//! The service then sets the trigger itself, so the account that set it says nothing about who wants the
//! run. The request holds until the implementation is dispatched, or the work fails or ends without one.

use std::collections::BTreeSet;

use domain::ids::IssueId;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::OPERATOR_RETRIES;

/// Records a request.
pub fn record(tx: &WriteTx<'_>, issue: &IssueId, now: Timestamp) -> StoreResult<()> {
    OPERATOR_RETRIES.put(tx, issue.as_str(), &now)
}

/// Removes the request for an issue, if there is one.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    OPERATOR_RETRIES.remove(tx, issue.as_str()).map(drop)
}

/// All issues with a request.
pub fn all(tx: &impl ReadableTx) -> StoreResult<BTreeSet<IssueId>> {
    let rows = OPERATOR_RETRIES.collect(tx, .., |issue, _| IssueId::new(issue))?;
    Ok(rows.into_iter().collect())
}
