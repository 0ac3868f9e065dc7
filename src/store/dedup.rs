//! The dedup window: issues that were dispatched and must not be dispatched again yet.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::ids::IssueId;
use crate::domain::issue::IssueRef;
use crate::domain::time::Timestamp;

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::DEDUP;

/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DedupEntry {
    pub issue: IssueRef,
    pub dispatched_at: Timestamp,
}

impl DedupEntry {
    /// When it ages out; None means not by itself.
    pub fn expires_at(&self, window: Option<Duration>) -> Option<Timestamp> {
        window.map(|window| self.dispatched_at + window)
    }

    /// Whether it still keeps its issue from being dispatched.
    pub fn holds(&self, window: Option<Duration>, now: Timestamp) -> bool {
        self.expires_at(window)
            .is_none_or(|expires_at| now < expires_at)
    }
}

pub fn get(tx: &impl Rows, issue: &IssueId) -> StoreResult<Option<DedupEntry>> {
    DEDUP.get(tx, issue.as_str())
}

pub fn all(tx: &impl Rows) -> StoreResult<Vec<DedupEntry>> {
    DEDUP.collect(tx, .., |_, entry| entry)
}

pub fn put(tx: &WriteTx<'_>, entry: &DedupEntry) -> StoreResult<()> {
    DEDUP.put(tx, entry.issue.id.as_str(), entry)
}

/// Whether there was such an entry.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<bool> {
    DEDUP.remove(tx, issue.as_str())
}
