//! Memory of which facts about merges were read, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::feedback::PullRequestId;
use domain::time::Timestamp;

/// Time after which the facts about a merge are read again although nothing has changed: a resolved
/// conversation, a permission or a rule of the branch is no change of the pull request.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// When the facts about the merge of each pull request were read. Kept in memory: after a restart they are read
/// once more.
#[derive(Default)]
pub struct MergeChecks(Mutex<State>);

#[derive(Default)]
struct State {
    /// Time and inputs of the last check.
    last: BTreeMap<PullRequestId, (Timestamp, String)>,
    /// Pull requests about which an event has arrived since.
    changed: BTreeSet<PullRequestId>,
}

impl MergeChecks {
    /// Notes that an event about pull requests of the service has arrived.
    pub fn note_changed(&self, pulls: &[PullRequestId]) {
        self.lock().changed.extend(pulls.iter().cloned());
    }

    /// Returns whether the facts must be read. `inputs` identifies what is known without a request; `None` if a
    /// change of that is no reason to read them.
    pub fn is_due(&self, pull: &PullRequestId, inputs: Option<&str>, now: Timestamp) -> bool {
        let state = self.lock();
        let Some((at, known)) = state.last.get(pull) else {
            return true;
        };
        state.changed.contains(pull)
            || inputs.is_some_and(|inputs| inputs != known)
            || now.since(*at) >= RECHECK_INTERVAL
    }

    /// Records that the facts are being read.
    pub fn record(&self, pull: &PullRequestId, inputs: String, now: Timestamp) {
        let mut state = self.lock();
        state.changed.remove(pull);
        state.last.insert(pull.clone(), (now, inputs));
    }

    /// Forgets all pull requests except these.
    pub fn retain(&self, open: &BTreeSet<PullRequestId>) {
        let mut state = self.lock();
        state.last.retain(|pull, _| open.contains(pull));
        state.changed.retain(|pull| open.contains(pull));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
