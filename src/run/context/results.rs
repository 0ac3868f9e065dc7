//! Results that steps leave for later steps and for the report of the run.

use crate::blocking_finding::BlockingFinding;
use crate::git::merge::TreeMerge;
use crate::git::staging::StagedTree;
use domain::job::PullRequestRef;
use domain::question::Question;
use domain::sensitive_files::SensitiveFile;

/// Commits of the clone. A push moves them.
#[derive(Debug)]
pub(crate) struct Checkout {
    /// Commit of the base branch.
    pub base_commit: String,
    /// Merge base of branch and base; all later commits are ours. The base itself once it is merged.
    pub fork_point: String,
    /// Commit that the work starts from.
    pub head_commit: String,
    /// Head of the branch on the remote; `None` if the branch does not exist.
    pub remote_head: Option<String>,
    /// Whether an earlier attempt pushed this dispatch's commit.
    pub already_pushed: bool,
    /// Whether the branch holds our commits without a pull request.
    pub has_unpublished_work: bool,
    /// Merge of the base branch into the branch, of a run for this task.
    pub merge: Option<BaseMerge>,
    /// Whether the branch already contained the base, in a run that merges it.
    pub is_up_to_date: bool,
}

impl Checkout {
    /// Returns the merge of the base branch until it is pushed.
    pub(crate) fn pending_merge(&self) -> Option<&BaseMerge> {
        let merge = self.merge.as_ref();
        merge.filter(|merge| merge.head == self.head_commit)
    }

    /// Returns the commit or tree that the run's change is compared with for its review: after a merge the
    /// automatic result, because everything else was reviewed on its own branch.
    pub(crate) fn review_base(&self) -> &str {
        match &self.merge {
            Some(merge) => &merge.merged.tree,
            None => &self.fork_point,
        }
    }
}

/// Merge of the base branch into the branch.
#[derive(Debug)]
pub(crate) struct BaseMerge {
    /// Head of the branch before the merge.
    pub head: String,
    /// Head of the base branch.
    pub base: String,
    /// Merged tree and conflicts.
    pub merged: TreeMerge,
    /// Titles of the branch's commits to the files in conflict, newest first.
    pub branch_titles: Vec<String>,
    /// Titles of the base branch's commits to the files in conflict, newest first.
    pub base_titles: Vec<String>,
}

impl BaseMerge {
    /// Returns the merged commits: head of the branch, head of the base branch.
    pub(crate) fn sides(&self) -> [&str; 2] {
        [&self.head, &self.base]
    }

    /// Whether the branches merge without conflicts.
    pub(crate) fn is_clean(&self) -> bool {
        self.merged.conflicts.is_empty()
    }
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
    /// Files that belong into Git LFS and are committed themselves.
    pub missing_in_lfs: Vec<String>,
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
    /// Patch of work that could not be pushed, or that waits for an answer.
    pub patch: Option<String>,
    /// Questions to people that end the run.
    pub questions: Vec<Question>,
    /// Comments of a planning run for the ticket.
    pub ticket_comments: Vec<String>,
    /// Files that the last run of the verify script left.
    pub evidence: Evidence,
}

/// Files that the verify script left.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Names of the files.
    pub names: Vec<String>,
    /// Whether the service keeps them.
    pub is_kept: bool,
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
