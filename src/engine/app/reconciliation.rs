//! State and statistics of reconciliation sweeps over open pull requests.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    /// Pull requests whose state an event has changed. Bounded by our open pull requests.
    changed: BTreeSet<PullRequestId>,
    /// Pull requests whose changed state could not be read. Bounded by our open pull requests.
    unread: BTreeSet<PullRequestId>,
    /// Pull requests whose checks must be read again. Bounded by our open pull requests.
    checks: BTreeSet<PullRequestId>,
    /// Time at which pull requests were last read again whose state was not read, or not computed by GitHub.
    repeated_at: Option<Timestamp>,
    /// Begin of the last sweep that read the open pull requests of a repository.
    swept: HashMap<Repo, Timestamp>,
}

/// Time between two reads of pull requests whose state was not read, or not computed by GitHub.
const REPETITION_INTERVAL: Duration = Duration::from_secs(60);

impl Reconciliation {
    /// Records that the feedback of a pull request was read, and the number of missed events it had.
    pub fn record_check(&self, found: u64) {
        let mut state = self.lock();
        state.stats.pulls_checked += 1;
        state.stats.missed_events += found;
    }

    /// Notes pull requests of the service whose state an event has changed.
    pub fn note_changed(&self, pulls: Vec<PullRequestId>) {
        self.lock().changed.extend(pulls);
    }

    /// Takes the pull requests whose state an event has changed.
    pub fn take_changed(&self) -> BTreeSet<PullRequestId> {
        std::mem::take(&mut self.lock().changed)
    }

    /// Notes pull requests whose changed state could not be read.
    pub fn note_unread(&self, pulls: impl IntoIterator<Item = PullRequestId>) {
        self.lock().unread.extend(pulls);
    }

    /// Takes the pull requests whose changed state could not be read.
    pub fn take_unread(&self) -> BTreeSet<PullRequestId> {
        std::mem::take(&mut self.lock().unread)
    }

    /// Returns whether pull requests are due to be read again whose state was not read or not computed by GitHub, and
    /// records the time.
    pub fn is_repetition_due(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        let last = state.repeated_at;
        let is_due = last.is_none_or(|last| now.since(last) >= REPETITION_INTERVAL);
        if is_due {
            state.repeated_at = Some(now);
        }
        is_due
    }

    /// Notes a pull request whose checks must be read again.
    pub fn note_check(&self, pull: PullRequestId) {
        self.lock().checks.insert(pull);
    }

    /// Returns whether the checks of a pull request must be read again.
    pub fn is_check_noted(&self, pull: &PullRequestId) -> bool {
        self.lock().checks.contains(pull)
    }

    /// Forgets that the checks of a pull request must be read again.
    pub fn take_check(&self, pull: &PullRequestId) {
        self.lock().checks.remove(pull);
    }

    /// Forgets the noted checks of pull requests that are not open.
    pub fn retain_checks(&self, open: &BTreeSet<PullRequestId>) {
        self.lock().checks.retain(|pull| open.contains(pull));
    }

    /// Records a closed pull request that no webhook reported.
    pub fn record_missed_close(&self) {
        self.lock().stats.missed_events += 1;
    }

    /// Records that the open pull requests of a repository were read by a sweep that began at this time. Returns
    /// whether they had not been read before.
    pub fn record_repository(&self, repo: &Repo, began_at: Timestamp) -> bool {
        self.lock().swept.insert(repo.clone(), began_at).is_none()
    }

    /// Begin of the last sweep that read the open pull requests of a repository. `None` before the first.
    pub fn swept_at(&self, repo: &Repo) -> Option<Timestamp> {
        self.lock().swept.get(repo).copied()
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
