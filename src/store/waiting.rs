//! Issues that wait for something that does not pass by itself, and whether their ticket says so.

use serde::{Deserialize, Serialize};

use domain::decision::Reason;
use domain::ids::{IssueId, TeamKey};
use domain::issue::IssueRef;
use domain::time::Timestamp;

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::WAITING;

/// One wait of an issue.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    pub issue: IssueRef,
    pub team: TeamKey,
    pub reason: Reason,
    pub since: Timestamp,
    /// Whether a comment on the ticket says so.
    pub is_told: bool,
}

impl Wait {
    /// Name of its comment; each wait has its own.
    pub fn comment(&self) -> String {
        format!("waiting-{}-{}", self.since.as_millis(), self.issue.id)
    }
}

pub fn all(tx: &impl Rows) -> StoreResult<Vec<Wait>> {
    WAITING.collect(tx, .., |_, wait| wait)
}

pub fn put(tx: &WriteTx<'_>, wait: &Wait) -> StoreResult<()> {
    WAITING.put(tx, wait.issue.id.as_str(), wait)
}

pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    WAITING.remove(tx, issue.as_str()).map(drop)
}
