//! Comments on issues, each identified by a marker in its text that Markdown does not show.

use super::{GitHubIssues, IssueAddress};
use crate::http::{VendorError, VendorErrorKind};
use crate::scm::PullRequestComment;
use domain::issue::IssueRef;
use domain::sanitize::truncate_chars;

/// Maximum length of a text, in characters. The marker must fit into the comment with it.
const MAX_BODY: usize = 64_000;

impl GitHubIssues {
    /// Creates a comment in Markdown. Call [`has_comment`](Self::has_comment) before repeating a call whose
    /// response was lost.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        let IssueAddress { repo, number } = IssueAddress::of(issue, "writing a comment")?;
        let body = marked(body, effect_id);
        self.github
            .create_comment(&repo, number, &body)
            .await
            .map(drop)
    }

    /// Returns whether the comment of an effect exists.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn has_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
    ) -> Result<bool, VendorError> {
        let IssueAddress { repo, number } = IssueAddress::of(issue, "listing comments")?;
        let found = self
            .github
            .find_comment(&repo, number, &marker(effect_id))
            .await?;
        Ok(found.is_some())
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
        const ACTION: &str = "deleting a comment";
        let address = IssueAddress::of(issue, ACTION)?;
        let comment = self.comment_of(&address, effect_id, ACTION).await?;
        self.github.delete_comment(&address.repo, comment.id).await
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
        const ACTION: &str = "updating a comment";
        let address = IssueAddress::of(issue, ACTION)?;
        let comment = self.comment_of(&address, effect_id, ACTION).await?;
        let (repo, body) = (&address.repo, marked(body, effect_id));
        self.github
            .update_comment(repo, comment.id, &body)
            .await
            .map(drop)
    }

    /// Returns the current texts of the comments that [`create_comment`](Self::create_comment) created for
    /// these effects, in the given order.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        let IssueAddress { repo, number } = IssueAddress::of(issue, "listing comments")?;
        let all = self.github.own_comments(&repo, number).await?;
        let text = |effect_id: &String| {
            let marker = marker(effect_id);
            let comment = all.iter().find(|comment| comment.body.contains(&marker))?;
            Some(comment.body.replace(&marker, "").trim_end().to_owned())
        };
        Ok(effect_ids.iter().filter_map(text).collect())
    }

    async fn comment_of(
        &self,
        address: &IssueAddress,
        effect_id: &str,
        action: &'static str,
    ) -> Result<PullRequestComment, VendorError> {
        let found = self
            .github
            .find_comment(&address.repo, address.number, &marker(effect_id))
            .await?;
        found.ok_or_else(|| {
            let kind = VendorErrorKind::Status {
                status: 404,
                message: "the issue has no such comment".into(),
                retry_after: None,
            };
            VendorError::new("GitHub", action, kind)
        })
    }
}

fn marker(effect_id: &str) -> String {
    format!("<!-- agent-implement:{effect_id} -->")
}

/// Returns the effect whose marker ends a text.
pub(super) fn effect_of(body: &str) -> Option<&str> {
    let line = body.trim_end().lines().next_back()?;
    let effect = line
        .strip_prefix("<!-- agent-implement:")?
        .strip_suffix(" -->")?;
    (!effect.is_empty()).then_some(effect)
}

fn marked(body: &str, effect_id: &str) -> String {
    let body = truncate_chars(body, MAX_BODY, "\n\n[… cut here: too long for a comment]");
    format!("{body}\n\n{}", marker(effect_id))
}
