//! Policy by which pull requests of a project are merged without a person. Off unless asked for.
//!
//! [`decide`] judges the current head of a pull request. A merge is bound to that head: GitHub merges it only if
//! nothing was pushed since. [`MergeRecord`] is what is stored about it.

mod facts;
mod record;
mod rules;
#[cfg(test)]
mod tests;

pub use facts::{
    ChangedFile, CheckOutcome, HeadReview, LocalState, MergeCheck, MergeFacts, ReviewOpinion,
};
pub use record::{MergeEvent, MergeGrant, MergeProgress, MergeRecord, MergeRefusal, short_sha};
pub use rules::{
    MAX_CHECKED_FILES, MergeDecision, MergeRule, decide, expected_event, local_refusal,
    reported_refusal,
};

use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// When and how pull requests of a project are merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["mode"]))]
pub struct MergePolicy {
    /// Way of merging.
    pub mode: MergeMode,
    /// Kind of the merge commit.
    #[serde(default)]
    pub method: MergeMethod,
    /// Approvals of people that the head needs.
    #[serde(default = "default_approvals")]
    #[schemars(range(min = 1))]
    pub require_approvals: u32,
    /// Maximum number of changed files. `None` for no limit.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_files: Option<u32>,
    /// Maximum number of added and removed lines. `None` for no limit.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_lines: Option<u32>,
    /// Globs of files that a person merges.
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 255)))]
    pub forbid_paths: Vec<String>,
}

impl Default for MergePolicy {
    fn default() -> Self {
        Self {
            mode: MergeMode::Never,
            method: MergeMethod::default(),
            require_approvals: DEFAULT_APPROVALS,
            max_files: None,
            max_lines: None,
            forbid_paths: Vec::new(),
        }
    }
}

impl MergePolicy {
    /// Serializes the policy for the API: the default as its mode alone, others with all fields.
    ///
    /// # Errors
    /// The serializer failed.
    pub fn serialize_for_api<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self != Self::default() {
            return self.serialize(serializer);
        }
        let mut fields = serializer.serialize_map(Some(1))?;
        fields.serialize_entry("mode", &self.mode)?;
        fields.end()
    }
}

/// Default of [`MergePolicy::require_approvals`].
pub const DEFAULT_APPROVALS: u32 = 1;

fn default_approvals() -> u32 {
    DEFAULT_APPROVALS
}

/// Way of merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeMode {
    /// People merge.
    Never,
    /// The service merges once the conditions are met.
    Auto,
    /// The service adds the pull request to the merge queue once the conditions are met.
    Queue,
}

/// Kind of the merge commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeMethod {
    /// One commit with all changes.
    #[default]
    Squash,
    /// A merge commit.
    Merge,
    /// The commits of the branch on top of the base.
    Rebase,
}

impl MergeMethod {
    /// Returns the name in the API, which is that of GitHub's REST API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Squash => "squash",
            Self::Merge => "merge",
            Self::Rebase => "rebase",
        }
    }
}
