//! Endpoints of comments on pull requests and issues.

use serde_json::{Value, json};

use super::GitHubInner;
use super::model::{CommentRecord, PullRecord, RepoRecord};
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error};
use crate::clock;
use crate::http::HttpResponse;

/// Maximum bytes of a body. GitHub counts bytes, although its message says characters.
const MAX_BODY_BYTES: usize = 262_144;

impl GitHubInner {
    /// Returns a pull request as an issue.
    fn issue_of_pull(&self, repo: &RepoRecord, pull: &PullRecord) -> Value {
        let mut value = self.pull_json(repo, pull);
        value["pull_request"] = json!({"url": value["url"], "html_url": value["html_url"]});
        value
    }
}

impl ApiCall<'_> {
    /// Checks the permission for comments: either `issues` or `pull_requests` is enough.
    fn require_comment_permission(
        &self,
        repo_path: &RepoPath<'_>,
        level: &str,
    ) -> Result<(), RestError> {
        self.require_permission(repo_path, "issues", level)
            .or_else(|_| self.require_permission(repo_path, "pull_requests", level))
    }

    fn parse_number(&self, repo_path: &RepoPath<'_>, number: &str) -> Result<u64, RestError> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        let exists = self.read_repo(repo_path, |repo| {
            repo.pull(number).is_some() || repo.issue(number).is_some()
        })?;
        if exists { Ok(number) } else { Err(not_found()) }
    }

    fn body_text(&self) -> Result<String, RestError> {
        let body = self.body_str("body").unwrap_or_default();
        if body.is_empty() {
            return Err(rest_error(422, "Validation Failed"));
        }
        if body.len() > MAX_BODY_BYTES {
            return Err(super::rest::validation_error(
                "IssueComment",
                "data",
                "Body is too long (maximum is 65536 characters)",
            ));
        }
        Ok(body.to_owned())
    }

    /// Lists the open issues. As on GitHub, pull requests are issues, too.
    pub(super) fn list_issues(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "issues", "read")?;
        let all = self.read_repo(repo_path, |repo| {
            let issues = repo.issues.iter().filter(|issue| issue.open);
            let pulls = repo.pulls.iter().filter(|pull| pull.open);
            let pulls = pulls.map(|pull| self.host.issue_of_pull(repo, pull));
            issues
                .map(|issue| self.host.issue_json(repo, issue))
                .chain(pulls)
                .collect()
        })?;
        self.paginate(all, |_, items| items.into())
    }

    pub(super) fn get_issue(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_comment_permission(repo_path, "read")?;
        let number = self.parse_number(repo_path, number)?;
        ok_json(self.read_repo(repo_path, |repo| {
            let Some(pull) = repo.pull(number) else {
                let issue = repo.issue(number);
                return issue.map_or(Value::Null, |issue| self.host.issue_json(repo, issue));
            };
            self.host.issue_of_pull(repo, pull)
        })?)
    }

    pub(super) fn list_comments(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_comment_permission(repo_path, "read")?;
        let number = self.parse_number(repo_path, number)?;
        let since = self
            .query_param("since")
            .and_then(|text| clock::parse(&text));
        let items = self.read_repo(repo_path, |repo| {
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            comments
                .filter(|comment| since.is_none_or(|since| comment.updated_at >= since))
                .map(|comment| self.host.comment_json(repo, comment))
                .collect()
        })?;
        self.paginate(items, |_, items| items.into())
    }

    pub(super) fn create_comment(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_comment_permission(repo_path, "write")?;
        let number = self.parse_number(repo_path, number)?;
        let body = self.body_text()?;
        let author = self.require_token()?.login.clone();
        let id = self.host.add_comment(repo_path, number, &author, &body);
        let value = self.comment(repo_path, id)?;
        Ok(HttpResponse::json(201, &value))
    }

    fn comment(&self, repo_path: &RepoPath<'_>, id: u64) -> Result<Value, RestError> {
        let found = self.read_repo(repo_path, |repo| {
            let comment = repo.comments.iter().find(|comment| comment.id == id);
            comment.map(|comment| self.host.comment_json(repo, comment))
        })?;
        found.ok_or_else(not_found)
    }

    pub(super) fn get_comment(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_comment_permission(repo_path, "read")?;
        ok_json(self.comment(repo_path, id.parse().map_err(|_| not_found())?)?)
    }

    pub(super) fn patch_comment(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_comment_permission(repo_path, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(repo_path, id)?;
        let body = self.body_text()?;
        self.host.model.update(|model| {
            let comments = model
                .ensure_repo(repo_path.owner, repo_path.name)
                .comments
                .iter_mut();
            for comment in comments.filter(|comment| comment.id == id) {
                comment.body.clone_from(&body);
                comment.updated_at = clock::now_ms();
            }
        });
        ok_json(self.comment(repo_path, id)?)
    }

    pub(super) fn delete_comment(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_comment_permission(repo_path, "write")?;
        let id = id.parse().map_err(|_| not_found())?;
        self.comment(repo_path, id)?;
        self.host.model.update(|model| {
            let comments = &mut model.ensure_repo(repo_path.owner, repo_path.name).comments;
            comments.retain(|comment| comment.id != id);
        });
        Ok(HttpResponse::empty(204))
    }
}

impl super::GitHubInner {
    pub(crate) fn add_comment(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        author: &str,
        body: &str,
    ) -> u64 {
        let comment = self.model.update(|model| {
            let now = clock::now_ms();
            let comment = CommentRecord {
                id: model.next_id(),
                number,
                author: author.to_owned(),
                body: body.to_owned(),
                created_at: now,
                updated_at: now,
            };
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            repo.comments.push(comment.clone());
            repo.mark_pull_updated(number);
            if let Some(issue) = repo.issue_mut(number) {
                // Later than before also if everything happens in one second.
                issue.updated_at = now.max(issue.updated_at + 1_000);
            }
            comment
        });
        self.send_comment_webhook(repo_path, &comment, "created");
        comment.id
    }
}
