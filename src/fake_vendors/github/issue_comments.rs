//! What people and Apps do with comments of an issue.

use std::time::Duration;

use super::issues::FakeIssue;
use super::model::CommentRecord;
use crate::clock;

impl FakeIssue {
    /// Adds a comment as an account. Accounts with a name that ends with `[bot]` are Apps.
    pub fn comment_as(self, login: &str, body: &str) -> Self {
        self.repo().add_comment(self.number(), login, body);
        self
    }

    /// Replaces the text of the comment with this id.
    pub fn edit_comment(self, id: u64, body: &str) -> Self {
        let edited = self.change_comment(id, |comment| {
            body.clone_into(&mut comment.body);
            comment.updated_at = clock::now_ms().max(comment.created_at + 1_000);
        });
        self.notify_of(edited, "edited")
    }

    /// Moves the times of the comment with this id into the past.
    pub fn age_comment(self, id: u64, age: Duration) -> Self {
        let ms = i64::try_from(age.as_millis()).unwrap_or(0);
        self.change_comment(id, |comment| {
            comment.created_at -= ms;
            comment.updated_at -= ms;
        });
        self
    }

    /// Deletes the comment with this id.
    pub fn delete_comment(self, id: u64) -> Self {
        let deleted = self.change_comment(id, |_| ());
        let repo = self.repo();
        repo.update_model(|model| {
            let comments = &mut model.ensure_repo(&repo.owner, &repo.name).comments;
            comments.retain(|comment| comment.id != id);
        });
        self.notify_of(deleted, "deleted")
    }

    fn change_comment(
        &self,
        id: u64,
        change: impl FnOnce(&mut CommentRecord),
    ) -> Option<CommentRecord> {
        let repo = self.repo();
        repo.update_model(|model| {
            let record = model.ensure_repo(&repo.owner, &repo.name);
            let mut comments = record.comments.iter_mut();
            let comment = comments.find(|comment| comment.id == id)?;
            change(comment);
            Some(comment.clone())
        })
    }

    fn notify_of(self, comment: Option<CommentRecord>, action: &str) -> Self {
        if let Some(comment) = comment {
            let repo = self.repo();
            repo.host
                .send_comment_webhook(&repo.path(), &comment, action);
        }
        self
    }
}
