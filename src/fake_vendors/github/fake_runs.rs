//! Fake runs: a test changes their state directly.

use anyhow::Context;

use super::fake_repo::FakeRepo;

impl FakeRepo {
    /// Records the runs that check the new heads of branches and pull requests. With real runs, that happens by
    /// itself.
    pub fn start_checking_runs(&self) {
        self.host.start_event_runs_of(&self.path());
    }

    /// Writes the log of a run's first job.
    pub fn write_job_log(&self, id: u64, text: &str) -> anyhow::Result<()> {
        let folder = self.run_dir(id).context("No such run")?.join("job-00");
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(folder.join("log"), text)?)
    }

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
