//! What the ticketing systems showed last, for people to look at.
//!
//! Kept in memory: after a restart the first poll fills it again. Nothing is decided from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::TeamKey;
use domain::issue::{FlaggedIssue, System};
use domain::time::Timestamp;

/// An issue and what was decided about it: the first time, when later polls decided the same.
#[derive(Debug, Clone)]
pub struct PolledIssue {
    pub issue: Arc<FlaggedIssue>,
    pub decision: Arc<Decision>,
}

/// The last look at one system.
#[derive(Debug, Clone, Default)]
pub struct PollSnapshot {
    /// When it last answered; None when it never did.
    pub polled_at: Option<Timestamp>,
    /// Shared by all who look: there may be thousands.
    pub issues: Arc<[PolledIssue]>,
    /// Mappings it could not answer for, and when it last did.
    pub stale_since: BTreeMap<TeamKey, Option<Timestamp>>,
    /// How it failed since, if it did: what is shown is as old as `seen_at`.
    pub failure: Option<String>,
}

#[derive(Default)]
pub struct PollSnapshots(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    systems: BTreeMap<System, PollSnapshot>,
    in_progress: BTreeMap<TeamKey, u32>,
}

impl PollSnapshots {
    /// A system answered. What it showed last of mappings that it could not answer for stands.
    pub fn record(
        &self,
        system: System,
        mut issues: Vec<PolledIssue>,
        unread: &[TeamKey],
        at: Timestamp,
    ) {
        let mut seen = self.lock();
        let before = seen.systems.remove(&system).unwrap_or_default();
        let since = |team: &TeamKey| {
            let earlier = before.stale_since.get(team).copied();
            (team.clone(), earlier.unwrap_or(before.polled_at))
        };
        let unread_since = unread.iter().map(since).collect();
        let stands = |sighted: &PolledIssue| unread.contains(&sighted.issue.team);
        issues.extend(before.issues.iter().filter(|one| stands(one)).cloned());
        let sighting = PollSnapshot {
            polled_at: Some(at),
            issues: issues.into(),
            stale_since: unread_since,
            failure: None,
        };
        seen.systems.insert(system, sighting);
    }

    /// A system did not answer; what it showed last stands.
    pub fn record_failure(&self, system: System, failure: String) {
        self.lock().systems.entry(system).or_default().failure = Some(failure);
    }

    /// Counts what is in progress among all issues in sight.
    pub fn count_in_progress(
        &self,
        count: impl FnOnce(&mut dyn Iterator<Item = &FlaggedIssue>) -> BTreeMap<TeamKey, u32>,
    ) {
        let mut seen = self.lock();
        let sighted = seen
            .systems
            .values()
            .flat_map(|system| system.issues.iter());
        let in_progress = count(&mut sighted.map(|sighted| &*sighted.issue));
        seen.in_progress = in_progress;
    }

    /// The last look at each system that was asked at all.
    pub fn all(&self) -> BTreeMap<System, PollSnapshot> {
        self.lock().systems.clone()
    }

    /// How many issues were in sight at the last look.
    pub fn issue_count(&self) -> usize {
        let seen = self.lock();
        seen.systems
            .values()
            .map(|system| system.issues.len())
            .sum()
    }

    /// Issues in progress by mapping.
    pub fn in_progress(&self) -> BTreeMap<TeamKey, u32> {
        self.lock().in_progress.clone()
    }

    /// When each system that was asked last answered.
    pub fn polled_at(&self) -> BTreeMap<System, Option<Timestamp>> {
        let seen = self.lock();
        let systems = seen.systems.iter();
        systems
            .map(|(system, one)| (*system, one.polled_at))
            .collect()
    }

    /// How many issues in sight each was decided about.
    pub fn decision_counts(&self) -> HashMap<(DecisionOutcome, Option<WaitReason>), u64> {
        let seen = self.lock();
        let mut counts = HashMap::new();
        for sighted in seen
            .systems
            .values()
            .flat_map(|system| system.issues.iter())
        {
            let Decision {
                outcome, reason, ..
            } = *sighted.decision;
            *counts.entry((outcome, reason)).or_default() += 1;
        }
        counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
