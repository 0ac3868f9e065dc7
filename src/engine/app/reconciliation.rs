//! State and statistics of reconciliation sweeps over open pull requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::feedback::PullRequestId;
use domain::ids::Repo;
use domain::time::Timestamp;

/// Statistics of reconciliation sweeps since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReconciliationStats {
    /// Number of completed sweeps.
    pub sweeps: u64,
    /// End of the last sweep; `None` before the first.
    pub last_swept_at: Option<Timestamp>,
    /// Number of pull requests whose comments and reviews were read.
    pub pulls_checked: u64,
    /// Number of events found that no webhook delivered.
    pub missed_events: u64,
}

#[derive(Default)]
/// State of reconciliation, kept in memory only.
pub struct Reconciliation(Mutex<State>);

#[derive(Default)]
struct State {
    stats: ReconciliationStats,
    /// Last update time that was checked, and the number of checks at that time.
    checked: HashMap<PullRequestId, (Timestamp, u8)>,
}

impl Reconciliation {
    /// Whether a pull request must be checked. GitHub reports times in seconds, so each update is
    /// checked twice: the second check finds changes within the same second as the first.
    pub fn is_due(&self, pull: &PullRequestId, updated_at: Timestamp) -> bool {
        let state = self.lock();
        let checked = state.checked.get(pull);
        checked.is_none_or(|(at, times)| *at != updated_at || *times < 2)
    }

    /// Records a check and the number of missed events it found.
    pub fn record_check(&self, pull: &PullRequestId, updated_at: Timestamp, found: u64) {
        let mut state = self.lock();
        state.stats.pulls_checked += 1;
        state.stats.missed_events += found;
        let before = state.checked.get(pull).copied();
        let times = before
            .filter(|(at, _)| *at == updated_at)
            .map_or(1, |(_, times)| times.saturating_add(1));
        state.checked.insert(pull.clone(), (updated_at, times));
    }

    /// Records a closed pull request that no webhook reported.
    pub fn record_missed_close(&self) {
        self.lock().stats.missed_events += 1;
    }

    /// Removes the pull requests of a repository that are no longer open.
    pub fn retain_open(&self, repo: &Repo, is_open: impl Fn(u64) -> bool) {
        let is_kept = |pull: &PullRequestId| pull.repo != *repo || is_open(pull.number);
        self.lock().checked.retain(|pull, _| is_kept(pull));
    }

    /// Records the end of a sweep.
    pub fn record_sweep(&self, at: Timestamp) {
        let mut state = self.lock();
        state.stats.sweeps += 1;
        state.stats.last_swept_at = Some(at);
    }

    /// Statistics since the process started.
    pub fn stats(&self) -> ReconciliationStats {
        self.lock().stats
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_open_pull_requests() {
        let reconciliation = Reconciliation::default();
        let at = Timestamp::from_millis(1_000);
        let pull = |name: &str, number| PullRequestId {
            repo: Repo::new("acme", name),
            number,
        };
        let pulls = [pull("shop", 1), pull("shop", 2), pull("docs", 1)];
        for pull in pulls.iter().chain(&pulls) {
            assert!(reconciliation.is_due(pull, at));
            reconciliation.record_check(pull, at, 0);
        }
        reconciliation.retain_open(&Repo::new("acme", "shop"), |number| number == 2);
        let due = pulls.each_ref().map(|pull| reconciliation.is_due(pull, at));
        assert_eq!(due, [true, false, false]);
        assert_eq!(reconciliation.lock().checked.len(), 2);
    }
}
