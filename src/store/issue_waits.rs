//! Issues that wait until somebody acts, and whether a ticket comment explains it.

use serde::{Deserialize, Serialize};

use domain::decision::WaitReason;
use domain::ids::{IssueId, TeamKey};
use domain::issue::IssueRef;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::ISSUE_WAITS;

/// Wait of an issue.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueWait {
    /// Issue that waits.
    pub issue: IssueRef,
    /// Team of the mapping.
    pub team: TeamKey,
    /// Reason for waiting.
    pub reason: WaitReason,
    /// Start of the wait.
    pub since: Timestamp,
    /// Whether a ticket comment about the wait was queued.
    #[serde(rename = "isTold")]
    pub is_commented: bool,
}

impl IssueWait {
    /// Key of the ticket comment; unique per wait.
    pub fn comment_key(&self) -> String {
        format!("waiting-{}-{}", self.since.as_millis(), self.issue.id)
    }
}

/// All waits.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<IssueWait>> {
    ISSUE_WAITS.collect(tx, .., |_, wait| wait)
}

/// Wait of an issue.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<IssueWait>> {
    ISSUE_WAITS.get(tx, issue.as_str())
}

/// Inserts or replaces the wait of an issue.
pub fn put(tx: &WriteTx<'_>, wait: &IssueWait) -> StoreResult<()> {
    ISSUE_WAITS.put(tx, wait.issue.id.as_str(), wait)
}

/// Removes the wait of an issue.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    ISSUE_WAITS.remove(tx, issue.as_str()).map(drop)
}
