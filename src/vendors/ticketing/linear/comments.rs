//! Comments of people: those that a poll asks for, and those of one ticket.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Linear;
use super::snapshot::{Connection, MAX_PAGES};
use crate::http::VendorError;
use domain::crypto::is_deterministic_uuid;
use domain::ids::IssueId;
use domain::ticket_command::COMMAND_PREFIX;
use domain::ticket_comment::{AuthorKind, CommentAuthor, CommentWatch, TicketComment};
use domain::time::Timestamp;

/// Fields of a [`CommentRow`]. With the fields of [`FIRST`], 100 of them cost 510 complexity points.
pub(super) const FIELDS: &str = "id body createdAt updatedAt issueId \
    user { id name email app } botActor { id } externalUser { id }";

/// Parameter of [`FIRST`].
pub(super) const PARAMETERS: &str = ", $comments: CommentFilter!";

/// First page of the comments, as a part of the query of issues. `FIELDS` stands for [`FIELDS`].
pub(super) const FIRST: &str = "\
comments(first: 100, filter: $comments) { nodes { FIELDS } pageInfo { hasNextPage endCursor } }";

const MORE: &str = "\
query($after: String, $comments: CommentFilter!) {
  comments(first: 250, after: $after, filter: $comments) { nodes { FIELDS } pageInfo { hasNextPage endCursor } }
}";

/// Returns the filter for the comments that a poll asks for. `None` if it asks for none.
///
/// Comments are chosen by the time of their creation: each poll reads all comments since a question was asked, so it
/// sees their edits, too.
pub(super) fn filter(watch: &CommentWatch) -> Option<Value> {
    let mut any = Vec::new();
    if let Some(since) = watch.waiting.iter().map(|(_, since)| *since).min() {
        let issues: Vec<&IssueId> = watch.waiting.iter().map(|(issue, _)| &issue.id).collect();
        any.push(json!({"issue": {"id": {"in": issues}}, "createdAt": {"gte": since}}));
    }
    if let Some(since) = watch.commands_since {
        any.push(json!({"body": {"startsWith": COMMAND_PREFIX}, "createdAt": {"gte": since}}));
    }
    (!any.is_empty()).then(|| json!({ "or": any }))
}

/// Reads the comments after a first page.
///
/// # Errors
/// Fails if a page cannot be read.
pub(super) async fn read_all(
    linear: &Linear,
    filter: &Value,
    first: Connection<CommentRow>,
) -> Result<Vec<TicketComment>, VendorError> {
    let query = MORE.replace("FIELDS", FIELDS);
    let mut found = Vec::new();
    let mut page = first;
    for _ in 0..MAX_PAGES {
        let next = page.page_info.next();
        found.extend(page.nodes.into_iter().filter_map(CommentRow::translate));
        let Some(after) = next else {
            break;
        };
        let variables = json!({ "after": after, "comments": filter });
        let comments: Comments = linear
            .execute(linear.query("reading comments", &query, variables))
            .await?;
        page = comments.comments;
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Comments {
    comments: Connection<CommentRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommentRow {
    id: String,
    body: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// `None` for a comment on a project, a document or an update.
    issue_id: Option<IssueId>,
    user: Option<User>,
    bot_actor: Option<Actor>,
    external_user: Option<Actor>,
}

/// Member of the workspace, or an app that acts as a member of it.
#[derive(Deserialize)]
pub(super) struct User {
    id: String,
    name: String,
    email: Option<String>,
    #[serde(default)]
    app: bool,
}

/// Program or external person. Linear does not return an id for each.
#[derive(Deserialize)]
pub(super) struct Actor {
    id: Option<String>,
}

impl CommentRow {
    /// Converts a comment. `None` if it is not on an issue.
    pub(super) fn translate(self) -> Option<TicketComment> {
        let is_ours = is_deterministic_uuid(&self.id);
        let by_other = self.bot_actor.or(self.external_user);
        let mut author = author(self.user, by_other);
        if is_ours {
            author.kind = AuthorKind::Service;
        }
        Some(TicketComment {
            id: self.id,
            issue: self.issue_id?,
            author,
            created_at: self.created_at,
            updated_at: self.updated_at,
            body: self.body,
            // The id of the comment is derived from the id of the effect, which cannot be computed from it.
            effect_id: None,
        })
    }
}

/// Returns the author of a comment or of a change. A guest is a person.
pub(super) fn author(user: Option<User>, by_other: Option<Actor>) -> CommentAuthor {
    match (user, by_other) {
        (Some(user), other) => CommentAuthor {
            kind: match user.app || other.is_some() {
                true => AuthorKind::Other,
                false => AuthorKind::Person,
            },
            id: user.id,
            name: user.name,
            email: user.email,
        },
        (None, other) => CommentAuthor {
            id: other.and_then(|other| other.id).unwrap_or_default(),
            name: String::new(),
            email: None,
            kind: AuthorKind::Other,
        },
    }
}
