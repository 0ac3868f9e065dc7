//! How often open pull requests were looked at for what no webhook told, and what came of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::feedback::PullId;
use domain::ids::Repo;
use domain::time::Timestamp;

/// What the sweeps did since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Healed {
    pub sweeps: u64,
    pub last_swept_at: Option<Timestamp>,
    /// Pull requests whose conversation was read.
    pub looks: u64,
    /// What was found that no webhook had told.
    pub found: u64,
}

#[derive(Default)]
pub struct Healing(Mutex<State>);

#[derive(Default)]
struct State {
    healed: Healed,
    /// The host's time of the last change that was looked at, and how often it was.
    looked: HashMap<PullId, (Timestamp, u8)>,
}

impl Healing {
    /// Whether a pull request is worth a look. The host tells times in seconds, so what it has
    /// changed is looked at twice: the second look sees what came in the second of the first.
    pub fn is_due(&self, pull: &PullId, updated_at: Timestamp) -> bool {
        let state = self.lock();
        let looked = state.looked.get(pull);
        looked.is_none_or(|(at, times)| *at != updated_at || *times < 2)
    }

    pub fn looked(&self, pull: &PullId, updated_at: Timestamp, found: u64) {
        let mut state = self.lock();
        state.healed.looks += 1;
        state.healed.found += found;
        let before = state.looked.get(pull).copied();
        let times = before
            .filter(|(at, _)| *at == updated_at)
            .map_or(1, |(_, times)| times.saturating_add(1));
        state.looked.insert(pull.clone(), (updated_at, times));
    }

    /// That a pull request is closed was found, and told by no webhook.
    pub fn closed(&self) {
        self.lock().healed.found += 1;
    }

    /// Forgets the pull requests of a repository that are not open any more.
    pub fn keep_open(&self, repo: &Repo, is_open: impl Fn(u64) -> bool) {
        let is_kept = |pull: &PullId| pull.repo != *repo || is_open(pull.number);
        self.lock().looked.retain(|pull, _| is_kept(pull));
    }

    pub fn swept(&self, at: Timestamp) {
        let mut state = self.lock();
        state.healed.sweeps += 1;
        state.healed.last_swept_at = Some(at);
    }

    pub fn healed(&self) -> Healed {
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
        let healing = Healing::default();
        let at = Timestamp::from_millis(1_000);
        let pull = |name: &str, number| PullId {
            repo: Repo::new("acme", name),
            number,
        };
        let pulls = [pull("shop", 1), pull("shop", 2), pull("docs", 1)];
        for pull in pulls.iter().chain(&pulls) {
            assert!(healing.is_due(pull, at));
            healing.looked(pull, at, 0);
        }
        healing.keep_open(&Repo::new("acme", "shop"), |number| number == 2);
        let due = pulls.each_ref().map(|pull| healing.is_due(pull, at));
        assert_eq!(due, [true, false, false]);
        assert_eq!(healing.lock().looked.len(), 2);
    }
}
