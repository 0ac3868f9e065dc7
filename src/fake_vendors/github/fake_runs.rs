//! Fake runs: a test changes their state directly.

use super::fake_repo::FakeRepo;

impl FakeRepo {
    /// Starts a queued run.
    pub fn start_run(&self, id: u64) {
        self.host.mark_run_started(&self.owner, &self.name, id, 1);
    }

    /// Completes a run with this conclusion, e.g. `success` or `failure`.
    pub fn complete_run(&self, id: u64, conclusion: &str) {
        self.host
            .mark_run_completed(&self.owner, &self.name, id, conclusion);
    }
}
