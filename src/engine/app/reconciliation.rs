//! How often open pull requests were looked at for what no webhook told, and what came of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::feedback::PullRequestId;
use domain::ids::Repo;
use domain::time::Timestamp;

/// What the sweeps did since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReconciliationStats {
    pub sweeps: u64,
    pub last_swept_at: Option<Timestamp>,
    /// Pull requests whose conversation was read.
    pub pulls_checked: u64,
    /// What was found that no webhook had told.
    pub missed_events: u64,
}

#[derive(Default)]
pub struct Reconciliation(Mutex<State>);

#[derive(Default)]
struct State {
    healed: ReconciliationStats,
    /// The host's time of the last change that was looked at, and how often it was.
    looked: HashMap<PullRequestId, (Timestamp, u8)>,
}

impl Reconciliation {
    /// Whether a pull request is worth a look. The host tells times in seconds, so what it has
    /// changed is looked at twice: the second look sees what came in the second of the first.
    pub fn is_due(&self, pull: &PullRequestId, updated_at: Timestamp) -> bool {
        let state = self.lock();
        let looked = state.looked.get(pull);
        looked.is_none_or(|(at, times)| *at != updated_at || *times < 2)
    }

    pub fn record_check(&self, pull: &PullRequestId, updated_at: Timestamp, found: u64) {
        let mut state = self.lock();
        state.healed.pulls_checked += 1;
        state.healed.missed_events += found;
        let before = state.looked.get(pull).copied();
        let times = before
            .filter(|(at, _)| *at == updated_at)
            .map_or(1, |(_, times)| times.saturating_add(1));
        state.looked.insert(pull.clone(), (updated_at, times));
    }

    /// That a pull request is closed was found, and told by no webhook.
    pub fn record_missed_close(&self) {
        self.lock().healed.missed_events += 1;
    }

    /// Forgets the pull requests of a repository that are not open any more.
    pub fn retain_open(&self, repo: &Repo, is_open: impl Fn(u64) -> bool) {
        let is_kept = |pull: &PullRequestId| pull.repo != *repo || is_open(pull.number);
        self.lock().looked.retain(|pull, _| is_kept(pull));
    }

    pub fn record_sweep(&self, at: Timestamp) {
        let mut state = self.lock();
        state.healed.sweeps += 1;
        state.healed.last_swept_at = Some(at);
    }

    pub fn stats(&self) -> ReconciliationStats {
        self.lock().healed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_open_is_remembered() {
        let healing = Reconciliation::default();
        let at = Timestamp::from_millis(1_000);
        let pull = |name: &str, number| PullRequestId {
            repo: Repo::new("acme", name),
            number,
        };
        let pulls = [pull("shop", 1), pull("shop", 2), pull("docs", 1)];
        for pull in pulls.iter().chain(&pulls) {
            assert!(healing.is_due(pull, at));
            healing.record_check(pull, at, 0);
        }
        healing.retain_open(&Repo::new("acme", "shop"), |number| number == 2);
        let due = pulls.each_ref().map(|pull| healing.is_due(pull, at));
        assert_eq!(due, [true, false, false]);
        assert_eq!(healing.lock().looked.len(), 2);
    }
}
