//! Comments on pull requests, identified by a marker in their text.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, Request, VendorError};
use domain::ids::Repo;
use domain::sanitize::truncate_chars;

use super::{GitHub, ScmCredentials};

/// Maximum length of a comment, in characters. Slightly below the host's limit.
const MAX_BODY: usize = 65_000;

/// Prefix of App tokens, including the token of a workflow job.
const APP_TOKEN: &str = "ghs_";

/// Comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestComment {
    /// Id of the comment.
    pub id: u64,
    /// Text, in Markdown.
    pub body: String,
    /// Web address.
    pub url: String,
}

impl GitHub {
    /// Finds the service's comment that contains `marker`. Ignores comments of people that quote the marker.
    ///
    /// # Errors
    /// `is_not_found()` if the pull request does not exist.
    pub async fn find_comment(
        &self,
        repo: &Repo,
        number: u64,
        marker: &str,
    ) -> Result<Option<PullRequestComment>, VendorError> {
        let comments = self.own_comments(repo, number).await?;
        Ok(comments
            .into_iter()
            .find(|comment| comment.body.contains(marker)))
    }

    /// Lists the service's comments on a pull request or an issue, oldest first. With a plain token, whose
    /// account people share, lists all comments.
    ///
    /// # Errors
    /// `is_not_found()` if the pull request or the issue does not exist.
    pub(crate) async fn own_comments(
        &self,
        repo: &Repo,
        number: u64,
    ) -> Result<Vec<PullRequestComment>, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/{number}/comments?per_page=100"));
        let comments = self
            .read_all(repo, "listing comments", url, |page: Vec<Comment>| page)
            .await?;
        let is_bot = match &self.inner.credentials {
            ScmCredentials::App { .. } => true,
            ScmCredentials::Token(token) => token.expose().starts_with(APP_TOKEN),
        };
        let own = comments
            .into_iter()
            .filter(|comment| !is_bot || comment.is_by_bot());
        Ok(own.map(Comment::translate).collect())
    }

    /// Deletes a comment.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn delete_comment(&self, repo: &Repo, id: u64) -> Result<(), VendorError> {
        let url = self.repo_url(repo, &format!("/issues/comments/{id}"));
        let request = Request::new("deleting a comment", Method::DELETE, url);
        self.send(repo, request).await.map(drop)
    }

    /// Creates a comment. Call [`GitHub::find_comment`] before repeating a call whose response was lost.
    ///
    /// # Errors
    /// `is_not_found()` if the pull request does not exist.
    pub async fn create_comment(
        &self,
        repo: &Repo,
        number: u64,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/{number}/comments"));
        let body = json!({ "body": truncate(body) });
        let response = self
            .send_json(repo, "writing a comment", Method::POST, url, &body)
            .await?;
        Ok(response.json::<Comment>()?.translate())
    }

    /// Replaces the text of a comment.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn update_comment(
        &self,
        repo: &Repo,
        id: u64,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/comments/{id}"));
        let body = json!({ "body": truncate(body) });
        let response = self
            .send_json(repo, "updating a comment", Method::PATCH, url, &body)
            .await?;
        Ok(response.json::<Comment>()?.translate())
    }

    /// Updates the service's comment that contains `marker`, or creates it. `body` must contain the marker.
    /// An unchanged body is not sent.
    ///
    /// # Errors
    /// Fails if the comments cannot be read or written.
    pub async fn upsert_comment(
        &self,
        repo: &Repo,
        number: u64,
        marker: &str,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        let found = self.find_comment(repo, number, marker).await?;
        self.put_comment(repo, number, found, body).await
    }

    /// Updates the comment that [`GitHub::find_comment`] returned, or creates one if it returned none. An
    /// unchanged body is not sent.
    ///
    /// # Errors
    /// `is_not_found()` if the pull request or the comment does not exist.
    pub async fn put_comment(
        &self,
        repo: &Repo,
        number: u64,
        found: Option<PullRequestComment>,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        match found {
            Some(comment) if comment.body == truncate(body) => Ok(comment),
            Some(comment) => self.update_comment(repo, comment.id, body).await,
            None => self.create_comment(repo, number, body).await,
        }
    }
}

/// Truncates a body to the maximum length.
fn truncate(body: &str) -> Cow<'_, str> {
    truncate_chars(body, MAX_BODY, "\n\n[… cut here: too long for a comment]")
}

#[derive(Serialize, Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    html_url: String,
    user: Option<Author>,
}

#[derive(Serialize, Deserialize)]
struct Author {
    #[serde(rename = "type", default)]
    kind: String,
}

impl Comment {
    fn is_by_bot(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.kind == "Bot")
    }

    fn translate(self) -> PullRequestComment {
        PullRequestComment {
            id: self.id,
            body: self.body.unwrap_or_default(),
            url: self.html_url,
        }
    }
}
