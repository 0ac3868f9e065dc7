//! Merged poll snapshots of all ticketing systems, for routes that list issues.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::ApiError;
use domain::ids::TeamKey;
use domain::issue::System;
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};

/// Poll snapshots of all ticketing systems.
pub(super) struct MergedPollSnapshot {
    issues: Vec<Arc<[PolledIssue]>>,
    /// Systems whose last poll failed, with the time of the last successful poll.
    pub stale_since: BTreeMap<System, Option<Timestamp>>,
    /// Mappings that could not be read although their system responded, with the time of the last
    /// successful read.
    pub unread_since: BTreeMap<TeamKey, Option<Timestamp>>,
}

impl MergedPollSnapshot {
    /// Iterates over all flagged issues.
    pub(super) fn issues(&self) -> impl Iterator<Item = &PolledIssue> {
        self.issues.iter().flat_map(|issues| issues.iter())
    }
}

/// Merges the latest poll snapshots of all systems.
///
/// # Errors
/// When the last poll of a system failed and none has ever succeeded.
pub(super) fn load_poll_snapshot(app: &App) -> Result<MergedPollSnapshot, ApiError> {
    let mut snapshot = MergedPollSnapshot {
        issues: Vec::new(),
        stale_since: BTreeMap::new(),
        unread_since: BTreeMap::new(),
    };
    for (system, system_snapshot) in app.live.poll_snapshots.all() {
        if let Some(failure) = system_snapshot.failure {
            if system_snapshot.polled_at.is_none() {
                return Err(ApiError::bad_gateway(failure.detail));
            }
            snapshot
                .stale_since
                .insert(system, system_snapshot.polled_at);
        }
        snapshot.unread_since.extend(system_snapshot.stale_since);
        snapshot.issues.push(system_snapshot.issues);
    }
    Ok(snapshot)
}
