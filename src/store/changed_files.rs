//! Files that open pull requests change and that plans declare, for the collision forecast.

use domain::feedback::PullRequestId;
use domain::ids::IssueId;
use serde::{Deserialize, Serialize};

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{DECLARED_FILES, PULL_FILES};

/// Files that an open pull request changes.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullFiles {
    /// Head commit with these changes.
    pub head: String,
    /// Paths, at most 300.
    pub files: Vec<String>,
}

/// Files of an open pull request. `None` until they were read.
pub fn of_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<PullFiles>> {
    PULL_FILES.get(tx, (pull.repo.to_string().as_str(), pull.number))
}

/// Replaces the files of an open pull request.
pub fn put_of_pull(tx: &WriteTx<'_>, pull: &PullRequestId, files: &PullFiles) -> StoreResult<()> {
    PULL_FILES.put(tx, (pull.repo.to_string().as_str(), pull.number), files)
}

/// Removes the files of a pull request that is no longer open.
pub(super) fn remove_of_pull(tx: &WriteTx<'_>, pull: &PullRequestId) -> StoreResult<()> {
    let key = (pull.repo.to_string(), pull.number);
    PULL_FILES.remove(tx, (key.0.as_str(), key.1)).map(drop)
}

/// Files that the plan of an issue declares. Empty without a plan.
pub fn declared(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Vec<String>> {
    Ok(DECLARED_FILES.get(tx, issue.as_str())?.unwrap_or_default())
}

/// Replaces the files that the plan of an issue declares.
pub fn put_declared(tx: &WriteTx<'_>, issue: &IssueId, files: &Vec<String>) -> StoreResult<()> {
    match files.is_empty() {
        true => DECLARED_FILES.remove(tx, issue.as_str()).map(drop),
        false => DECLARED_FILES.put(tx, issue.as_str(), files),
    }
}
