//! State of a pull request and of its commits, as GitHub last reported it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::COMMIT_EMAIL;

/// Checks, reviews and commits of an open pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestReadiness {
    /// Checks of the head commit. `None` if it has none.
    #[serde(default)]
    pub checks: Option<PullRequestChecks>,
    /// Number of reviewers whose latest review approves, with or without write permission, of any commit.
    #[serde(default)]
    pub approvals: u32,
    /// Decision of the reviewers. `None` without a review and without required reviews.
    #[serde(default)]
    pub review_decision: Option<ReviewDecision>,
    /// Whether it can be merged without conflicts. `None` while the host computes that.
    #[serde(default)]
    pub mergeable: Option<bool>,
    /// What the rules of the base branch still require. `None` while the host computes that.
    #[serde(default)]
    pub merge_state: Option<MergeState>,
    /// Head commit. `None` in records of older versions.
    #[serde(default)]
    pub head: Option<HeadCommit>,
    /// SHA of the head commit of the base branch.
    #[serde(default)]
    pub base: Option<String>,
    /// Name of the base branch. `None` in records of older versions.
    #[serde(default)]
    pub base_branch: Option<String>,
    /// Whether the host merges the pull request by itself once its rules are met.
    #[serde(rename = "autoMerge", default)]
    pub is_auto_merge_armed: bool,
}

/// Head commit of a pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadCommit {
    /// SHA.
    pub sha: String,
    /// Email of the author.
    #[serde(default)]
    pub author_email: String,
    /// SHAs of the first two parents.
    #[serde(default)]
    pub parents: Vec<String>,
}

impl HeadCommit {
    /// Returns whether a run created the commit.
    pub fn is_of_run(&self) -> bool {
        self.author_email == COMMIT_EMAIL
    }
}

/// Reason why the host merges a pull request, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeState {
    /// The branch must be brought up to date with the base branch first.
    Behind,
    /// A rule of the base branch is not met: a missing review or a required check.
    Blocked,
    /// Can be merged.
    Clean,
    /// In conflict with the base branch.
    Dirty,
    /// Draft.
    Draft,
    /// Can be merged; hooks of the host run before.
    HasHooks,
    /// Can be merged; a check that is not required fails.
    Unstable,
}

impl MergeState {
    /// Parses the spelling of the host. `None` while it computes the state.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "BEHIND" => MergeState::Behind,
            "BLOCKED" => MergeState::Blocked,
            "CLEAN" => MergeState::Clean,
            "DIRTY" => MergeState::Dirty,
            "DRAFT" => MergeState::Draft,
            "HAS_HOOKS" => MergeState::HasHooks,
            "UNSTABLE" => MergeState::Unstable,
            _ => return None,
        })
    }
}

/// Checks of the head commit of a pull request: check runs and commit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullRequestChecks {
    /// State of all checks together.
    pub state: ChecksState,
    /// Number of failed checks.
    pub failed: u64,
    /// Number of checks.
    #[schemars(range(min = 1))]
    pub total: u64,
}

/// State of all checks of a commit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChecksState {
    /// All have succeeded.
    Success,
    /// At least one has failed.
    Failure,
    /// None has failed, and at least one has not ended.
    Pending,
}

/// Decision of the reviewers of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewDecision {
    /// Approved.
    Approved,
    /// A reviewer requests changes.
    ChangesRequested,
    /// A required review is missing.
    ReviewRequired,
}
