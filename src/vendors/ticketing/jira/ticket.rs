//! One ticket as people see it: its text, comments and attachments, and who may or did change it.

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::fields::STATUS_FIELD;
use super::issue::Fields;
use super::{Account, Jira};
use crate::http::{Request, VendorError, percent_encode};
use crate::ticketing::attachments::{AttachmentError, UploadHost, download_redirected};
use domain::issue::{Attachment, IssueRef, TicketText};
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor};
use domain::time::Timestamp;

/// Maximum number of entries per page of the history.
const HISTORY_PAGE: usize = 100;

/// Domains of the hosts to which Jira redirects for the content of an attachment.
const MEDIA_DOMAINS: [&str; 3] = [".atlassian.com", ".atlassian.net", ".atl-paas.net"];

impl Jira {
    /// Reads title and description of an issue, its newest comments and its attachments.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn read_ticket(&self, issue: &IssueRef) -> Result<TicketText, VendorError> {
        let id = percent_encode(issue.id.as_str());
        let path = format!("/issue/{id}?fields=summary,description,status,created,attachment");
        let request = self.get("reading the ticket", &path);
        let ticket: Ticket = self.client.send(&request).await?.json()?;
        let mut comments = self.newest_comments(issue).await?;
        comments.reverse();
        let uploads = self.uploads();
        let attachments = ticket.fields.attachments.into_iter();
        Ok(TicketText {
            title: ticket.fields.text.summary().to_owned(),
            description: ticket.fields.text.description_markdown(),
            comments,
            attachments: attachments
                .filter(|attachment| is_content(&attachment.id))
                .map(|attachment| Attachment {
                    url: uploads.address_of(&attachment.id),
                    title: attachment.filename,
                    bytes: attachment.size,
                })
                .collect(),
        })
    }

    /// Downloads an attachment. A redirect to the media host of Jira is followed once, without credentials.
    ///
    /// # Errors
    /// Fails if the address is not an attachment of this site, or if the content is larger than `max_bytes`.
    pub async fn download_attachment(
        &self,
        attachment: &Attachment,
        max_bytes: usize,
    ) -> Result<Vec<u8>, AttachmentError> {
        let mut url = self.uploads().address(&attachment.url, is_content)?;
        let site = url.clone();
        url.set_query(Some("redirect=false"));
        let request = Request::get("downloading the attachment", url)
            .authorization(self.authorization.expose());
        let is_media = |target: &Url| target.origin() == site.origin() || is_media_host(target);
        download_redirected(&self.client, &request, max_bytes, is_media).await
    }

    /// Returns whether a person may edit an issue. If the account of the service may not ask, members of the site may.
    ///
    /// # Errors
    /// Fails if Jira does not respond.
    pub async fn may_edit(
        &self,
        issue: &IssueRef,
        author: &CommentAuthor,
    ) -> Result<bool, VendorError> {
        if author.kind != AuthorKind::Person {
            return Ok(false);
        }
        let path = format!(
            "/user/permission/search?permissions=EDIT_ISSUES&maxResults=1000&issueKey={}&accountId={}",
            percent_encode(issue.key.as_str()),
            percent_encode(&author.id)
        );
        let request = self.get("reading a commenter's permission", &path);
        let users: Vec<Account> = match self.client.send(&request).await {
            Err(error) if matches!(error.status(), Some(401 | 403 | 404)) => return Ok(true),
            found => found?.json()?,
        };
        Ok(users.iter().any(|user| user.account_id == author.id))
    }

    /// Returns who set the status field to the value of a stage last. `None` if the history does not tell it.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn marker_author(
        &self,
        issue: &IssueRef,
        stage: Stage,
    ) -> Result<Option<CommentAuthor>, VendorError> {
        const ACTION: &str = "reading the history of the issue";
        let field = issue.marker_field.as_deref().unwrap_or(STATUS_FIELD);
        let field = self.find_field(ACTION, field).await?.id();
        let mut page = self.history(ACTION, issue, 0).await?;
        if page.total > HISTORY_PAGE {
            // The oldest entries come first.
            page = self
                .history(ACTION, issue, page.total - HISTORY_PAGE)
                .await?;
        }
        let is_set = |entry: &&HistoryEntry| {
            let mut items = entry.items.iter();
            items.any(|item| {
                item.field_id.as_deref() == Some(field.as_str())
                    && item.value.as_deref() == stage.jira_status()
            })
        };
        let last = page
            .values
            .iter()
            .filter(is_set)
            .max_by_key(|entry| entry.created);
        Ok(last
            .and_then(|entry| entry.author.as_ref())
            .map(Account::author))
    }

    async fn history(
        &self,
        action: &'static str,
        issue: &IssueRef,
        start: usize,
    ) -> Result<History, VendorError> {
        let id = percent_encode(issue.id.as_str());
        let path = format!("/issue/{id}/changelog?startAt={start}&maxResults={HISTORY_PAGE}");
        self.client.send(&self.get(action, &path)).await?.json()
    }

    /// Returns the address below which contents of attachments are.
    fn uploads(&self) -> UploadHost {
        UploadHost::new(&format!("{}/attachment/content", self.api))
    }
}

/// Returns whether a path below the upload address is that of a content.
fn is_content(path: &str) -> bool {
    !path.is_empty() && path.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_media_host(target: &Url) -> bool {
    let host = target.host_str().unwrap_or_default();
    target.scheme() == "https" && MEDIA_DOMAINS.iter().any(|domain| host.ends_with(domain))
}

#[derive(Deserialize)]
struct Ticket {
    fields: TicketFields,
}

#[derive(Deserialize)]
struct TicketFields {
    #[serde(rename = "attachment", default)]
    attachments: Vec<AttachmentRow>,
    #[serde(flatten)]
    text: Fields,
}

#[derive(Deserialize)]
struct AttachmentRow {
    #[serde(deserialize_with = "number_or_text")]
    id: String,
    filename: String,
    size: Option<u64>,
}

/// Deserializes the id of an attachment. Jira documents it as a number and returns a text.
fn number_or_text<'de, D: Deserializer<'de>>(id: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(id)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

#[derive(Deserialize)]
struct History {
    #[serde(default)]
    total: usize,
    #[serde(default)]
    values: Vec<HistoryEntry>,
}

#[derive(Deserialize)]
struct HistoryEntry {
    author: Option<Account>,
    created: Timestamp,
    #[serde(default)]
    items: Vec<HistoryItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryItem {
    field_id: Option<String>,
    #[serde(rename = "toString")]
    value: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_atlassian_serve_media() {
        for (target, expected) in [
            ("https://api.media.atlassian.com/file/1?token=x", true),
            ("https://acme.atlassian.net/file", true),
            ("http://api.media.atlassian.com/file/1", false),
            ("https://evil-atlassian.com/", false),
            ("https://api.media.atlassian.com.evil.example/", false),
            ("https://169.254.169.254/", false),
        ] {
            assert_eq!(
                is_media_host(&Url::parse(target).unwrap()),
                expected,
                "{target}"
            );
        }
    }
}
