//! Updates of the branch of a pull request from its base branch, and the decision about the next one.
//!
//! The host merges where its rules want an up-to-date branch. A run merges where the branches are in conflict. One
//! update at a time per repository: each merge of a pull request moves the base of all others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MergeState, PullRequestRecord, PullRequestStatus, ReviewDecision};
use crate::ids::JobId;
use crate::time::Timestamp;

/// Time after a push by somebody else in which the branch is left to them.
pub(super) const QUIET_AFTER_PUSH: Duration = Duration::from_secs(10 * 60);

/// Time after which an update by the host that moved nothing no longer counts as under way.
const HOST_UPDATE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum number of attempts that are remembered per pull request.
const MAX_ATTEMPTS: usize = 16;

/// Updates of the branch of a pull request from its base branch.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BranchUpdateRecord {
    /// Last update that the host was requested to make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_host: Option<HostUpdate>,
    /// Runs for conflicts, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ConflictAttempt>,
    /// Base branch that is not the project's, once the pull request has a comment about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_base: Option<String>,
}

/// Update of a branch by the host.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostUpdate {
    /// Head of the branch before.
    pub head: String,
    /// Head of the base branch.
    pub base: String,
    /// Time of the request.
    pub at: Timestamp,
}

/// Run for a conflict: one per head of the branch and head of the base branch.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConflictAttempt {
    /// Head of the branch.
    pub head: String,
    /// Head of the base branch.
    pub base: String,
    /// Job of the run.
    pub job: JobId,
}

impl BranchUpdateRecord {
    /// Returns the record with a run for a conflict.
    #[must_use]
    pub fn with_attempt(mut self, attempt: ConflictAttempt) -> Self {
        self.attempts.push(attempt);
        let surplus = self.attempts.len().saturating_sub(MAX_ATTEMPTS);
        self.attempts.drain(..surplus);
        self
    }

    /// Returns the record without the run of a job, so that the conflict gets another.
    #[must_use]
    pub fn without_attempt(mut self, job: &JobId) -> Self {
        self.attempts.retain(|attempt| attempt.job != *job);
        self
    }
}

/// Update that the branch of a pull request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUpdate {
    /// Merge by the host: the branch is behind, without conflicts.
    ByHost,
    /// Merge by a run that resolves the conflicts.
    ByRun,
}

impl PullRequestRecord {
    /// Returns whether the head commit is of the service: of a run, or the merge of an update that the service
    /// requested of the host.
    pub fn head_is_ours(&self) -> bool {
        let Some(head) = &self.readiness.head else {
            return false;
        };
        let updated = self.updates.by_host.as_ref();
        head.is_of_run()
            || updated.is_some_and(
                |update| matches!(head.parents.as_slice(), [first, _] if *first == update.head),
            )
    }

    /// Returns the update that the branch needs now, whatever else happens on the pull request. One that was
    /// attempted with the same commits is not needed again.
    pub fn needed_update(&self, now: Timestamp) -> Option<BranchUpdate> {
        let (head, base) = self.commits()?;
        if self.status != PullRequestStatus::Open || self.is_in_peoples_hands(now) {
            return None;
        }
        let readiness = &self.readiness;
        let updates = &self.updates;
        match (readiness.mergeable, readiness.merge_state) {
            (Some(false), _) => {
                let is_same = |one: &ConflictAttempt| one.head == head && one.base == base;
                let is_attempted = updates.attempts.iter().any(is_same);
                (!is_attempted).then_some(BranchUpdate::ByRun)
            }
            (_, Some(MergeState::Behind)) => {
                let is_same = |one: &HostUpdate| one.head == head && one.base == base;
                let is_requested = updates.by_host.as_ref().is_some_and(is_same);
                (!is_requested).then_some(BranchUpdate::ByHost)
            }
            _ => None,
        }
    }

    /// Returns whether the host still works on an update of the branch.
    pub fn is_updated_by_host(&self, now: Timestamp) -> bool {
        let Some((head, _)) = self.commits() else {
            return false;
        };
        let update = self.updates.by_host.as_ref();
        self.status == PullRequestStatus::Open
            && update.is_some_and(|update| {
                update.head == head && now.since(update.at) < HOST_UPDATE_TIMEOUT
            })
    }

    /// Returns whether somebody else pushed to the branch a short time ago.
    fn is_in_peoples_hands(&self, now: Timestamp) -> bool {
        let is_recent = |at| now.since(at) < QUIET_AFTER_PUSH;
        !self.head_is_ours() && self.head_seen_at.is_some_and(is_recent)
    }

    /// Returns the heads of branch and base branch, if the host has reported both.
    pub fn commits(&self) -> Option<(&str, &str)> {
        let head = self.readiness.head.as_ref()?;
        Some((&head.sha, self.readiness.base.as_deref()?))
    }
}

/// Returns the updates that the pull requests of a repository need, the next one first: of approved pull requests,
/// then of the oldest. Empty while one is under way.
pub fn next_updates<'a>(
    pulls: impl IntoIterator<Item = (u64, &'a PullRequestRecord)>,
    has_active_run: bool,
    now: Timestamp,
) -> Vec<(u64, BranchUpdate)> {
    let mut needed = Vec::new();
    for (number, record) in pulls {
        if record.is_updated_by_host(now) {
            return Vec::new();
        }
        if let Some(update) = record.needed_update(now) {
            let is_approved = record.readiness.review_decision == Some(ReviewDecision::Approved);
            needed.push((!is_approved, number, update));
        }
    }
    if has_active_run {
        return Vec::new();
    }
    needed.sort_by_key(|(is_unapproved, number, _)| (*is_unapproved, *number));
    let needed = needed.into_iter();
    needed.map(|(_, number, update)| (number, update)).collect()
}

#[cfg(test)]
mod tests;
