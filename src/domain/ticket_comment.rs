//! Comments that people wrote on tickets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::IssueId;
use super::issue::IssueRef;
use super::sanitize;
use super::ticket_command::TicketCommand;
use super::time::Timestamp;

/// Maximum length of the name of an author, in characters.
const MAX_AUTHOR: usize = 100;

/// Comment on a ticket, as read from the ticketing system. Its text is untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketComment {
    /// Id of the comment at the ticketing system.
    pub id: String,
    /// Issue that it was written on.
    pub issue: IssueId,
    /// Author.
    pub author: CommentAuthor,
    /// Creation time, by the clock of the ticketing system.
    pub created_at: Timestamp,
    /// Time of the last edit; the creation time if it was never edited.
    pub updated_at: Timestamp,
    /// Text in Markdown.
    pub body: String,
    /// Id of the effect that posted it, if this service did and the ticketing system returns it.
    pub effect_id: Option<String>,
}

/// Author of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentAuthor {
    /// Id of the account at the ticketing system; the login at GitHub.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Email address, if the ticketing system returns it.
    pub email: Option<String>,
    /// Who wrote the comment.
    pub kind: AuthorKind,
}

/// Kind of the author of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorKind {
    /// Person of the organization.
    Person,
    /// This service.
    Service,
    /// App, bot, customer or external person. What they write starts nothing.
    Other,
}

impl CommentAuthor {
    /// Returns the display name as one bounded line, to be shown to people and agents.
    pub fn display_name(&self) -> String {
        let line = sanitize::single_line(&self.name);
        let name = sanitize::truncate_chars(line.trim(), MAX_AUTHOR, sanitize::ELLIPSIS);
        match name.trim() {
            "" => self.id.clone(),
            name => name.to_owned(),
        }
    }

    /// Returns whether a list of email addresses and account ids names this author.
    pub fn is_named_in(&self, names: &[String]) -> bool {
        names.iter().any(|name| {
            name.eq_ignore_ascii_case(&self.id)
                || self
                    .email
                    .as_ref()
                    .is_some_and(|email| name.eq_ignore_ascii_case(email))
        })
    }
}

impl TicketComment {
    /// Returns whether a person of the organization wrote the comment.
    pub fn is_by_person(&self) -> bool {
        self.author.kind == AuthorKind::Person
    }
}

/// Which comments a poll reads beside the flagged issues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommentWatch {
    /// Issues that wait for a comment, with the time from which on comments count.
    pub waiting: Vec<(IssueRef, Timestamp)>,
    /// Issues of which a webhook announced a comment.
    pub announced: Vec<IssueRef>,
    /// Issues with a run in the last days. Most are listed no more; people write commands on them nevertheless.
    pub earlier: Vec<IssueRef>,
    /// Time since which commands were not read. `None` before the first poll.
    pub commands_since: Option<Timestamp>,
    /// Whether a system without a search for comments reads those of waiting, changed and earlier issues now. It
    /// does so in every fifth poll.
    pub reads_each_issue: bool,
}

/// Comment in the context of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextComment {
    /// Display name of the author.
    pub author: String,
    /// Creation time.
    pub at: Timestamp,
    /// Text in Markdown.
    pub body: String,
}

/// Maximum number of comments in the context of a run.
const MAX_CONTEXT_COMMENTS: usize = 20;

/// Maximum size of all texts in the context of a run, in bytes.
const MAX_CONTEXT_BYTES: usize = 16 * 1024;

/// Maximum size of one text in the context of a run, in bytes.
const MAX_CONTEXT_COMMENT_BYTES: usize = 4 * 1024;

/// End of a truncated text.
const TRUNCATION_MARK: &str = "\n[… comment truncated]";

/// Returns the newest comments by people, oldest first, and the number of comments by people that are left out.
/// Commands without words of their own are no comments. `sanitize` removes secrets.
pub fn context_comments(
    mut comments: Vec<TicketComment>,
    sanitize_text: impl Fn(&str) -> String,
) -> (Vec<ContextComment>, usize) {
    comments.retain(|comment| {
        let has_words = matches!(
            TicketCommand::parse(&comment.body),
            None | Some(TicketCommand::Replan(_) | TicketCommand::Unknown)
        );
        comment.is_by_person() && has_words && !comment.body.trim().is_empty()
    });
    comments.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    let total = comments.len();
    let (mut kept, mut used) = (Vec::new(), 0);
    for comment in comments.into_iter().rev().take(MAX_CONTEXT_COMMENTS) {
        let text = sanitize_text(&comment.body);
        let body = sanitize::truncate(text.trim(), MAX_CONTEXT_COMMENT_BYTES, TRUNCATION_MARK);
        used += body.len();
        if used > MAX_CONTEXT_BYTES {
            break;
        }
        kept.push(ContextComment {
            author: sanitize_text(&comment.author.display_name()),
            at: comment.created_at,
            body: body.into_owned(),
        });
    }
    kept.reverse();
    let left_out = total - kept.len();
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn comment(number: u64, kind: AuthorKind, body: &str) -> TicketComment {
        let at = Timestamp::EPOCH + Duration::from_secs(number);
        TicketComment {
            id: format!("c{number:03}"),
            issue: IssueId::from("i"),
            author: CommentAuthor {
                id: "u1".into(),
                name: "Ada\nLovelace".into(),
                email: Some("ada@acme.example".into()),
                kind,
            },
            created_at: at,
            updated_at: at,
            body: body.to_owned(),
            effect_id: None,
        }
    }

    #[test]
    fn keeps_the_newest_comments_of_people_oldest_first() {
        let mut comments: Vec<TicketComment> = (0..30)
            .map(|number| comment(number, AuthorKind::Person, &format!("text {number}")))
            .collect();
        comments.push(comment(40, AuthorKind::Service, "ours"));
        comments.push(comment(41, AuthorKind::Other, "a bot's"));
        comments.push(comment(42, AuthorKind::Person, " \n"));
        comments.push(comment(43, AuthorKind::Person, "/agent-implement retry"));
        comments.reverse();
        let (kept, left_out) = context_comments(comments, str::to_owned);
        let bodies: Vec<&str> = kept.iter().map(|one| one.body.as_str()).collect();
        let expected: Vec<String> = (10..30).map(|number| format!("text {number}")).collect();
        assert_eq!(bodies, expected);
        assert_eq!((kept[0].author.as_str(), left_out), ("Ada Lovelace", 10));
    }

    #[test]
    fn the_size_of_each_and_of_all_is_bounded() {
        let long = "ä".repeat(5_000);
        let comments = (0..20).map(|number| comment(number, AuthorKind::Person, &long));
        let (kept, left_out) = context_comments(comments.collect(), str::to_owned);
        assert_eq!((kept.len(), left_out), (4, 16));
        for one in &kept {
            assert!(one.body.len() <= MAX_CONTEXT_COMMENT_BYTES);
            assert!(one.body.ends_with(TRUNCATION_MARK));
        }
    }

    #[test]
    fn a_list_names_accounts_by_address_or_id() {
        let author = comment(1, AuthorKind::Person, "x").author;
        for (list, expected) in [
            ("ADA@acme.example", true),
            ("U1", true),
            ("Ada Lovelace", false),
            ("", false),
        ] {
            assert_eq!(author.is_named_in(&[list.to_owned()]), expected, "{list}");
        }
    }
}
