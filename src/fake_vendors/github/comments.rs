//! Comments on pull requests, through the issues door as the host has it.

use serde_json::{Value, json};

use super::model::CommentRecord;
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error};
use crate::clock;
use crate::http::HttpResponse;

/// Larger bodies are refused; the host counts bytes although its message says characters.
const BODY_MAX: usize = 262_144;

impl ApiCall<'_> {
    /// Comments need either right, as the host takes it.
    fn need_comments(&self, at: &RepoPath<'_>, level: &str) -> Result<(), RestError> {
        self.require_permission(at, "issues", level)
            .or_else(|_| self.require_permission(at, "pull_requests", level))
    }

    fn numbered(&self, at: &RepoPath<'_>, number: &str) -> Result<u64, RestError> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        let known = self.read_repo(at, |repo| repo.pull(number).is_some())?;
        if known { Ok(number) } else { Err(not_found()) }
    }

    fn body_text(&self) -> Result<String, RestError> {
        let body = self.body_str("body").unwrap_or_default();
        if body.is_empty() {
            return Err(rest_error(422, "Validation Failed"));
        }
        if body.len() > BODY_MAX {
            return Err(super::rest::validation_error(
                "IssueComment",
                "data",
                "Body is too long (maximum is 65536 characters)",
            ));
        }
        Ok(body.to_owned())
    }

    pub fn get_issue(&self, at: &RepoPath<'_>, number: &str) -> RestResult {
        self.need_comments(at, "read")?;
        let number = self.numbered(at, number)?;
        ok_json(self.read_repo(at, |repo| {
            let Some(pull) = repo.pull(number) else {
                return Value::Null;
            };
            let mut shape = self.host.pull_json(repo, pull, false);
            shape["pull_request"] = json!({"url": shape["url"], "html_url": shape["html_url"]});
            shape
        })?)
    }

    pub fn list_comments(&self, at: &RepoPath<'_>, number: &str) -> RestResult {
        self.need_comments(at, "read")?;
        let number = self.numbered(at, number)?;
        let since = self
            .query_param("since")
            .and_then(|text| clock::parse(&text));
        let shapes = self.read_repo(at, |repo| {
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            comments
                .filter(|comment| since.is_none_or(|since| comment.updated_at >= since))
                .map(|comment| self.host.comment_json(repo, comment))
                .collect()
        })?;
        self.paginate(shapes, |_, items| items.into())
    }

    pub fn create_comment(&self, at: &RepoPath<'_>, number: &str) -> RestResult {
        self.need_comments(at, "write")?;
        let number = self.numbered(at, number)?;
        let body = self.body_text()?;
        let author = self.require_token()?.login.clone();
        let id = self.host.add_comment(at, number, &author, &body);
        let shape = self.comment(at, id)?;
        Ok(HttpResponse::json(201, &shape))
    }

    fn comment(&self, at: &RepoPath<'_>, id: u64) -> Result<Value, RestError> {
        let found = self.read_repo(at, |repo| {
            let comment = repo.comments.iter().find(|comment| comment.id == id);
            comment.map(|comment| self.host.comment_json(repo, comment))
        })?;
        found.ok_or_else(not_found)
    }

    pub fn get_comment(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.need_comments(at, "read")?;
        ok_json(self.comment(at, id.parse().map_err(|_| not_found())?)?)
    }

    pub fn patch_comment(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.need_comments(at, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(at, id)?;
        let body = self.body_text()?;
        self.host.model.update(|model| {
            let comments = model.ensure_repo(at.owner, at.name).comments.iter_mut();
            for comment in comments.filter(|comment| comment.id == id) {
                comment.body.clone_from(&body);
                comment.updated_at = clock::now_ms();
            }
        });
        ok_json(self.comment(at, id)?)
    }

    pub fn delete_comment(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.need_comments(at, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(at, id)?;
        self.host.model.update(|model| {
            let comments = &mut model.ensure_repo(at.owner, at.name).comments;
            comments.retain(|comment| comment.id != id);
        });
        Ok(HttpResponse::empty(204))
    }
}

impl super::GitHubInner {
    pub fn add_comment(&self, at: &RepoPath<'_>, number: u64, author: &str, body: &str) -> u64 {
        let comment = self.model.update(|model| {
            let now = clock::now_ms();
            let comment = CommentRecord {
                id: model.next_id(),
                number,
                author: author.to_owned(),
                body: body.to_owned(),
                submitted_at: now,
                updated_at: now,
            };
            let repo = model.ensure_repo(at.owner, at.name);
            repo.comments.push(comment.clone());
            repo.mark_pull_updated(number);
            comment
        });
        self.send_comment_webhook(at, &comment, "created");
        comment.id
    }
}
