//! What the last poll saw, for the routes that show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::ApiError;
use domain::ids::TeamKey;
use domain::issue::System;
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};

pub(super) struct MergedPollSnapshot {
    shown: Vec<Arc<[PolledIssue]>>,
    /// Systems that did not answer the last poll, and when they last did.
    pub stale_since: BTreeMap<System, Option<Timestamp>>,
    /// Mappings that their system could not answer for although it did for others.
    pub unread_since: BTreeMap<TeamKey, Option<Timestamp>>,
}

impl MergedPollSnapshot {
    /// Every issue that was in sight.
    pub fn issues(&self) -> impl Iterator<Item = &PolledIssue> {
        self.shown.iter().flat_map(|issues| issues.iter())
    }
}

/// # Errors
/// When a system has never answered: then there is nothing to show in its place.
pub(super) fn load_poll_snapshot(app: &App) -> Result<MergedPollSnapshot, ApiError> {
    let mut sight = MergedPollSnapshot {
        shown: Vec::new(),
        stale_since: BTreeMap::new(),
        unread_since: BTreeMap::new(),
    };
    for (system, sighting) in app.poll_snapshots.all() {
        if let Some(failure) = sighting.failure {
            if sighting.polled_at.is_none() {
                return Err(ApiError::bad_gateway(failure));
            }
            sight.stale_since.insert(system, sighting.polled_at);
        }
        sight.unread_since.extend(sighting.stale_since);
        sight.shown.push(sighting.issues);
    }
    Ok(sight)
}
