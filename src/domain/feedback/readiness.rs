//! Readiness of a pull request to be merged, as GitHub last reported it. For operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Checks and reviews of an open pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestReadiness {
    /// Checks of the head commit. `None` if it has none.
    #[serde(default)]
    pub checks: Option<PullRequestChecks>,
    /// Decision of the reviewers. `None` without a review and without required reviews.
    #[serde(default)]
    pub review_decision: Option<ReviewDecision>,
    /// Whether it can be merged without conflicts. `None` while the host computes that.
    #[serde(default)]
    pub mergeable: Option<bool>,
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
