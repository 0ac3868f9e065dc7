//! Facts that decide whether a pull request is merged by policy.

use crate::feedback::FeedbackAuthor;

/// State of a pull request in the service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalState {
    /// Whether its project is paused.
    pub is_paused: bool,
    /// Sentence about the person who has taken it over.
    pub taken_over: Option<String>,
    /// Whether a run works on its branch.
    pub is_busy: bool,
    /// Number of findings of reviewers and of commands that no run has processed.
    pub open_feedback: usize,
}

/// Facts about the current head of an open pull request, as GitHub reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFacts {
    /// SHA of the head commit.
    pub head: String,
    /// Branch that it is merged into.
    pub base: String,
    /// Whether its branch is in the repository itself, not in a fork.
    pub is_from_own_repo: bool,
    /// Draft flag.
    pub is_draft: bool,
    /// Whether it can be merged without conflicts. `None` while GitHub computes that.
    pub is_mergeable: Option<bool>,
    /// Checks of the head commit that the repository does not ignore.
    pub checks: Vec<MergeCheck>,
    /// Checks that the base branch requires. Read if the head has no checks.
    pub required_checks: Vec<String>,
    /// Author.
    pub author: Option<FeedbackAuthor>,
    /// Login of the account of this service.
    pub own_login: String,
    /// Latest review with an opinion of each account.
    pub reviews: Vec<HeadReview>,
    /// Number of conversations that nobody has resolved.
    pub unresolved_threads: usize,
    /// Whether there are more reviews, conversations or checks than were read.
    pub is_incomplete: bool,
    /// Number of changed files.
    pub changed_files: u32,
    /// Number of added and removed lines.
    pub changed_lines: u32,
    /// Changed files, at most [`MAX_CHECKED_FILES`](super::MAX_CHECKED_FILES).
    pub files: Vec<ChangedFile>,
}

/// Check of the head commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeCheck {
    /// Name.
    pub name: String,
    /// Outcome.
    pub outcome: CheckOutcome,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Succeeded.
    Passed,
    /// Had nothing to judge: neutral or skipped.
    Skipped,
    /// Has not ended.
    Pending,
    /// Ended in any other way.
    Failed,
}

impl CheckOutcome {
    /// Returns the outcome for a conclusion of GitHub. `None` has not ended.
    pub fn of(conclusion: Option<&str>) -> Self {
        match conclusion {
            None => Self::Pending,
            Some("success") => Self::Passed,
            Some("neutral" | "skipped") => Self::Skipped,
            Some(_) => Self::Failed,
        }
    }
}

/// Review with an opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadReview {
    /// Author.
    pub author: FeedbackAuthor,
    /// Opinion.
    pub opinion: ReviewOpinion,
    /// SHA of the commit that was reviewed. Empty if GitHub does not name it.
    pub commit: String,
    /// Whether the author has write permission.
    pub may_write: bool,
}

/// Opinion of a reviewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewOpinion {
    /// Approves.
    Approves,
    /// Requests changes.
    RequestsChanges,
}

/// Changed file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedFile {
    /// Path.
    pub path: String,
    /// Path before a renaming.
    pub previous_path: Option<String>,
    /// Number of added and removed lines.
    pub lines: u32,
    /// Whether it is the commit of a submodule.
    pub is_submodule: bool,
}

impl ChangedFile {
    /// Returns the paths of the file before and after the change.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let previous = self.previous_path.as_deref();
        previous.into_iter().chain([self.path.as_str()])
    }
}
