//! Outcome of merging the base branch into the branch of a pull request, as a run reports it.

use serde::{Deserialize, Serialize};

use super::sanitize;

/// Maximum number of files named.
const MAX_FILES: usize = 50;

/// Maximum length of the name of a file, in bytes.
const MAX_PATH_BYTES: usize = 300;

/// Outcome of merging the base branch.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MergeReport {
    /// Files that were in conflict. Empty if the branches merge without conflicts.
    pub conflicts: Vec<String>,
    /// Number of further files in conflict.
    pub unnamed: usize,
}

impl MergeReport {
    /// Creates the report of a merge with conflicts in these files.
    pub fn new(conflicts: impl IntoIterator<Item = String>) -> Self {
        let conflicts: Vec<String> = conflicts.into_iter().collect();
        Self {
            conflicts,
            unnamed: 0,
        }
        .bounded()
    }

    /// Returns an untrusted report with names on one line each, and without names above the limits.
    pub(crate) fn bounded(self) -> Self {
        let unnamed = self.conflicts.len().saturating_sub(MAX_FILES);
        let names = self.conflicts.iter().take(MAX_FILES).map(|path| {
            let name = sanitize::single_line(path);
            sanitize::truncate(name, MAX_PATH_BYTES, sanitize::ELLIPSIS).into_owned()
        });
        Self {
            conflicts: names.collect(),
            unnamed: self.unnamed.saturating_add(unnamed),
        }
    }

    /// Returns whether the branches merged without conflicts.
    pub fn is_clean(&self) -> bool {
        self.conflicts.is_empty() && self.unnamed == 0
    }
}
