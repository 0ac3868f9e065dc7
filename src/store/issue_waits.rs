//! Issues that wait for something that does not pass by itself, and whether their ticket says so.

use serde::{Deserialize, Serialize};

use domain::decision::WaitReason;
use domain::ids::{IssueId, TeamKey};
use domain::issue::IssueRef;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::ISSUE_WAITS;

/// One wait of an issue.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueWait {
    pub issue: IssueRef,
    pub team: TeamKey,
    pub reason: WaitReason,
    pub since: Timestamp,
    /// Whether a comment on the ticket says so.
    #[serde(rename = "isTold")]
    pub is_commented: bool,
}

impl IssueWait {
    /// Name of its comment; each wait has its own.
    pub fn comment_key(&self) -> String {
        format!("waiting-{}-{}", self.since.as_millis(), self.issue.id)
    }
}

pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<IssueWait>> {
    ISSUE_WAITS.collect(tx, .., |_, wait| wait)
}

pub fn put(tx: &WriteTx<'_>, wait: &IssueWait) -> StoreResult<()> {
    ISSUE_WAITS.put(tx, wait.issue.id.as_str(), wait)
}

pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    ISSUE_WAITS.remove(tx, issue.as_str()).map(drop)
}
