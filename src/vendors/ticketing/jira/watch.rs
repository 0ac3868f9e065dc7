//! Comments of people on issues that a poll watches: one request per issue, for few issues.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use serde::Deserialize;

use super::Jira;
use super::bulk_fetch::BULK_FETCH_SIZE;
use crate::http::VendorError;
use crate::ticketing::read_changes::{listed_changes, unlisted};
use domain::ids::IssueId;
use domain::issue::{IssueRef, PollResult};
use domain::ticket_comment::{CommentWatch, TicketComment};
use domain::time::Timestamp;

const ACTION: &str = "reading changes of issues";

/// Maximum number of changed issues whose comments one poll reads. The others follow in the next polls.
const MAX_CHANGED: usize = 10;

/// Maximum number of concurrent requests.
const CONCURRENT_READS: usize = 8;

impl Jira {
    /// Adds the comments that `watch` asks for to the issues of a poll. A failure is logged.
    pub(super) async fn read_watched(&self, watch: &CommentWatch, poll: &mut PollResult) {
        let mut changed = Vec::new();
        // Polls between two readings have not read what `commands_since` asks for.
        let mut all_read = watch.reads_each_issue;
        if let (true, Some(since)) = (watch.reads_each_issue, watch.commands_since) {
            let unlisted = unlisted(watch, poll);
            let earlier = match self.earlier_changes(&unlisted).await {
                Ok(earlier) => earlier,
                Err(error) => {
                    tracing::warn!(%error, "Failed to read the changes of issues with earlier runs.");
                    all_read = false;
                    Vec::new()
                }
            };
            let changes = listed_changes(poll).chain(earlier);
            changed = self.cache().read_changes.unread(changes, since);
            all_read &= changed.len() <= MAX_CHANGED;
            changed.truncate(MAX_CHANGED);
        }
        let waiting = watch.waiting.iter().filter(|_| watch.reads_each_issue);
        let watched = watch
            .announced
            .iter()
            .chain(waiting.map(|(issue, _)| issue));
        let watched = watched.chain(changed.iter().map(|(issue, _)| issue));
        let mut seen = HashSet::new();
        let issues: Vec<&IssueRef> = watched.filter(|issue| seen.insert(&issue.id)).collect();
        let (mut comments, mut failed) = (Vec::<TicketComment>::new(), HashSet::new());
        for batch in issues.chunks(CONCURRENT_READS) {
            let reads = batch.iter().map(|issue| self.newest_comments(issue));
            for (issue, read) in batch.iter().zip(join_all(reads).await) {
                match read {
                    Ok(found) => comments.extend(found),
                    // A deleted issue has no comments. The poll ends what waits for them.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        failed.insert(issue.id.clone());
                        warn(issue, &error);
                    }
                }
            }
        }
        changed.retain(|(issue, _)| !failed.contains(&issue.id));
        self.cache().read_changes.record(changed);
        poll.comments = comments;
        poll.comments_read = all_read && failed.is_empty();
    }

    /// Returns the last changes of issues that the poll does not list. Deleted issues have none.
    async fn earlier_changes<'i>(
        &self,
        issues: &'i [IssueRef],
    ) -> Result<Vec<(&'i IssueRef, Timestamp)>, VendorError> {
        let mut changes = Vec::new();
        for batch in issues.chunks(BULK_FETCH_SIZE) {
            let ids: Vec<&IssueId> = batch.iter().map(|issue| &issue.id).collect();
            let fetched = self.bulk_fetch::<ChangedFields>(ACTION, &ids, &["updated"]);
            let fetched = fetched.await?;
            let updated: HashMap<&str, Timestamp> = fetched
                .issues
                .iter()
                .map(|issue| (issue.id.as_str(), issue.fields.updated))
                .collect();
            changes.extend(batch.iter().filter_map(|issue| {
                let updated = updated.get(issue.id.as_str())?;
                Some((issue, *updated))
            }));
        }
        Ok(changes)
    }
}

#[derive(Deserialize)]
struct ChangedFields {
    updated: Timestamp,
}

fn warn(issue: &IssueRef, error: &VendorError) {
    tracing::warn!(issue = %issue.key, %error, "Failed to read the comments of an issue of Jira.");
}
