//! One ticket as people see it: its text, comments and uploads, and who may or did change it.

use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::trigger_authors::{LabelledIssue, SELECTION};
use super::watch::{Account, COMMENTS, CommentRow};
use super::{Connection, GitHubIssues, IssueAddress};
use crate::http::{Request, VendorError, VendorErrorKind};
use crate::scm::RepoPermission;
use crate::ticketing::attachments::{AttachmentError, UploadHost, download_redirected};
use crate::ticketing::sanitized_title;
use domain::issue::{Attachment, IssueRef, TicketText};
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor};

impl GitHubIssues {
    /// Reads title and description of an issue, its newest comments and the uploads that they link to.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn read_ticket(&self, issue: &IssueRef) -> Result<TicketText, VendorError> {
        let selection = format!("{{ title body {COMMENTS} }}");
        let ticket: Ticket = self
            .read_node(issue, "reading the ticket", &selection)
            .await?;
        let comments = ticket.comments.translate(&issue.id);
        let texts = comments.iter().map(|comment| comment.body.as_str());
        let texts = std::iter::once(ticket.body.as_str()).chain(texts);
        Ok(TicketText {
            attachments: self.uploads().links(texts, is_upload),
            title: ticket.title,
            description: ticket.body,
            comments,
        })
    }

    /// Downloads an upload. A redirect to the storage of GitHub is followed once, without credentials.
    ///
    /// # Errors
    /// Fails if the address is not an upload of this host, or if the content is larger than `max_bytes`.
    pub async fn download_attachment(
        &self,
        issue: &IssueRef,
        attachment: &Attachment,
        max_bytes: usize,
    ) -> Result<Vec<u8>, AttachmentError> {
        const ACTION: &str = "downloading the attachment";
        let url = self.uploads().address(&attachment.url, is_upload)?;
        let IssueAddress { repo, .. } = IssueAddress::of(issue, ACTION)?;
        let request = Request::get(ACTION, url.as_str());
        let request = self.github.authorized(&repo, request).await?;
        let is_storage = |target: &Url| target.origin() == url.origin() || is_storage_host(target);
        download_redirected(self.github.client(), &request, max_bytes, is_storage).await
    }

    /// Returns whether the author of a comment is a person with write permission on the repository.
    ///
    /// # Errors
    /// Fails if the permission cannot be read.
    pub async fn may_edit(
        &self,
        issue: &IssueRef,
        author: &CommentAuthor,
    ) -> Result<bool, VendorError> {
        if author.kind != AuthorKind::Person {
            return Ok(false);
        }
        let address = IssueAddress::of(issue, "reading a commenter's permission")?;
        let permission = self.github.permission(&address.repo, &author.id).await?;
        Ok(permission >= RepoPermission::Write)
    }

    /// Returns who set the label of a stage last. `None` if GitHub does not return it.
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
        let read = self.read_node::<LabelledIssue>(issue, "reading who set a label", SELECTION);
        Ok(read.await?.last_actor(label).map(Account::into_author))
    }

    /// Reads fields of one issue.
    async fn read_node<T: DeserializeOwned>(
        &self,
        issue: &IssueRef,
        action: &'static str,
        selection: &str,
    ) -> Result<T, VendorError> {
        let IssueAddress { repo, .. } = IssueAddress::of(issue, action)?;
        let ids = [issue.id.clone()];
        let mut answers = self.read_nodes(&repo, action, &ids, selection).await?;
        let error = answers.errors.into_iter().next();
        answers.found.remove(&issue.id).ok_or_else(|| {
            let (status, message) = match error {
                Some(error) => (error.status, error.message),
                None => (404, "the issue does not exist".to_owned()),
            };
            let kind = VendorErrorKind::Status {
                status,
                message,
                retry_after: None,
            };
            VendorError::new("GitHub", action, kind)
        })
    }

    fn uploads(&self) -> UploadHost {
        UploadHost::new(&self.github.server_url())
    }
}

/// Returns whether a path of the web site is that of an upload.
fn is_upload(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["user-attachments", "assets" | "files", first, ..] => !first.is_empty(),
        [owner, repo, "assets", first, ..] => {
            !owner.is_empty() && !repo.is_empty() && !first.is_empty()
        }
        _ => false,
    }
}

/// Returns whether a redirect leads to the storage of GitHub.
fn is_storage_host(target: &Url) -> bool {
    let host = target.host_str().unwrap_or_default();
    let bucket = host.strip_suffix(".s3.amazonaws.com");
    let is_bucket =
        bucket.is_some_and(|name| name.starts_with("github-production-") && !name.contains('.'));
    target.scheme() == "https" && (host.ends_with(".githubusercontent.com") || is_bucket)
}

#[derive(Deserialize)]
struct Ticket {
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    body: String,
    comments: Connection<CommentRow>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uploads_are_attachments() {
        for (path, expected) in [
            ("user-attachments/assets/6b1c", true),
            ("user-attachments/files/12/notes.md", true),
            ("acme/shop/assets/7/6b1c", true),
            ("acme/shop/blob/main/assets/7", false),
            ("user-attachments/assets/", false),
            ("settings/apps", false),
            ("", false),
        ] {
            assert_eq!(is_upload(path), expected, "{path}");
        }
    }

    #[test]
    fn only_the_storage_of_github_is_followed() {
        for (target, expected) in [
            (
                "https://private-user-images.githubusercontent.com/1?jwt=x",
                true,
            ),
            (
                "https://github-production-user-asset-6210df.s3.amazonaws.com/1",
                true,
            ),
            ("http://private-user-images.githubusercontent.com/1", false),
            ("https://evil.s3.amazonaws.com/1", false),
            ("https://github-production-x.evil.s3.amazonaws.com/1", false),
            ("https://githubusercontent.com.evil.example/1", false),
            ("https://169.254.169.254/", false),
        ] {
            assert_eq!(
                is_storage_host(&Url::parse(target).unwrap()),
                expected,
                "{target}"
            );
        }
    }
}
