//! Clients of the ticketing systems.
//!
//! [`TicketingClient`] has one method for each operation of the service and forwards it to the client of
//! the system. Callers use stages; labels and custom fields are internal to the system's module.

mod attachments;
mod github_issues;
mod jira;
mod linear;
mod read_changes;
mod webhook_filter;

pub use attachments::AttachmentError;
pub use github_issues::{GitHubIssues, IssueTracker};
pub use jira::{FieldOption, Jira, JiraCredentials, JiraField, SelectField, SelectFieldGap};
pub use jira::{adf_to_markdown, markdown_to_adf};
pub use linear::{Linear, LinearCredentials};
pub use webhook_filter::{announced_issue, is_relevant_event};

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Deserializer};

use crate::http::{Availability, Quota, Redactor, VendorError};
use domain::ids::{IssueId, IssueKey};
use domain::issue::{
    Attachment, IssueLookup, IssueRef, PollResult, RunContext, System, TicketText,
};
use domain::mapping::Mapping;
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor, CommentWatch};
use domain::time::Timestamp;

/// Deserializes the title of an issue without secrets and invisible characters, because the title is used in names of
/// branches and pull requests, comments, chat messages and the panel. A missing title is empty.
fn sanitized_title<'de, D: Deserializer<'de>>(title: D) -> Result<String, D::Error> {
    let title = Option::<String>::deserialize(title)?.unwrap_or_default();
    Ok(Redactor::default().sanitize(&title))
}

/// Team of Linear or project of Jira.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TicketSource {
    /// Key, which begins the keys of its issues.
    pub key: String,
    /// Display name.
    pub name: String,
}

/// Client of a ticketing system.
#[derive(Clone)]
pub enum TicketingClient {
    /// Linear.
    Linear(Linear),
    /// Jira Cloud.
    Jira(Jira),
    /// GitHub Issues.
    GitHub(GitHubIssues),
}

/// Result of looking up the comment of an earlier attempt whose response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentLookup {
    /// The comment exists.
    Found,
    /// The system does not return the comment, or not yet.
    NotFound,
    /// The system rejects a second comment of the same effect, so repeating is safe.
    Idempotent,
}

impl TicketingClient {
    /// Returns the system of this client.
    pub fn system(&self) -> System {
        match self {
            TicketingClient::Linear(_) => System::Linear,
            TicketingClient::Jira(_) => System::Jira,
            TicketingClient::GitHub(_) => System::GitHub,
        }
    }

    /// Returns the name of the system in configuration, rate limits and logs.
    pub fn name(&self) -> &'static str {
        match self {
            TicketingClient::Linear(_) => "linear",
            TicketingClient::Jira(_) => "jira",
            TicketingClient::GitHub(_) => "github",
        }
    }

    /// Lists all open issues with a marker of the service, and the comments that `watch` asks for. `mappings` are
    /// those of this system. Linear also returns issues outside of the mappings. A failure to read comments is logged
    /// and reported in [`PollResult::comments_read`].
    ///
    /// # Errors
    /// Fails if a page cannot be read. An incomplete list would make the missing issues look closed.
    pub async fn snapshot(
        &self,
        mappings: &[&Mapping],
        watch: &CommentWatch,
    ) -> Result<PollResult, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.snapshot(mappings, watch).await,
            TicketingClient::Jira(jira) => jira.snapshot(mappings, watch).await,
            TicketingClient::GitHub(github) => github.snapshot(mappings, watch).await,
        }
    }

    /// Finds an issue by its key, in any state. Returns one entry for each of the `mappings` of this system
    /// whose scope contains the issue: usually one, and none if the issue does not exist or is in no scope.
    ///
    /// # Errors
    /// Fails if no mapping is found and it is unknown for some mapping whether its scope contains the issue.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.find_issue(mappings, key).await,
            TicketingClient::Jira(jira) => jira.find_issue(mappings, key).await,
            TicketingClient::GitHub(github) => github.find_issue(mappings, key).await,
        }
    }

    /// Sets the stage of an issue. Idempotent.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist or is archived.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.set_stage(issue, stage).await,
            TicketingClient::Jira(jira) => jira.set_stage(issue, stage).await,
            TicketingClient::GitHub(github) => github.set_stage(issue, stage).await,
        }
    }

    /// Creates a comment in Markdown. Call [`look_up_comment`](Self::look_up_comment) before repeating a call
    /// whose response was lost.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.create_comment(issue, effect_id, body).await,
            TicketingClient::Jira(jira) => jira.create_comment(issue, effect_id, body).await,
            TicketingClient::GitHub(github) => github.create_comment(issue, effect_id, body).await,
        }
    }

    /// Looks up a comment that an earlier attempt at `since` or later may have created.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn look_up_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
        since: Timestamp,
    ) -> Result<CommentLookup, VendorError> {
        match self {
            // The id of the comment is derived from the effect id.
            TicketingClient::Linear(_) => Ok(CommentLookup::Idempotent),
            TicketingClient::Jira(jira) => {
                match jira.has_comment(issue, effect_id, body, since).await? {
                    true => Ok(CommentLookup::Found),
                    false => Ok(CommentLookup::NotFound),
                }
            }
            TicketingClient::GitHub(github) => match github.has_comment(issue, effect_id).await? {
                true => Ok(CommentLookup::Found),
                false => Ok(CommentLookup::NotFound),
            },
        }
    }

    /// Deletes the comment that [`create_comment`](Self::create_comment) created for an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn delete_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.delete_comment(effect_id).await,
            TicketingClient::Jira(jira) => jira.delete_comment(issue, effect_id).await,
            TicketingClient::GitHub(github) => github.delete_comment(issue, effect_id).await,
        }
    }

    /// Replaces the text of the comment that [`create_comment`](Self::create_comment) created for an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn edit_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.edit_comment(effect_id, body).await,
            TicketingClient::Jira(jira) => jira.edit_comment(issue, effect_id, body).await,
            TicketingClient::GitHub(github) => github.edit_comment(issue, effect_id, body).await,
        }
    }

    /// Returns the current texts of the comments that [`create_comment`](Self::create_comment) created for
    /// these effects, in the given order. Missing and deleted comments are left out.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.comments(issue, effect_ids).await,
            TicketingClient::Jira(jira) => jira.comments(issue, effect_ids).await,
            TicketingClient::GitHub(github) => github.comments(issue, effect_ids).await,
        }
    }

    /// Returns whether the poll returns the descriptions of issues. Otherwise
    /// [`run_contexts`](Self::run_contexts) does, and no run may start without it.
    pub fn polls_descriptions(&self) -> bool {
        match self {
            TicketingClient::Linear(_) | TicketingClient::Jira(_) => true,
            TicketingClient::GitHub(_) => false,
        }
    }

    /// Returns the siblings (other children of the same parent) of each issue, at most 20 per issue, and the
    /// labels and the description if the poll does not return them. Takes one or two requests per 50 issues.
    ///
    /// # Errors
    /// Fails if any of the issues cannot be read.
    pub async fn run_contexts(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, RunContext>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.run_contexts(issues).await,
            TicketingClient::Jira(jira) => {
                let siblings = jira.siblings(issues).await?.into_iter();
                let context = |siblings| RunContext {
                    siblings,
                    labels: None,
                    description: None,
                };
                Ok(siblings.map(|(id, lines)| (id, context(lines))).collect())
            }
            TicketingClient::GitHub(github) => github.run_contexts(issues).await,
        }
    }

    /// Returns those of the issues that are closed: completed, cancelled or deleted. Takes one request per
    /// 100 issues.
    ///
    /// # Errors
    /// Fails if the states cannot be read. An issue with an unknown state never counts as closed.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.closed_issues(issues).await,
            TicketingClient::Jira(jira) => jira.closed_issues(issues).await,
            TicketingClient::GitHub(github) => github.closed_issues(issues).await,
        }
    }

    /// Reads title and description of an issue, its newest comments and its attachments. Takes one or two requests.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn read_ticket(&self, issue: &IssueRef) -> Result<TicketText, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.read_ticket(issue).await,
            TicketingClient::Jira(jira) => jira.read_ticket(issue).await,
            TicketingClient::GitHub(github) => github.read_ticket(issue).await,
        }
    }

    /// Downloads the content of an attachment of an issue, with the credentials of the service.
    ///
    /// # Errors
    /// [`AttachmentError::ForeignAddress`] if the address, or what it redirects to, is not on the upload host of the
    /// system. [`AttachmentError::TooLarge`] if the content is larger than `max_bytes`.
    pub async fn download_attachment(
        &self,
        issue: &IssueRef,
        attachment: &Attachment,
        max_bytes: usize,
    ) -> Result<Vec<u8>, AttachmentError> {
        match self {
            TicketingClient::Linear(linear) => {
                linear.download_attachment(attachment, max_bytes).await
            }
            TicketingClient::Jira(jira) => jira.download_attachment(attachment, max_bytes).await,
            TicketingClient::GitHub(github) => {
                github
                    .download_attachment(issue, attachment, max_bytes)
                    .await
            }
        }
    }

    /// Returns whether the author of a comment is a person who may edit the issue.
    ///
    /// # Errors
    /// Fails if the permission cannot be read.
    pub async fn may_edit(
        &self,
        issue: &IssueRef,
        author: &CommentAuthor,
    ) -> Result<bool, VendorError> {
        match self {
            // Members and guests of a team may edit its issues.
            TicketingClient::Linear(_) => Ok(author.kind == AuthorKind::Person),
            TicketingClient::Jira(jira) => jira.may_edit(issue, author).await,
            TicketingClient::GitHub(github) => github.may_edit(issue, author).await,
        }
    }

    /// Returns who set the marker of a stage last. `None` if the system does not return it.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn marker_author(
        &self,
        issue: &IssueRef,
        stage: Stage,
    ) -> Result<Option<CommentAuthor>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.marker_author(issue, stage).await,
            TicketingClient::Jira(jira) => jira.marker_author(issue, stage).await,
            TicketingClient::GitHub(github) => github.marker_author(issue, stage).await,
        }
    }

    /// Links a pull request to the issue. Idempotent per URL.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.link_pull_request(issue, title, url).await,
            TicketingClient::Jira(jira) => jira.link_pull_request(issue, title, url).await,
            // The pull request names the issue with a closing keyword, which links them.
            TicketingClient::GitHub(_) => Ok(()),
        }
    }

    /// Returns what keeps the system from answering at the moment.
    pub fn availability(&self) -> Availability {
        match self {
            TicketingClient::Linear(linear) => linear.availability(),
            TicketingClient::Jira(jira) => jira.availability(),
            TicketingClient::GitHub(github) => github.availability(),
        }
    }

    /// Returns the rate limit with the least remaining share.
    pub fn quota(&self) -> Quota {
        match self {
            TicketingClient::Linear(linear) => linear.quota(),
            TicketingClient::Jira(jira) => jira.quota(),
            TicketingClient::GitHub(github) => github.quota(),
        }
    }

    /// Returns all rate limits.
    pub fn quotas(&self) -> Vec<Quota> {
        match self {
            TicketingClient::Linear(linear) => linear.quotas(),
            TicketingClient::Jira(jira) => jira.quotas(),
            TicketingClient::GitHub(github) => github.quotas(),
        }
    }

    /// Returns the name of the authenticated account.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn probe(&self) -> Result<String, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.probe().await,
            TicketingClient::Jira(jira) => jira.probe().await,
            TicketingClient::GitHub(github) => github.probe().await,
        }
    }
}
