//! FLOOR 3: the ticketing systems.
//!
//! [`Account`] has one verb for each thing we ask of any of them; each system's file knows how it
//! is said there. Stages come in as domain words, labels and fields stay behind these walls.

mod jira;
mod linear;
mod webhook_filter;

pub use jira::{FieldOption, Jira, JiraCredentials, JiraField};
pub use jira::{adf_to_markdown, markdown_to_adf};
pub use linear::{Linear, LinearCredentials};
pub use webhook_filter::is_relevant_event;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Deserializer};

use crate::http::{Quota, Redactor, VendorError};
use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueLookup, IssueRef, PollResult, System};
use domain::mapping::Mapping;
use domain::stage::Stage;
use domain::time::Timestamp;

/// Reads the title of an issue, and removes secrets from it: branches and pull requests are named after
/// it, and people read it in comments, chats and the panel. An absent title is empty.
fn without_secrets<'de, D: Deserializer<'de>>(title: D) -> Result<String, D::Error> {
    let title = Option::<String>::deserialize(title)?.unwrap_or_default();
    Ok(Redactor::default().redact_owned(title))
}

/// An account at a ticketing system.
#[derive(Clone)]
pub enum TicketingClient {
    Linear(Linear),
    Jira(Jira),
}

/// What became of an earlier try to write a comment whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentLookup {
    Found,
    /// The system does not show the comment, or not yet.
    NotFound,
    /// The system itself refuses a second comment of the same effect.
    Idempotent,
}

impl TicketingClient {
    pub fn system(&self) -> System {
        match self {
            TicketingClient::Linear(_) => System::Linear,
            TicketingClient::Jira(_) => System::Jira,
        }
    }

    /// The word for configuration, quotas and logs.
    pub fn name(&self) -> &'static str {
        match self {
            TicketingClient::Linear(_) => "linear",
            TicketingClient::Jira(_) => "jira",
        }
    }

    /// Every open issue that carries one of our markers. `mappings` are those of this system;
    /// what is found outside of them is reported all the same, where the system can tell.
    ///
    /// # Errors
    /// When any page could not be read: a part of the issues would look like the others had ended.
    pub async fn snapshot(&self, mappings: &[&Mapping]) -> Result<PollResult, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.snapshot(mappings).await,
            TicketingClient::Jira(jira) => jira.snapshot(mappings).await,
        }
    }

    /// The issue that people call `key`, in whatever state, once for each of these mappings that it
    /// is in the scope of: mostly one, none when it is nobody's or does not exist. `mappings` are
    /// those of this system.
    ///
    /// # Errors
    /// When it cannot be told that it is nobody's.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.find_issue(mappings, key).await,
            TicketingClient::Jira(jira) => jira.find_issue(mappings, key).await,
        }
    }

    /// Makes the issue show this stage. Repeating it changes nothing.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone or archived.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.set_stage(issue, stage).await,
            TicketingClient::Jira(jira) => jira.set_stage(issue, stage).await,
        }
    }

    /// Writes a comment, in Markdown. Look with [`earlier_try`](Self::earlier_try) before repeating it.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.create_comment(issue, effect_id, body).await,
            TicketingClient::Jira(jira) => jira.create_comment(issue, effect_id, body).await,
        }
    }

    /// Looks for a comment that an earlier try may have written, not before `since`.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn look_up_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
        since: Timestamp,
    ) -> Result<CommentLookup, VendorError> {
        match self {
            // The id of a comment is made from the effect's.
            TicketingClient::Linear(_) => Ok(CommentLookup::Idempotent),
            TicketingClient::Jira(jira) => {
                match jira.has_comment(issue, effect_id, body, since).await? {
                    true => Ok(CommentLookup::Found),
                    false => Ok(CommentLookup::NotFound),
                }
            }
        }
    }

    /// Deletes the comment that [`comment`](Self::comment) wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn delete_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.delete_comment(effect_id).await,
            TicketingClient::Jira(jira) => jira.delete_comment(issue, effect_id).await,
        }
    }

    /// Replaces the text of the comment that [`comment`](Self::comment) wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn edit_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.edit_comment(effect_id, body).await,
            TicketingClient::Jira(jira) => jira.edit_comment(issue, effect_id, body).await,
        }
    }

    /// The comments that [`comment`](Self::comment) wrote for these effects, as they stand now and
    /// in the order asked for. One that was never written, or was taken away, is left out.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.comments(issue, effect_ids).await,
            TicketingClient::Jira(jira) => jira.comments(issue, effect_ids).await,
        }
    }

    /// The other children of each issue's parent, a line of text each: in a request or two, the
    /// first twenty of each.
    ///
    /// # Errors
    /// When any of the issues cannot be read.
    pub async fn siblings(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.siblings(issues).await,
            TicketingClient::Jira(jira) => jira.siblings(issues).await,
        }
    }

    /// Those of the issues that need no more work: completed, cancelled or gone. A request for each
    /// hundred.
    ///
    /// # Errors
    /// When their states cannot be read; an issue is never called closed for want of an answer.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.closed_issues(issues).await,
            TicketingClient::Jira(jira) => jira.closed_issues(issues).await,
        }
    }

    /// Links a pull request to the issue. The same URL is linked once.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.link_pull_request(issue, title, url).await,
            TicketingClient::Jira(jira) => jira.link_pull_request(issue, title, url).await,
        }
    }

    /// What is left of the account's allowance.
    pub fn quota(&self) -> Quota {
        match self {
            TicketingClient::Linear(linear) => linear.quota(),
            TicketingClient::Jira(jira) => jira.quota(),
        }
    }

    /// Asks the system who we are, and says it in a few words.
    ///
    /// # Errors
    /// 401 when the credential is refused.
    pub async fn probe(&self) -> Result<String, VendorError> {
        match self {
            TicketingClient::Linear(linear) => linear.probe().await,
            TicketingClient::Jira(jira) => jira.probe().await,
        }
    }
}
