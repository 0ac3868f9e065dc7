//! Failures in a row, and the issues that the dispatch breaker parked because of them.

use serde::{Deserialize, Serialize};

use domain::ids::{IssueId, Repo};
use domain::issue::{IssueRef, Phase};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{BREAKER_FAILURES, PARKED_ISSUES};

/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParkedIssue {
    pub issue: IssueRef,
    pub repo: Repo,
    pub phase: Phase,
    pub failures: u32,
    pub last_conclusion: String,
    pub parked_at: Timestamp,
}

/// Counts one more failure and answers how many there are in a row.
pub fn count_failure(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<u32> {
    let key = (issue.as_str(), phase.as_str());
    let failures = BREAKER_FAILURES
        .get(tx, key)?
        .unwrap_or(0)
        .saturating_add(1);
    BREAKER_FAILURES.put(tx, key, &failures)?;
    Ok(failures)
}

pub fn reset_failures(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<bool> {
    BREAKER_FAILURES.remove(tx, (issue.as_str(), phase.as_str()))
}

pub fn park(tx: &WriteTx<'_>, parked: &ParkedIssue) -> StoreResult<()> {
    PARKED_ISSUES.put(tx, parked.issue.id.as_str(), parked)
}

pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<ParkedIssue>> {
    PARKED_ISSUES.get(tx, issue.as_str())
}

pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<ParkedIssue>> {
    PARKED_ISSUES.collect(tx, .., |_, parked| parked)
}

/// Releases an issue and forgets the failures that parked it. Whether it was parked.
pub fn unpark(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<bool> {
    let Some(parked) = get(tx, issue)? else {
        return Ok(false);
    };
    reset_failures(tx, issue, parked.phase)?;
    PARKED_ISSUES.remove(tx, issue.as_str())
}
