//! Runs that are only records: what becomes of them is told by a test, at once and in its order.

use super::repo::Repo;

impl Repo {
    /// Lets a queued run begin.
    pub fn begin_run(&self, id: u64) {
        self.host.started(&self.owner, &self.name, id, 1);
    }

    /// Ends a run with one of the host's words for it.
    pub fn end_run(&self, id: u64, conclusion: &str) {
        self.host.finish(&self.owner, &self.name, id, conclusion);
    }
}
