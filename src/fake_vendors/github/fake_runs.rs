//! Runs that are only records: what becomes of them is told by a test, at once and in its order.

use super::fake_repo::FakeRepo;

impl FakeRepo {
    /// Lets a queued run begin.
    pub fn start_run(&self, id: u64) {
        self.host.mark_run_started(&self.owner, &self.name, id, 1);
    }

    /// Ends a run with one of the host's words for it.
    pub fn complete_run(&self, id: u64, conclusion: &str) {
        self.host
            .mark_run_completed(&self.owner, &self.name, id, conclusion);
    }
}
