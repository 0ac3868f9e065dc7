//! Dispatch breaker: counts of consecutive failures, and issues parked because of them.

use serde::{Deserialize, Serialize};

use domain::ids::{IssueId, Repo};
use domain::issue::{IssueRef, Phase};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{BREAKER_FAILURES, PARKED_ISSUES};

/// Issue that is not dispatched until an operator releases it.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParkedIssue {
    /// Parked issue.
    pub issue: IssueRef,
    /// Repository of its runs.
    pub repo: Repo,
    /// Phase of the failed runs.
    pub phase: Phase,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Conclusion of the last failed run.
    pub last_conclusion: String,
    /// Time of parking.
    pub parked_at: Timestamp,
}

/// Counts a failure and returns the number of consecutive failures.
pub fn count_failure(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<u32> {
    let key = (issue.as_str(), phase.as_str());
    let failures = BREAKER_FAILURES
        .get(tx, key)?
        .unwrap_or(0)
        .saturating_add(1);
    BREAKER_FAILURES.put(tx, key, &failures)?;
    Ok(failures)
}

/// Resets the count of failures. Returns whether there were any.
pub fn reset_failures(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<bool> {
    BREAKER_FAILURES.remove(tx, (issue.as_str(), phase.as_str()))
}

/// Parks an issue.
pub fn park(tx: &WriteTx<'_>, parked: &ParkedIssue) -> StoreResult<()> {
    PARKED_ISSUES.put(tx, parked.issue.id.as_str(), parked)
}

/// Parked issue with this id.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<ParkedIssue>> {
    PARKED_ISSUES.get(tx, issue.as_str())
}

/// All parked issues.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<ParkedIssue>> {
    PARKED_ISSUES.collect(tx, .., |_, parked| parked)
}

/// Releases an issue and resets its count of failures. Returns whether it was parked.
pub fn unpark(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<bool> {
    let Some(parked) = get(tx, issue)? else {
        return Ok(false);
    };
    reset_failures(tx, issue, parked.phase)?;
    PARKED_ISSUES.remove(tx, issue.as_str())
}
