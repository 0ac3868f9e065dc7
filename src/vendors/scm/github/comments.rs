//! Comments on pull requests, found again by a marker in their text.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, VendorError};
use domain::ids::Repo;

use super::{GitHub, ScmCredentials};

/// What the host takes in one comment, in characters.
const MAX_BODY: usize = 65_000;

/// Begins the tokens of Apps, a workflow's own among them.
const APP_TOKEN: &str = "ghs_";

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestComment {
    pub id: u64,
    pub body: String,
    pub url: String,
}

impl GitHub {
    /// The comment of ours that carries `marker`, if there is one. A person's comment that quotes
    /// the marker is not ours.
    ///
    /// # Errors
    /// `is_not_found()` when the pull request is gone.
    pub async fn find_comment(
        &self,
        repo: &Repo,
        number: u64,
        marker: &str,
    ) -> Result<Option<PullRequestComment>, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/{number}/comments?per_page=100"));
        let comments = self
            .read_all(repo, "listing comments", url, |page: Vec<Comment>| page)
            .await?;
        let we_are_a_bot = match &self.inner.credentials {
            ScmCredentials::App { .. } => true,
            ScmCredentials::Token(token) => token.expose().starts_with(APP_TOKEN),
        };
        let found = comments
            .into_iter()
            .filter(|comment| !we_are_a_bot || comment.is_by_a_bot())
            .map(Comment::translate)
            .find(|comment| comment.body.contains(marker));
        Ok(found)
    }

    /// Writes a comment. Look with [`GitHub::find_comment`] before repeating it.
    ///
    /// # Errors
    /// `is_not_found()` when the pull request is gone.
    pub async fn create_comment(
        &self,
        repo: &Repo,
        number: u64,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/{number}/comments"));
        let body = json!({ "body": fitting(body) });
        let response = self
            .send_json(repo, "writing a comment", Method::POST, url, &body)
            .await?;
        Ok(response.json::<Comment>()?.translate())
    }

    /// Replaces the text of a comment.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn update_comment(
        &self,
        repo: &Repo,
        id: u64,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        let url = self.repo_url(repo, &format!("/issues/comments/{id}"));
        let body = json!({ "body": fitting(body) });
        let response = self
            .send_json(repo, "updating a comment", Method::PATCH, url, &body)
            .await?;
        Ok(response.json::<Comment>()?.translate())
    }

    /// Updates our comment that carries `marker`, or writes it. `body` must contain the marker;
    /// an unchanged body is not sent.
    ///
    /// # Errors
    /// As its parts.
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

    /// Gives the comment that was found this body, or writes one; an unchanged body is not sent.
    ///
    /// # Errors
    /// `is_not_found()` when the pull request or the comment is gone.
    pub async fn put_comment(
        &self,
        repo: &Repo,
        number: u64,
        found: Option<PullRequestComment>,
        body: &str,
    ) -> Result<PullRequestComment, VendorError> {
        match found {
            Some(comment) if comment.body == fitting(body) => Ok(comment),
            Some(comment) => self.update_comment(repo, comment.id, body).await,
            None => self.create_comment(repo, number, body).await,
        }
    }
}

/// The body, cut to what the host takes.
fn fitting(body: &str) -> String {
    match body.char_indices().nth(MAX_BODY) {
        Some((end, _)) => format!("{}\n\n[… cut here: too long for a comment]", &body[..end]),
        None => body.to_owned(),
    }
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
    fn is_by_a_bot(&self) -> bool {
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
