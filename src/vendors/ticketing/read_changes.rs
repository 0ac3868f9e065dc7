//! Changed issues whose comments were read, for systems that need requests per issue.

use std::collections::{HashMap, HashSet};

use crate::http::now_millis;
use domain::ids::IssueId;
use domain::issue::{IssueRef, PollResult};
use domain::limits::CHANGE_SETTLED_AFTER;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;

/// Times of the last change of issues whose comments were read since.
#[derive(Default)]
pub(super) struct ReadChanges(HashMap<IssueId, Timestamp>);

impl ReadChanges {
    /// Returns those of the issues, with their last change, that changed at or after `since` and after their comments
    /// were read, oldest change first.
    pub(super) fn unread<'i>(
        &mut self,
        changes: impl IntoIterator<Item = (&'i IssueRef, Timestamp)>,
        since: Timestamp,
    ) -> Vec<(IssueRef, Timestamp)> {
        self.0.retain(|_, updated| *updated >= since);
        let changed = changes
            .into_iter()
            .filter(|(issue, updated)| *updated >= since && self.0.get(&issue.id) != Some(updated));
        let changed = changed.map(|(issue, updated)| (issue.clone(), updated));
        let mut changed: Vec<_> = changed.collect();
        changed.sort_by_key(|(_, updated)| *updated);
        changed
    }

    /// Records that the comments of issues were read after their last change.
    pub(super) fn record(&mut self, read: impl IntoIterator<Item = (IssueRef, Timestamp)>) {
        let settled = read.into_iter().filter(|(_, updated)| is_settled(*updated));
        self.0
            .extend(settled.map(|(issue, updated)| (issue.id, updated)));
    }
}

/// Returns whether no other change has the same time as a change that is read now.
pub(super) fn is_settled(updated: Timestamp) -> bool {
    updated + CHANGE_SETTLED_AFTER < Timestamp::from_millis(now_millis())
}

/// Last changes of the issues that a poll lists.
pub(super) fn listed_changes(poll: &PollResult) -> impl Iterator<Item = (&IssueRef, Timestamp)> {
    let issues = poll.issues.iter();
    issues.filter_map(|issue| Some((&issue.issue, issue.updated_at?)))
}

/// Returns the earlier issues that a poll does not list.
pub(super) fn unlisted(watch: &CommentWatch, poll: &PollResult) -> Vec<IssueRef> {
    let listed: HashSet<&IssueId> = poll.issues.iter().map(|issue| &issue.issue.id).collect();
    let earlier = watch.earlier.iter();
    let unlisted = earlier.filter(|issue| !listed.contains(&issue.id));
    unlisted.cloned().collect()
}
