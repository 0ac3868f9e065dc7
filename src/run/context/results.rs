//! Results that steps leave for later steps and for the report of the run.

use crate::blocking_finding::BlockingFinding;
use crate::git::staging::StagedTree;
use domain::job::PullRequestRef;
use domain::sensitive_files::SensitiveFile;

/// Commits of the clone. A push moves them.
#[derive(Debug)]
pub(crate) struct Checkout {
    /// Commit of the base branch.
    pub base_commit: String,
    /// Merge base of branch and base; all later commits are ours.
    pub fork_point: String,
    /// Commit that the work starts from.
    pub head_commit: String,
    /// Head of the branch on the remote; `None` if the branch does not exist.
    pub remote_head: Option<String>,
    /// Whether an earlier attempt pushed this dispatch's commit.
    pub already_pushed: bool,
    /// Whether the branch holds our commits without a pull request.
    pub has_unpublished_work: bool,
}

/// Change by the agent.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Plan made before, already fenced by the orchestrator.
    pub plan: String,
    /// Summary written by the agent.
    pub summary: String,
    /// Work tree after the feedback loop.
    pub staged: Option<StagedTree>,
    /// Results of the project's own checks.
    pub preflight_checks: Vec<PreflightCheck>,
    /// Guard findings that do not block and that a person should check.
    pub guard_warnings: Vec<SensitiveFile>,
}

/// State of the review.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// Last review by the run itself.
    pub last: Option<TreeReview>,
    /// Findings that are still open.
    pub unresolved: Vec<String>,
}

/// Output of the run outside its workspace.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// Pull request, once it is open.
    pub pull: Option<PullRequestRef>,
    /// URL of a shadow run's branch, which has no pull request.
    pub shadow_url: Option<String>,
    /// Patch of work that could not be pushed.
    pub patch: Option<String>,
    /// Comments of a planning run for the ticket.
    pub ticket_comments: Vec<String>,
}

impl Publication {
    /// Returns the URL of the pull request, or of the branch in a shadow run.
    pub(crate) fn url(&self) -> Option<String> {
        let pull = self.pull.as_ref().map(|pull| pull.url.clone());
        pull.or_else(|| self.shadow_url.clone())
    }
}

/// Review of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeReview {
    /// Object id of the reviewed tree.
    pub tree: String,
    /// Blocking findings.
    pub findings: Vec<BlockingFinding>,
}

/// Result of one of the project's own checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreflightCheck {
    /// Command line.
    pub name: String,
    /// Outcome.
    pub outcome: PreflightOutcome,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreflightOutcome {
    /// Exit code 0.
    Passed,
    /// Any other exit code.
    Failed,
    /// Not finished within its time limit.
    TimedOut,
    /// The program is not installed.
    Unavailable,
}
