//! Issues of the latest poll of each ticketing system, for the panel and the API.
//!
//! Kept in memory: the first poll after a restart fills it again. Decisions do not depend on it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::TeamKey;
use domain::issue::{FlaggedIssue, System};
use domain::time::Timestamp;

/// Issue with the decision about it. The decision object is shared across polls that decide the
/// same.
#[derive(Debug, Clone)]
pub struct PolledIssue {
    /// Issue, without the context that only a run needs.
    pub issue: Arc<FlaggedIssue>,
    /// Decision of the first poll in an unbroken series of equal decisions.
    pub decision: Arc<Decision>,
}

/// Result of the latest poll of one ticketing system.
#[derive(Debug, Clone, Default)]
pub struct PollSnapshot {
    /// Time of the latest poll, whether the system responded or not.
    pub attempted_at: Timestamp,
    /// Time of the last response; `None` if there was none.
    pub polled_at: Option<Timestamp>,
    /// Issues, shared by all readers because there may be thousands.
    pub issues: Arc<[PolledIssue]>,
    /// Mappings that could not be read, with the time of their last successful read.
    pub stale_since: BTreeMap<TeamKey, Option<Timestamp>>,
    /// Error of the latest poll, if it failed; `issues` are then as of `polled_at`.
    pub failure: Option<PollFailure>,
}

/// Error of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollFailure {
    /// Error text with the request that failed.
    pub detail: String,
    /// Cause, as a sentence for operators.
    pub sentence: String,
}

#[derive(Default)]
/// Latest poll snapshot of each ticketing system.
pub struct PollSnapshots(Mutex<State>);

#[derive(Default)]
struct State {
    systems: BTreeMap<System, PollSnapshot>,
    in_progress: BTreeMap<TeamKey, u32>,
}

impl PollSnapshots {
    /// Records a response. Issues of mappings that could not be read are kept from the previous
    /// snapshot.
    pub fn record(
        &self,
        system: System,
        mut issues: Vec<PolledIssue>,
        unread: &[TeamKey],
        at: Timestamp,
    ) {
        let mut state = self.lock();
        let before = state.systems.remove(&system).unwrap_or_default();
        let since = |team: &TeamKey| {
            let earlier = before.stale_since.get(team).copied();
            (team.clone(), earlier.unwrap_or(before.polled_at))
        };
        let stale_since = unread.iter().map(since).collect();
        let is_unread = |polled: &PolledIssue| unread.contains(&polled.issue.team);
        issues.extend(before.issues.iter().filter(|one| is_unread(one)).cloned());
        let snapshot = PollSnapshot {
            attempted_at: at,
            polled_at: Some(at),
            issues: issues.into(),
            stale_since,
            failure: None,
        };
        state.systems.insert(system, snapshot);
    }

    /// Records a failed poll; the issues of the previous snapshot are kept.
    pub fn record_failure(&self, system: System, failure: PollFailure, at: Timestamp) {
        let mut state = self.lock();
        let snapshot = state.systems.entry(system).or_default();
        snapshot.attempted_at = at;
        snapshot.failure = Some(failure);
    }

    /// Counts the issues in progress, over the issues of all snapshots.
    pub fn count_in_progress(
        &self,
        count: impl FnOnce(&mut dyn Iterator<Item = &FlaggedIssue>) -> BTreeMap<TeamKey, u32>,
    ) {
        let mut state = self.lock();
        let polled = state
            .systems
            .values()
            .flat_map(|system| system.issues.iter());
        let in_progress = count(&mut polled.map(|polled| &*polled.issue));
        state.in_progress = in_progress;
    }

    /// Removes the snapshots of systems that are not connected any more.
    pub fn retain(&self, is_connected: impl Fn(System) -> bool) {
        self.lock()
            .systems
            .retain(|system, _| is_connected(*system));
    }

    /// Latest snapshot of each system that was polled.
    pub fn all(&self) -> BTreeMap<System, PollSnapshot> {
        self.lock().systems.clone()
    }

    /// Whether a system was polled since the start.
    pub fn is_polled(&self, system: System) -> bool {
        self.lock().systems.contains_key(&system)
    }

    /// Number of issues in all snapshots.
    pub fn issue_count(&self) -> usize {
        let state = self.lock();
        state
            .systems
            .values()
            .map(|system| system.issues.len())
            .sum()
    }

    /// Number of issues in progress, by mapping.
    pub fn in_progress(&self) -> BTreeMap<TeamKey, u32> {
        self.lock().in_progress.clone()
    }

    /// Time of the last response of each system that was polled.
    pub fn polled_at(&self) -> BTreeMap<System, Option<Timestamp>> {
        let state = self.lock();
        let systems = state.systems.iter();
        systems
            .map(|(system, one)| (*system, one.polled_at))
            .collect()
    }

    /// Time up to which the issues of all polled systems are known: the oldest of their last responses. `None`
    /// if one of them never responded.
    pub fn complete_at(&self) -> Option<Timestamp> {
        let polled_at = self.polled_at();
        let oldest = polled_at.values().copied().min();
        oldest.flatten()
    }

    /// Number of issues in all snapshots, by outcome and reason.
    pub fn decision_counts(&self) -> HashMap<(DecisionOutcome, Option<WaitReason>), u64> {
        let state = self.lock();
        let mut counts = HashMap::new();
        for polled in state
            .systems
            .values()
            .flat_map(|system| system.issues.iter())
        {
            let Decision {
                outcome, reason, ..
            } = *polled.decision;
            *counts.entry((outcome, reason)).or_default() += 1;
        }
        counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
