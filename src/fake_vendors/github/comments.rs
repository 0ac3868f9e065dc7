//! Comments on pull requests, through the issues door as the host has it.

use serde_json::{Value, json};

use super::model::Comment;
use super::rest::{Answer, Call, Place, Refusal, not_found, ok, refuse};
use crate::clock;
use crate::http::Reply;

/// Larger bodies are refused; the host counts bytes although its message says characters.
const BODY_MAX: usize = 262_144;

impl Call<'_> {
    /// Comments need either right, as the host takes it.
    fn need_comments(&self, at: &Place<'_>, level: &str) -> Result<(), Refusal> {
        self.need(at, "issues", level)
            .or_else(|_| self.need(at, "pull_requests", level))
    }

    fn numbered(&self, at: &Place<'_>, number: &str) -> Result<u64, Refusal> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        let known = self.read(at, |repo| repo.pull(number).is_some())?;
        if known { Ok(number) } else { Err(not_found()) }
    }

    fn body_text(&self) -> Result<String, Refusal> {
        let body = self.text("body").unwrap_or_default();
        if body.is_empty() {
            return Err(refuse(422, "Validation Failed"));
        }
        if body.len() > BODY_MAX {
            return Err(super::rest::invalid(
                "IssueComment",
                "data",
                "Body is too long (maximum is 65536 characters)",
            ));
        }
        Ok(body.to_owned())
    }

    pub fn get_issue(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need_comments(at, "read")?;
        let number = self.numbered(at, number)?;
        ok(self.read(at, |repo| {
            let Some(pull) = repo.pull(number) else {
                return Value::Null;
            };
            let mut shape = self.host.pull_shape(repo, pull, false);
            shape["pull_request"] = json!({"url": shape["url"], "html_url": shape["html_url"]});
            shape
        })?)
    }

    pub fn list_comments(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need_comments(at, "read")?;
        let number = self.numbered(at, number)?;
        let since = self.param("since").and_then(|text| clock::parse(&text));
        let shapes = self.read(at, |repo| {
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            comments
                .filter(|comment| since.is_none_or(|since| comment.updated >= since))
                .map(|comment| self.host.comment_shape(repo, comment))
                .collect()
        })?;
        self.page(shapes, |_, items| items.into())
    }

    pub fn create_comment(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need_comments(at, "write")?;
        let number = self.numbered(at, number)?;
        let body = self.body_text()?;
        let author = self.token()?.login.clone();
        let id = self.host.add_comment(at, number, &author, &body);
        let shape = self.comment(at, id)?;
        Ok(Reply::json(201, &shape))
    }

    fn comment(&self, at: &Place<'_>, id: u64) -> Result<Value, Refusal> {
        let found = self.read(at, |repo| {
            let comment = repo.comments.iter().find(|comment| comment.id == id);
            comment.map(|comment| self.host.comment_shape(repo, comment))
        })?;
        found.ok_or_else(not_found)
    }

    pub fn get_comment(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need_comments(at, "read")?;
        ok(self.comment(at, id.parse().map_err(|_| not_found())?)?)
    }

    pub fn patch_comment(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need_comments(at, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(at, id)?;
        let body = self.body_text()?;
        self.host.shelf.change(|model| {
            let comments = model.repo(at.owner, at.name).comments.iter_mut();
            for comment in comments.filter(|comment| comment.id == id) {
                comment.body.clone_from(&body);
                comment.updated = clock::now_ms();
            }
        });
        ok(self.comment(at, id)?)
    }

    pub fn delete_comment(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need_comments(at, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(at, id)?;
        self.host.shelf.change(|model| {
            let comments = &mut model.repo(at.owner, at.name).comments;
            comments.retain(|comment| comment.id != id);
        });
        Ok(Reply::empty(204))
    }
}

impl super::Inner {
    pub fn add_comment(&self, at: &Place<'_>, number: u64, author: &str, body: &str) -> u64 {
        let comment = self.shelf.change(|model| {
            let now = clock::now_ms();
            let comment = Comment {
                id: model.next_id(),
                number,
                author: author.to_owned(),
                body: body.to_owned(),
                at: now,
                updated: now,
            };
            let repo = model.repo(at.owner, at.name);
            repo.comments.push(comment.clone());
            repo.touch(number);
            comment
        });
        self.tell_comment(at, &comment, "created");
        comment.id
    }
}
