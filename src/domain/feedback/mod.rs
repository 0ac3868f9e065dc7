//! Feedback on pull requests of the service, and its classification.
//!
//! [`classify`] classifies one review comment by its author, its kind and its structure. The
//! permissions of the author are checked elsewhere. A review decision, a label, a heading and a
//! task list request changes. Words alone do not, because "not blocking" also contains "blocking".

mod branch_updates;
mod comment_parser;
mod follow_up_policy;
mod landing;
mod ledger;
mod readiness;

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, JobId, Repo};
use super::job::Job;
use super::time::Timestamp;

pub use branch_updates::{
    BranchUpdate, BranchUpdateRecord, ConflictAttempt, HostUpdate, next_updates,
};
pub use comment_parser::{is_marked_blocking, parse_command};
pub use follow_up_policy::{FollowUpPolicy, automatic_runs_resume_at};
pub use landing::may_work_automatically;
pub use ledger::{
    CommentCommand, CommentCommandState, NextPullRequestRun, PullRequestOpening, PullRequestRecord,
    PullRequestStatus, ReviewFinding, ReviewFindingState, format_findings, next_pull_request_run,
};
pub use readiness::{
    ChecksState, HeadCommit, MergeState, PullRequestChecks, PullRequestReadiness, ReviewDecision,
};

/// Email of author and committer of every commit of a run. No mailbox: it tells commits of runs from
/// those of people.
pub const COMMIT_EMAIL: &str = "agent-implement@noreply.invalid";

/// Pull request, by repository and number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PullRequestId {
    /// Repository.
    pub repo: Repo,
    /// Number of the pull request.
    pub number: u64,
}

impl PullRequestId {
    /// Returns the id of a pull request of a repository.
    pub fn new(repo: &Repo, number: u64) -> Self {
        Self {
            repo: repo.clone(),
            number,
        }
    }

    /// Returns the pull request that a job opened or works on.
    pub fn of_job(job: &Job) -> Option<Self> {
        Some(Self {
            repo: job.repo.clone(),
            number: job.pull.as_ref()?.number,
        })
    }
}

/// Place of a review comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedbackSource {
    /// Text of a review as a whole.
    Review,
    /// Comment at a line of the diff.
    ReviewComment,
    /// Comment in the conversation of the pull request.
    IssueComment,
}

impl FeedbackSource {
    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            FeedbackSource::Review => "review",
            FeedbackSource::ReviewComment => "review-comment",
            FeedbackSource::IssueComment => "issue-comment",
        }
    }
}

/// Author of a review comment. Accounts of GitHub Apps are not persons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FeedbackAuthor {
    /// Person.
    Person {
        /// Login of the account.
        login: String,
    },
    /// GitHub App.
    App {
        /// Name of the App in addresses.
        slug: String,
    },
}

impl FeedbackAuthor {
    /// Returns the author for an account of the host. Only the REST API appends `[bot]` to the
    /// logins of Apps.
    pub fn from_account(login: &str, is_bot: bool) -> Self {
        match login.strip_suffix("[bot]") {
            Some(slug) => FeedbackAuthor::App { slug: slug.into() },
            None if is_bot => FeedbackAuthor::App { slug: login.into() },
            None => FeedbackAuthor::Person {
                login: login.into(),
            },
        }
    }

    /// Returns the login or the slug.
    pub fn name(&self) -> &str {
        match self {
            FeedbackAuthor::Person { login } => login,
            FeedbackAuthor::App { slug } => slug,
        }
    }
}

/// Decision of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// Changes are requested.
    ChangesRequested,
    /// Comment without a decision.
    Commented,
    /// Approved.
    Approved,
    /// Dismissed.
    Dismissed,
}

impl ReviewState {
    /// Parses the state in either spelling of the host. `None` for a review that is not submitted
    /// yet.
    pub fn parse(state: &str) -> Option<Self> {
        Some(match state.to_ascii_lowercase().as_str() {
            "changes_requested" => ReviewState::ChangesRequested,
            "commented" => ReviewState::Commented,
            "approved" => ReviewState::Approved,
            "dismissed" => ReviewState::Dismissed,
            _ => return None,
        })
    }
}

/// Comment or review on a pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewComment {
    /// Place of the comment.
    pub source: FeedbackSource,
    /// Number at the host, unique per source.
    pub id: u64,
    /// Author.
    pub author: FeedbackAuthor,
    /// Decision, for reviews only.
    #[serde(rename = "verdict", default)]
    pub review_state: Option<ReviewState>,
    /// File of the comment.
    #[serde(default)]
    pub path: Option<String>,
    /// Line at which the comment was made. The host moves the displayed line with each push; this
    /// value does not change.
    #[serde(default)]
    pub line: Option<u64>,
    /// Text.
    pub body: String,
    /// Creation time.
    #[serde(default)]
    pub created_at: Timestamp,
}

impl ReviewComment {
    /// Returns the identity of the comment before hashing. The same text at the same place is the
    /// same feedback, regardless of line breaks. A comment without text is identified by its id.
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

/// Class of a review comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedbackClass {
    /// Requests a run, with an optional instruction.
    Command(Option<String>),
    /// Requests changes.
    ChangeRequest,
    /// Requests nothing.
    Ignored(IgnoreReason),
}

/// Reason why a review comment requests nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Written by the service or a run.
    OwnComment,
    /// Marked as optional by its author.
    Nit,
    /// Only praises or agrees.
    Praise,
    /// Has no text.
    Empty,
    /// Belongs to a review that requests no changes.
    NoChangesRequested,
    /// Contains no task, label, heading or request.
    NotActionable,
}

impl IgnoreReason {
    /// Returns the reason for logs and webhook responses.
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

/// Classifies a review comment.
pub fn classify(comment: &ReviewComment) -> FeedbackClass {
    let body = comment.body.as_str();
    if comment_parser::is_own_comment(body) {
        return FeedbackClass::Ignored(IgnoreReason::OwnComment);
    }
    if comment.review_state == Some(ReviewState::ChangesRequested) {
        return FeedbackClass::ChangeRequest;
    }
    let requests_changes = match (&comment.author, comment.source) {
        (_, FeedbackSource::Review) if comment.review_state != Some(ReviewState::Commented) => {
            return FeedbackClass::Ignored(IgnoreReason::NoChangesRequested);
        }
        (FeedbackAuthor::Person { .. }, FeedbackSource::IssueComment)
            if parse_command(body).is_some() =>
        {
            return FeedbackClass::Command(parse_command(body).filter(|text| !text.is_empty()));
        }
        _ if body.trim().is_empty() => return FeedbackClass::Ignored(IgnoreReason::Empty),
        // Apps mark the severity of their findings. Without a mark, a finding does not block.
        (FeedbackAuthor::App { .. }, _) => is_marked_blocking(body),
        (FeedbackAuthor::Person { .. }, FeedbackSource::ReviewComment) => {
            match comment_parser::ignore_reason(body) {
                Some(reason) => return FeedbackClass::Ignored(reason),
                None => true,
            }
        }
        (FeedbackAuthor::Person { .. }, FeedbackSource::Review | FeedbackSource::IssueComment) => {
            comment_parser::is_actionable(body)
        }
    };
    if requests_changes {
        FeedbackClass::ChangeRequest
    } else {
        FeedbackClass::Ignored(IgnoreReason::NotActionable)
    }
}

/// Hidden block by which the service recognizes its pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestMeta {
    /// Issue of the pull request.
    pub issue_id: IssueId,
    /// Job that opened it.
    pub job_id: JobId,
}

impl PullRequestMeta {
    /// Finds the block in the text of a pull request.
    pub fn from_body(body: &str) -> Option<Self> {
        let (_, block) = body.split_once("<!-- agent-implement-meta ")?;
        let (json, _) = block.split_once("-->")?;
        serde_json::from_slice(json.trim().as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests;
