//! Dispatch: configuration and repository of a run.

use domain::ids::Repo;
use domain::limits;
use domain::run_config::RunConfig;
use domain::run_options::PullRequestTask;

/// Facts of the dispatch, which never change.
pub(crate) struct Dispatch {
    /// Configuration.
    pub config: RunConfig,
    /// Repository of the run.
    pub repo: Repo,
    /// Branch that the pull request is merged into.
    pub base_branch: String,
    /// URL of the CI run, if any.
    pub run_url: Option<String>,
}

impl Dispatch {
    /// Returns the branch that the run works on.
    pub(crate) fn branch(&self) -> &str {
        &self.config.branch
    }

    /// Whether the run merges the base branch into the branch of a pull request.
    pub(crate) fn merges_base_branch(&self) -> bool {
        self.config.options.task == Some(PullRequestTask::Conflict)
    }

    /// Returns the maximum number of implement/review iterations.
    pub(crate) fn max_iterations(&self) -> u32 {
        let default = || limits::default_max_iterations(&self.config.provider);
        self.config.max_iterations.unwrap_or_else(default)
    }
}
