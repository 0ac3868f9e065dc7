//! Comments of people: those of the issues that a poll watches, and those of one ticket.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use serde::Deserialize;

use super::{Connection, GitHubIssues, IssueAddress};
use crate::http::VendorError;
use crate::ticketing::read_changes::{ReadChanges, listed_changes, unlisted};
use domain::ids::{IssueId, Repo};
use domain::issue::{IssueRef, PollResult};
use domain::ticket_comment::{AuthorKind, CommentAuthor, CommentWatch, TicketComment};
use domain::time::Timestamp;

const ACTION: &str = "reading comments";

/// Maximum number of changed issues whose comments one poll reads. The next polls read the others.
const MAX_CHANGED: usize = 50;

/// Newest comments of an issue, as a part of a selection.
pub(super) const COMMENTS: &str = "comments(last: 50) { nodes { id body createdAt lastEditedAt \
    viewerDidAuthor author { __typename login ... on User { name } } } }";

impl GitHubIssues {
    /// Adds the comments that `watch` asks for to the issues of a poll. Takes a request per 50 issues of an
    /// installation, and none without such issues. A failure is logged.
    pub(super) async fn read_watched(&self, watch: &CommentWatch, poll: &mut PollResult) {
        let mut changed = Vec::new();
        let mut all_read = watch.reads_each_issue;
        if let Some(since) = watch.commands_since {
            let unlisted = unlisted(watch, poll);
            let (earlier, is_complete) = self.earlier_changes(&unlisted).await;
            all_read &= is_complete;
            let changes = listed_changes(poll).chain(earlier);
            changed = self.read_changes().unread(changes, since);
        }
        all_read &= changed.len() <= MAX_CHANGED;
        changed.truncate(MAX_CHANGED);
        let waiting = watch.waiting.iter().map(|(issue, _)| issue);
        let watched = waiting.chain(&watch.announced);
        let watched = watched.chain(changed.iter().map(|(issue, _)| issue));
        let mut seen = HashSet::new();
        let issues: Vec<IssueRef> = watched
            .filter(|issue| seen.insert(&issue.id))
            .cloned()
            .collect();
        let (comments, failed) = match self.group_issues(&issues, ACTION) {
            Ok(groups) => self.comments_of_groups(groups).await,
            Err(error) => {
                warn(&error);
                (
                    Vec::new(),
                    issues.iter().map(|issue| issue.id.clone()).collect(),
                )
            }
        };
        changed.retain(|(issue, _)| !failed.contains(&issue.id));
        self.read_changes().record(changed);
        poll.comments = comments;
        poll.comments_read = all_read && failed.is_empty();
    }

    /// Returns the last changes of issues that the poll does not list, and whether all could be read. Takes a request per
    /// 50 issues of an installation.
    async fn earlier_changes<'i>(
        &self,
        issues: &'i [IssueRef],
    ) -> (Vec<(&'i IssueRef, Timestamp)>, bool) {
        let groups = match self.group_issues(issues, ACTION) {
            Ok(groups) => groups,
            Err(error) => {
                warn(&error);
                return (Vec::new(), false);
            }
        };
        let (mut changes, mut is_complete) = (Vec::new(), true);
        for group in groups {
            match self.changes_of_group(group).await {
                Ok(found) => changes.extend(found),
                Err(error) => {
                    warn(&error);
                    is_complete = false;
                }
            }
        }
        (changes, is_complete)
    }

    async fn changes_of_group<'i>(
        &self,
        group: Vec<(&'i IssueRef, IssueAddress)>,
    ) -> Result<Vec<(&'i IssueRef, Timestamp)>, VendorError> {
        let ids: Vec<IssueId> = group.iter().map(|(issue, _)| issue.id.clone()).collect();
        let repo = self.accessible_repo(&repos_of(&group), ACTION).await?;
        let answers = self.read_nodes::<ChangedIssue>(repo, ACTION, &ids, "{ updatedAt }");
        let found = answers.await?.found;
        let issues = group.iter().map(|(issue, _)| *issue);
        let changed = issues.filter_map(|issue| Some((issue, found.get(&issue.id)?.updated_at)));
        Ok(changed.collect())
    }

    /// Returns the comments of issues by installation, and the issues that could not be read.
    async fn comments_of_groups(
        &self,
        groups: Vec<Vec<(&IssueRef, IssueAddress)>>,
    ) -> (Vec<TicketComment>, HashSet<IssueId>) {
        let (mut comments, mut failed) = (Vec::new(), HashSet::new());
        let selection = format!("{{ {COMMENTS} }}");
        let mut parts = groups;
        while let Some(mut part) = parts.pop() {
            let ids: Vec<IssueId> = part.iter().map(|(issue, _)| issue.id.clone()).collect();
            let repos = repos_of(&part);
            let read = async {
                let repo = self.accessible_repo(&repos, ACTION).await?;
                self.read_nodes::<CommentedIssue>(repo, ACTION, &ids, &selection)
                    .await
            };
            match read.await {
                // A deleted issue is left out. The poll ends what waits for its comments.
                Ok(answers) => {
                    for (id, issue) in answers.found {
                        comments.extend(issue.comments.translate(&id));
                    }
                }
                // Strangers may write comments that are too large together. They must not hide those of others.
                Err(error) if part.len() > 1 && error.is_undecodable() => {
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([part, rest]);
                }
                Err(error) => {
                    warn(&error);
                    failed.extend(ids);
                }
            }
        }
        (comments, failed)
    }

    fn read_changes(&self) -> MutexGuard<'_, ReadChanges> {
        let changes = self.read_changes.lock();
        changes.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Repositories of issues. Those of one repository follow each other.
fn repos_of<'a>(issues: &'a [(&IssueRef, IssueAddress)]) -> Vec<&'a Repo> {
    let mut repos: Vec<&Repo> = issues.iter().map(|(_, address)| &address.repo).collect();
    repos.dedup();
    repos
}

fn warn(error: &VendorError) {
    tracing::warn!(%error, "Failed to read comments of GitHub issues.");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangedIssue {
    updated_at: Timestamp,
}

#[derive(Deserialize)]
struct CommentedIssue {
    comments: Connection<CommentRow>,
}

impl Connection<CommentRow> {
    /// Converts the comments of an issue.
    pub(super) fn translate(self, issue: &IssueId) -> Vec<TicketComment> {
        self.into_nodes().map(|row| row.translate(issue)).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommentRow {
    id: String,
    body: String,
    created_at: Timestamp,
    last_edited_at: Option<Timestamp>,
    viewer_did_author: bool,
    /// `None` for a deleted account.
    author: Option<Account>,
}

#[derive(Deserialize, Default)]
pub(super) struct Account {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
    name: Option<String>,
}

impl Account {
    /// Returns the account as an author. Apps and bots start nothing.
    pub(super) fn into_author(self) -> CommentAuthor {
        CommentAuthor {
            kind: match self.kind == "User" {
                true => AuthorKind::Person,
                false => AuthorKind::Other,
            },
            name: self.name.unwrap_or_else(|| self.login.clone()),
            id: self.login,
            email: None,
        }
    }
}

impl CommentRow {
    /// Converts a comment. One with our marker by another account is of an earlier account of the service, or forged.
    fn translate(self, issue: &IssueId) -> TicketComment {
        let mut author = self.author.unwrap_or_default().into_author();
        let mut effect_id = None;
        if let Some(effect) = super::comments::effect_of(&self.body) {
            author.kind = AuthorKind::Other;
            if self.viewer_did_author {
                author.kind = AuthorKind::Service;
                effect_id = Some(effect.to_owned());
            }
        }
        TicketComment {
            id: self.id,
            issue: issue.clone(),
            author,
            created_at: self.created_at,
            updated_at: self.last_edited_at.unwrap_or(self.created_at),
            body: self.body,
            effect_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn translate(body: &str, is_viewer: bool, author: Value) -> TicketComment {
        let row = json!({
            "id": "IC_1", "body": body, "createdAt": "2026-11-21T01:00:00Z",
            "lastEditedAt": "2026-11-21T02:00:00Z", "viewerDidAuthor": is_viewer, "author": author,
        });
        let row: CommentRow = serde_json::from_value(row).unwrap();
        row.translate(&IssueId::from("I_1"))
    }

    #[test]
    fn kinds_of_authors() {
        use AuthorKind::{Other, Person, Service};
        let (mona, bot) = (
            json!({"__typename": "User", "login": "mona", "name": "Mona Lisa"}),
            json!({"__typename": "Bot", "login": "agent-implement"}),
        );
        let marked = "Plan\n\n<!-- agent-implement:e1 -->";
        let quoted = "> quoted <!-- agent-implement:e1 --> text";
        let old = json!({"__typename": "Mannequin", "login": "old"});
        for (body, is_viewer, author, kind, effect) in [
            ("blue", false, &mona, Person, None),
            // The token of the service is that of a person, who also writes.
            ("blue", true, &mona, Person, None),
            (marked, true, &mona, Service, Some("e1")),
            (marked, true, &bot, Service, Some("e1")),
            (marked, false, &mona, Other, None),
            (marked, false, &bot, Other, None),
            (quoted, false, &mona, Person, None),
            ("blue", false, &bot, Other, None),
            ("blue", false, &Value::Null, Other, None),
            ("blue", false, &old, Other, None),
        ] {
            let comment = translate(body, is_viewer, author.clone());
            let found = (comment.author.kind, comment.effect_id.as_deref());
            assert_eq!(found, (kind, effect), "{body} {is_viewer} {author}");
            assert!(comment.updated_at > comment.created_at);
        }
        assert_eq!(translate("x", false, mona).author.name, "Mona Lisa");
    }
}
