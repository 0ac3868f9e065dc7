//! What people wrote on a ticket, for its run.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use crate::permissions;
use domain::crypto::sha256_hex;
use domain::issue::{Attachment, System, TicketText};
use domain::job::Job;
use domain::sanitize;
use domain::ticket_comment::context_comments;
use domain::ticket_context::{
    ContextAttachment, LeftOutAttachment, MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS, TicketContext,
};
use store::{StoreResult, issue_contexts, patches};
use vendors::ticketing::TicketingClient;

/// Timeout of reading a ticket. The run's request waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout of reading an attachment.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why a run does not get an attachment of more than [`MAX_ATTACHMENT_BYTES`].
const TOO_LARGE: &str = "it is larger than 5 MiB";

/// Maximum length of the name of an attachment, in characters.
const MAX_TITLE: usize = 100;

/// Maximum number of attachments that are named although the run does not get them.
const MAX_LEFT_OUT: usize = 20;

/// Loads what people wrote on the ticket of a job. If the ticketing system does not respond, it is what the service
/// knows by itself.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn load(app: &App, job: &Job) -> StoreResult<TicketContext> {
    let (stored, patch) = app.core.store.read(|tx| {
        let stored = issue_contexts::get(tx, &job.issue.id)?;
        let patch = match &stored.continues {
            Some(earlier) => patches::get(tx, earlier)?,
            None => None,
        };
        Ok((stored, patch))
    })?;
    let mut context = TicketContext {
        exchanges: stored.exchanges,
        patch: patch.filter(|_| job.kind.phase().is_some()),
        ..TicketContext::default()
    };
    let Some(account) = app.vendors.account(job.issue.system) else {
        return Ok(context);
    };
    match timeout(READ_TIMEOUT, read(app, account, job)).await {
        Ok(Ok(ticket)) => add_ticket(app, &mut context, ticket),
        Ok(Err(why)) => warn(job, &why),
        Err(_) => warn(job, "no response in time"),
    }
    Ok(context)
}

fn warn(job: &Job, why: &str) {
    tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, why, "Failed to read the comments of a ticket; its run goes on without them.");
}

/// Reads a ticket with the comments of those who may edit it.
async fn read(app: &App, account: &TicketingClient, job: &Job) -> Result<TicketText, String> {
    let mut ticket = account
        .read_ticket(&job.issue)
        .await
        .map_err(|error| error.to_string())?;
    // On repositories of GitHub, strangers may write comments.
    if account.system() == System::GitHub {
        let mut kept = Vec::new();
        for comment in ticket.comments {
            if comment.is_by_person()
                && permissions::may_edit(app, account, &job.issue, &comment.author).await?
            {
                kept.push(comment);
            }
        }
        ticket.comments = kept;
    }
    Ok(ticket)
}

fn add_ticket(app: &App, context: &mut TicketContext, ticket: TicketText) {
    let redactor = &app.secrets.redactor;
    let (comments, left_out) = context_comments(ticket.comments, |text| redactor.sanitize(text));
    context.comments = comments;
    context.left_out_comments = left_out;
    for attachment in ticket.attachments {
        let line = redactor.sanitize(&attachment.title);
        let line = sanitize::single_line(&line);
        let title = sanitize::truncate_chars(line.trim(), MAX_TITLE, sanitize::ELLIPSIS);
        let title = title.into_owned();
        let is_too_large = attachment
            .bytes
            .is_some_and(|bytes| bytes > MAX_ATTACHMENT_BYTES as u64);
        let reason = match is_too_large {
            true => Some(TOO_LARGE),
            false if context.attachments.len() >= MAX_ATTACHMENTS => {
                Some("a run gets at most 5 attachments")
            }
            false => None,
        };
        match reason {
            None => context.attachments.push(ContextAttachment {
                id: attachment_id(&attachment),
                title,
            }),
            Some(reason) if context.left_out_attachments.len() < MAX_LEFT_OUT => {
                let reason = reason.to_owned();
                let left_out = LeftOutAttachment { title, reason };
                context.left_out_attachments.push(left_out);
            }
            Some(_) => {}
        }
    }
}

/// Id of an attachment in the API of this service.
fn attachment_id(attachment: &Attachment) -> String {
    sha256_hex(&attachment.url)[..32].to_owned()
}

/// Reason why a run does not get an attachment.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// The ticket has no such attachment.
    #[error("no such attachment")]
    NotFound,
    /// It is no image or text, or too large.
    #[error("{0}")]
    Unreadable(&'static str),
    /// The ticketing system did not answer.
    #[error("{0}")]
    Unanswered(String),
}

impl From<vendors::ticketing::AttachmentError> for AttachmentError {
    fn from(error: vendors::ticketing::AttachmentError) -> Self {
        use vendors::ticketing::AttachmentError as Download;
        match error {
            Download::TooLarge { .. } => Self::Unreadable(TOO_LARGE),
            Download::ForeignAddress => Self::Unreadable("it is on another host"),
            Download::Vendor(error) if error.is_not_found() => Self::NotFound,
            Download::Vendor(error) => Self::Unanswered(error.to_string()),
        }
    }
}

/// Reads an attachment of the ticket of a job. The ticket is read again, so that a run only gets what is on its own
/// ticket.
///
/// # Errors
/// Fails if the ticket has no such attachment, if it is neither an image nor a text, or if the system does not answer.
pub async fn attachment(app: &App, job: &Job, id: &str) -> Result<Vec<u8>, AttachmentError> {
    let unanswered = |why: String| AttachmentError::Unanswered(why);
    let account = app.vendors.account(job.issue.system);
    let account = account.ok_or(AttachmentError::NotFound)?;
    let download = async {
        let ticket = read(app, account, job).await.map_err(unanswered)?;
        let mut attachments = ticket
            .attachments
            .into_iter()
            .take(MAX_ATTACHMENTS + MAX_LEFT_OUT);
        let found = attachments.find(|attachment| attachment_id(attachment) == id);
        let found = found.ok_or(AttachmentError::NotFound)?;
        let content = account
            .download_attachment(&job.issue, &found, MAX_ATTACHMENT_BYTES)
            .await;
        content.map_err(AttachmentError::from)
    };
    let content = timeout(DOWNLOAD_TIMEOUT, download).await;
    let content = content.map_err(|_| unanswered("no response in time".to_owned()))??;
    match domain::ticket_context::content_kind(&content) {
        Some(_) => Ok(content),
        None => Err(AttachmentError::Unreadable(
            "it is neither an image nor a text",
        )),
    }
}
