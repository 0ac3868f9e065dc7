//! What people say about a pull request of ours, and what of it asks for more work.
//!
//! [`judge`] looks at one remark by itself: who said it in which way, and how its text is built. Who
//! its author is to the repository is asked elsewhere. A verdict, a mark, a heading, a list of things
//! to do are signs; words alone are none, because "not blocking" holds one, too. (facts of the hosts)

mod comment_parser;
mod ledger;

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, JobId, Repo};
use super::time::Timestamp;

pub use comment_parser::{is_marked_blocking, parse_command};
pub use ledger::{
    CommentCommand, CommentCommandState, FollowUpPolicy, NextPullRequestRun, PullRequestRecord,
    PullRequestStatus, ReviewFinding, ReviewFindingState, format_findings, next_pull_request_run,
};

/// A pull request by its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PullRequestId {
    pub repo: Repo,
    pub number: u64,
}

/// Where a remark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedbackSource {
    /// The text of a review as a whole.
    Review,
    /// At a line.
    ReviewComment,
    /// In the conversation of the pull request.
    IssueComment,
}

impl FeedbackSource {
    pub fn as_str(self) -> &'static str {
        match self {
            FeedbackSource::Review => "review",
            FeedbackSource::ReviewComment => "review-comment",
            FeedbackSource::IssueComment => "issue-comment",
        }
    }
}

/// Who said it. The accounts of Apps are no persons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FeedbackAuthor {
    Person {
        login: String,
    },
    /// By the App's name in addresses.
    App {
        slug: String,
    },
}

impl FeedbackAuthor {
    /// Reads an account as the host shows it; only its REST interface marks the logins of Apps.
    pub fn from_account(login: &str, is_bot: bool) -> Self {
        match login.strip_suffix("[bot]") {
            Some(slug) => FeedbackAuthor::App { slug: slug.into() },
            None if is_bot => FeedbackAuthor::App { slug: login.into() },
            None => FeedbackAuthor::Person {
                login: login.into(),
            },
        }
    }

    pub fn name(&self) -> &str {
        match self {
            FeedbackAuthor::Person { login } => login,
            FeedbackAuthor::App { slug } => slug,
        }
    }
}

/// What a review decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    ChangesRequested,
    Commented,
    Approved,
    Dismissed,
}

impl ReviewState {
    /// Reads the host's word in either of its spellings; none for a review that is not given yet.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "changes_requested" => ReviewState::ChangesRequested,
            "commented" => ReviewState::Commented,
            "approved" => ReviewState::Approved,
            "dismissed" => ReviewState::Dismissed,
            _ => return None,
        })
    }
}

/// Something that was said about a pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewComment {
    pub source: FeedbackSource,
    /// The host's number of it, unique among its kind.
    pub id: u64,
    pub author: FeedbackAuthor,
    /// Of reviews alone.
    #[serde(rename = "verdict", default)]
    pub review_state: Option<ReviewState>,
    #[serde(default)]
    pub path: Option<String>,
    /// The line it was made at; the host moves lines with every push, this one stays.
    #[serde(default)]
    pub line: Option<u64>,
    pub body: String,
    #[serde(default)]
    pub created_at: Timestamp,
}

impl ReviewComment {
    /// What the ledger knows it by, before hashing: the same words at the same place are the same
    /// feedback, however they are broken into lines. A review that says nothing is known by itself.
    pub fn fingerprint_input(&self) -> String {
        let folded: Vec<&str> = self.body.split_whitespace().collect();
        let body = match folded.is_empty() {
            true => format!("#{}", self.id),
            false => folded.join(" "),
        };
        let line = self.line.map(|line| line.to_string()).unwrap_or_default();
        let path = self.path.as_deref().unwrap_or_default();
        format!("{}\n{path}\n{line}\n{body}", self.source.as_str())
    }
}

/// What a remark asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedbackClass {
    /// A run, with this instruction.
    Command(Option<String>),
    /// That something be changed.
    ChangeRequest,
    Ignored(IgnoreReason),
}

/// Why a remark asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    OwnComment,
    Nit,
    Praise,
    Empty,
    NoChangesRequested,
    NotActionable,
}

impl IgnoreReason {
    pub fn as_str(self) -> &'static str {
        match self {
            IgnoreReason::OwnComment => "our own words",
            IgnoreReason::Nit => "optional",
            IgnoreReason::Praise => "praise",
            IgnoreReason::Empty => "empty",
            IgnoreReason::NoChangesRequested => "does not request changes",
            IgnoreReason::NotActionable => "nothing actionable",
        }
    }
}

/// Judges a remark by itself.
pub fn classify(remark: &ReviewComment) -> FeedbackClass {
    let body = remark.body.as_str();
    if comment_parser::is_own_comment(body) {
        return FeedbackClass::Ignored(IgnoreReason::OwnComment);
    }
    if remark.review_state == Some(ReviewState::ChangesRequested) {
        return FeedbackClass::ChangeRequest;
    }
    let asks = match (&remark.author, remark.source) {
        (_, FeedbackSource::Review) if remark.review_state != Some(ReviewState::Commented) => {
            return FeedbackClass::Ignored(IgnoreReason::NoChangesRequested);
        }
        (FeedbackAuthor::Person { .. }, FeedbackSource::IssueComment)
            if parse_command(body).is_some() =>
        {
            return FeedbackClass::Command(parse_command(body).filter(|text| !text.is_empty()));
        }
        _ if body.trim().is_empty() => return FeedbackClass::Ignored(IgnoreReason::Empty),
        // A program says how grave it finds what it says; without a mark it is not.
        (FeedbackAuthor::App { .. }, _) => is_marked_blocking(body),
        (FeedbackAuthor::Person { .. }, FeedbackSource::ReviewComment) => {
            match comment_parser::ignore_reason(body) {
                Some(why) => return FeedbackClass::Ignored(why),
                None => true,
            }
        }
        (FeedbackAuthor::Person { .. }, FeedbackSource::Review | FeedbackSource::IssueComment) => {
            comment_parser::is_actionable(body)
        }
    };
    if asks {
        FeedbackClass::ChangeRequest
    } else {
        FeedbackClass::Ignored(IgnoreReason::NotActionable)
    }
}

/// The block by which we know a pull request of ours.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestMeta {
    pub issue_id: IssueId,
    pub job_id: JobId,
}

impl PullRequestMeta {
    /// Finds it in the text of a pull request.
    pub fn from_body(body: &str) -> Option<Self> {
        let (_, block) = body.split_once("<!-- agent-implement-meta ")?;
        let (json, _) = block.split_once("-->")?;
        serde_json::from_str(json.trim()).ok()
    }
}

#[cfg(test)]
mod tests;
