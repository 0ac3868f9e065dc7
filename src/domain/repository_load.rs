//! Work of the service on a repository that is not merged yet: its open pull requests, and runs that may open one.

use std::sync::Arc;

use crate::ids::{IssueId, IssueKey};
use crate::time::Timestamp;

/// Work of the service on a repository that is not merged yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryLoad {
    /// Open pull requests of the service.
    pub pulls: Vec<OpenPull>,
    /// Implementation runs under way or reserved that have no pull request yet.
    pub runs: Vec<OpeningRun>,
    /// How well the open pull requests are known.
    pub knowledge: HostKnowledge,
}

/// Open pull request of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPull {
    /// Number in the repository.
    pub number: u64,
    /// Issue that it implements.
    pub issue: IssueId,
    /// Key of the issue.
    pub key: IssueKey,
    /// Time of its opening.
    pub opened_at: Timestamp,
    /// Whether it waits for a review: no draft, and not approved.
    pub awaits_review: bool,
    /// Files that it changes, as far as known.
    pub files: Arc<[String]>,
}

/// Implementation run that may open a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningRun {
    /// Issue that it implements.
    pub issue: IssueId,
    /// Key of the issue.
    pub key: IssueKey,
    /// Files that its plan declares.
    pub files: Arc<[String]>,
}

/// How well the open pull requests of a repository are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostKnowledge {
    /// The host was read lately.
    #[default]
    Current,
    /// The host was not read since the service started.
    Unread,
    /// The host was last read at this time, which is too long ago.
    Old(Timestamp),
}

impl RepositoryLoad {
    /// Returns whether an issue has an open pull request. A run of it would open no other.
    pub fn has_pull_of(&self, issue: &IssueId) -> bool {
        self.pulls.iter().any(|pull| pull.issue == *issue)
    }

    /// Runs that may open a further pull request.
    pub(crate) fn opening_runs(&self) -> impl Iterator<Item = &OpeningRun> {
        self.runs.iter().filter(|run| !self.has_pull_of(&run.issue))
    }
}
