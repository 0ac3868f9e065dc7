//! One ticket as people see it: its text, comments and attachments, and who set a marker.

use serde::Deserialize;
use serde_json::json;

use super::Linear;
use super::comments::{self, Actor, CommentRow, User};
use super::snapshot::{Connection, Label};
use crate::http::{Request, VendorError};
use crate::ticketing::attachments::{AttachmentError, Download, UploadHost, download};
use crate::ticketing::sanitized_title;
use domain::issue::{Attachment, IssueRef, TicketText};
use domain::stage::Stage;
use domain::ticket_comment::CommentAuthor;

const TICKET: &str = "\
query($id: String!) {
  issue(id: $id) { title description comments(first: 50) { nodes { FIELDS } } }
}";

/// History entries that are read to find who set a label. The newest come first.
const HISTORY: &str = "\
query($id: String!) {
  issue(id: $id) {
    history(first: 100) { nodes { addedLabels { name } actor { id name email app } botActor { id } } }
  }
}";

impl Linear {
    /// Sets the address below which uploads are, instead of the public one.
    #[must_use]
    pub fn with_uploads_url(mut self, url: &str) -> Self {
        self.uploads = UploadHost::new(url);
        self
    }

    /// Reads title and description of an issue, its newest comments and the uploads that they link to.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn read_ticket(&self, issue: &IssueRef) -> Result<TicketText, VendorError> {
        let query = TICKET.replace("FIELDS", comments::FIELDS);
        let request = self.query("reading the ticket", &query, json!({ "id": issue.id }));
        let ticket = self.execute::<TicketData>(request).await?.issue;
        let rows = ticket.comments.nodes.into_iter().rev();
        let mut comments: Vec<_> = rows.filter_map(CommentRow::translate).collect();
        comments.sort_by_key(|comment| comment.created_at);
        let description = ticket.description.unwrap_or_default();
        let texts = comments.iter().map(|comment| comment.body.as_str());
        let texts = std::iter::once(description.as_str()).chain(texts);
        Ok(TicketText {
            attachments: self.uploads.links(texts, |path| !path.is_empty()),
            title: ticket.title,
            description,
            comments,
        })
    }

    /// Downloads an upload. Redirects are errors.
    ///
    /// # Errors
    /// Fails if the address is not below the upload host, or if the content is larger than `max_bytes`.
    pub async fn download_attachment(
        &self,
        attachment: &Attachment,
        max_bytes: usize,
    ) -> Result<Vec<u8>, AttachmentError> {
        let url = self
            .uploads
            .address(&attachment.url, |path| !path.is_empty())?;
        let header = self.auth.authorization_header().await?;
        let request = Request::get("downloading the attachment", url)
            .authorization(header.expose())
            .account("uploads");
        match download(&self.client, &request, max_bytes).await? {
            Download::Content(content) => Ok(content),
            Download::Redirect(_) => Err(AttachmentError::ForeignAddress),
        }
    }

    /// Returns who set the label of a stage last. `None` if Linear does not return it.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn marker_author(
        &self,
        issue: &IssueRef,
        stage: Stage,
    ) -> Result<Option<CommentAuthor>, VendorError> {
        let Some(label) = stage.label() else {
            return Ok(None);
        };
        let variables = json!({ "id": issue.id });
        let request = self.query("reading the history of the issue", HISTORY, variables);
        let entries = self.execute::<HistoryData>(request).await?.issue.history;
        let mut entries = entries.nodes.into_iter();
        let entry = entries.find(|entry| {
            let mut added = entry.added_labels.iter().flatten();
            added.any(|added| added.name == label)
        });
        Ok(entry.map(|entry| comments::author(entry.actor, entry.bot_actor)))
    }
}

#[derive(Deserialize)]
struct TicketData {
    issue: Ticket,
}

#[derive(Deserialize)]
struct Ticket {
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    description: Option<String>,
    comments: Connection<CommentRow>,
}

#[derive(Deserialize)]
struct HistoryData {
    issue: History,
}

#[derive(Deserialize)]
struct History {
    history: Connection<HistoryEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryEntry {
    added_labels: Option<Vec<Label>>,
    actor: Option<User>,
    bot_actor: Option<Actor>,
}
