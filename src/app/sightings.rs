//! What the ticketing systems showed last, for people to look at.
//!
//! Kept in memory: after a restart the first poll fills it again. Nothing is decided from it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::domain::decision::Decision;
use crate::domain::ids::TeamKey;
use crate::domain::issue::{FlaggedIssue, System};
use crate::domain::time::Timestamp;

/// An issue and what was decided about it.
#[derive(Debug, Clone)]
pub struct Sighted {
    pub issue: FlaggedIssue,
    pub decision: Decision,
}

/// The last look at one system.
#[derive(Debug, Clone, Default)]
pub struct Sighting {
    /// When it last answered; None when it never did.
    pub seen_at: Option<Timestamp>,
    pub issues: Vec<Sighted>,
    /// How it failed since, if it did: what is shown is as old as `seen_at`.
    pub failure: Option<String>,
}

#[derive(Default)]
pub struct Sightings(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    systems: BTreeMap<System, Sighting>,
    in_progress: BTreeMap<TeamKey, u32>,
}

impl Sightings {
    /// A system answered.
    pub fn saw(&self, system: System, issues: Vec<Sighted>, at: Timestamp) {
        let sighting = Sighting {
            seen_at: Some(at),
            issues,
            failure: None,
        };
        self.lock().systems.insert(system, sighting);
    }

    /// A system did not answer; what it showed last stands.
    pub fn missed(&self, system: System, failure: String) {
        self.lock().systems.entry(system).or_default().failure = Some(failure);
    }

    pub fn count(&self, in_progress: BTreeMap<TeamKey, u32>) {
        self.lock().in_progress = in_progress;
    }

    /// The last look at each system that was asked at all.
    pub fn all(&self) -> BTreeMap<System, Sighting> {
        self.lock().systems.clone()
    }

    /// Issues in progress by mapping.
    pub fn in_progress(&self) -> BTreeMap<TeamKey, u32> {
        self.lock().in_progress.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
