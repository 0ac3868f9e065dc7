//! Endpoints of pull requests and their reviews.

use serde_json::{Value, json};

use super::GitHubInner;
use super::diff::FileDiff;
use super::model::{PullRecord, ReviewRecord};
use super::rest::{
    ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error, validation_error,
};
use crate::clock;
use crate::http::HttpResponse;

pub(crate) fn file_json(change: &FileDiff) -> Value {
    json!({
        "filename": change.path, "status": change.status, "additions": change.additions,
        "deletions": change.deletions, "changes": change.additions + change.deletions, "patch": change.patch,
    })
}

impl GitHubInner {
    /// Updates the stored head commits of open pull requests from git.
    pub(crate) fn refresh_pull_heads(&self, repo_path: &RepoPath<'_>) {
        let git = self.git(repo_path.owner, repo_path.name);
        let open = self.model.read(|model| {
            let row = model.find_repo(repo_path.owner, repo_path.name)?;
            let pulls = model.repos[row].pulls.iter().filter(|pull| pull.open);
            Some(
                pulls
                    .map(|pull| (pull.number, pull.head.clone(), pull.head_sha.clone()))
                    .collect::<Vec<_>>(),
            )
        });
        let open = open.unwrap_or_default();
        for (number, head, stored) in open {
            match git.branch_head(&head) {
                Some(sha) if sha != stored => {
                    self.mark_threads_outdated(
                        repo_path,
                        number,
                        &git.diff(&stored, &sha).unwrap_or_default(),
                    );
                    self.update_pull(repo_path, number, |pull| {
                        pull.head_sha = sha;
                        // A push removes it from the merge queue. Auto-merge stays armed.
                        pull.queued_by = None;
                    });
                    let pull = self.model.read(|model| {
                        let row = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
                        row.pull(number).cloned()
                    });
                    if let Some(pull) = pull {
                        self.send_pull_webhook(repo_path, &pull, "synchronize");
                    }
                }
                _ => {}
            }
        }
    }

    /// Marks review threads of changed files as outdated. GitHub compares lines instead of files.
    fn mark_threads_outdated(&self, repo_path: &RepoPath<'_>, number: u64, changes: &[FileDiff]) {
        self.model.update(|model| {
            let threads = model
                .ensure_repo(repo_path.owner, repo_path.name)
                .threads
                .iter_mut();
            for thread in threads.filter(|thread| thread.number == number) {
                thread.outdated |= changes.iter().any(|change| change.path == thread.path);
            }
        });
    }

    pub(crate) fn update_pull(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        edit: impl FnOnce(&mut PullRecord),
    ) {
        self.model.update(|model| {
            let pulls = &mut model.ensure_repo(repo_path.owner, repo_path.name).pulls;
            if let Some(pull) = pulls.iter_mut().find(|pull| pull.number == number) {
                edit(pull);
                pull.updated_at = clock::now_ms();
            }
        });
    }

    pub(crate) fn add_review(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        author: &str,
        state: &str,
        body: &str,
    ) -> u64 {
        self.refresh_pull_heads(repo_path);
        let review = self.model.update(|model| {
            let id = model.next_id();
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            let sha = repo
                .pull(number)
                .map(|pull| pull.head_sha.clone())
                .unwrap_or_default();
            let review = ReviewRecord {
                id,
                number,
                author: author.to_owned(),
                state: state.to_uppercase(),
                body: body.to_owned(),
                sha,
                submitted_at: clock::now_ms(),
            };
            repo.reviews.push(review.clone());
            repo.mark_pull_updated(number);
            review
        });
        self.send_review_webhook(repo_path, &review, "submitted");
        self.merge_armed(repo_path);
        review.id
    }
}

impl ApiCall<'_> {
    /// Returns a pull request with its current head commit.
    pub(super) fn pull(
        &self,
        repo_path: &RepoPath<'_>,
        number: &str,
    ) -> Result<PullRecord, RestError> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        self.host.refresh_pull_heads(repo_path);
        self.read_repo(repo_path, |repo| repo.pull(number).cloned())?
            .ok_or_else(not_found)
    }

    fn pull_json(&self, repo_path: &RepoPath<'_>, pull: &PullRecord) -> Result<Value, RestError> {
        let comparison = self.host.compare(repo_path, &pull.base, &pull.head_sha);
        self.read_repo(repo_path, |repo| {
            self.host.pull_details_json(repo, pull, &comparison)
        })
    }

    pub(super) fn list_pulls(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        self.host.refresh_pull_heads(repo_path);
        let state = self.query_param("state").unwrap_or_else(|| "open".into());
        let head = self.query_param("head");
        let base = self.query_param("base");
        let items = self.read_repo(repo_path, |repo| {
            let pulls = repo.pulls.iter().rev();
            pulls
                .filter(|pull| state == "all" || pull.open == (state == "open"))
                .filter(|pull| base.as_ref().is_none_or(|base| *base == pull.base))
                .filter(|pull| {
                    let label = pull.label(&repo.owner);
                    head.as_ref()
                        .is_none_or(|head| head.eq_ignore_ascii_case(&label))
                })
                .map(|pull| self.host.pull_json(repo, pull))
                .collect()
        })?;
        self.paginate(items, |_, items| items.into())
    }

    pub(super) fn create_pull(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "write")?;
        let is_job_token = self.require_token()?.run_id.is_some();
        if is_job_token && !self.read_repo(repo_path, |repo| repo.actions_can_open_pulls)? {
            let error = "GitHub Actions is not permitted to create or approve pull requests.";
            return Err(rest_error(403, error));
        }
        let head = self.body_str("head").unwrap_or_default();
        let head = head
            .strip_prefix(&format!("{}:", repo_path.owner))
            .unwrap_or(head)
            .to_owned();
        let base = self.body_str("base").unwrap_or_default().to_owned();
        let title = self.body_str("title").unwrap_or_default().to_owned();
        let git = self.host.git(repo_path.owner, repo_path.name);
        if title.is_empty() {
            return Err(invalid_field("title"));
        }
        let head_sha = git
            .branch_head(&head)
            .ok_or_else(|| invalid_field("head"))?;
        let base_sha = git
            .branch_head(&base)
            .ok_or_else(|| invalid_field("base"))?;
        let open = self.read_repo(repo_path, |repo| {
            repo.pulls
                .iter()
                .any(|pull| pull.open && pull.head == head && pull.base == base)
        })?;
        if open {
            let message = format!(
                "A pull request already exists for {}:{head}.",
                repo_path.owner
            );
            return Err(custom_error(&message));
        }
        if git.log(&format!("{base_sha}..{head_sha}")).is_empty() {
            return Err(custom_error(&format!(
                "No commits between {base} and {head}"
            )));
        }
        let author = self.require_token()?.login.clone();
        let pull = self.host.model.update(|model| {
            let id = model.next_id();
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            let now = clock::now_ms();
            let pull = PullRecord {
                id,
                number: repo.next_number(),
                title,
                body: self.body_str("body").unwrap_or_default().to_owned(),
                head,
                fork_owner: None,
                base,
                head_sha,
                author,
                open: true,
                draft: self.body["draft"] == Value::Bool(true),
                merged: None,
                mergeability: Default::default(),
                auto_merge: None,
                queued_by: None,
                created_at: now,
                updated_at: now,
                closed_at: None,
            };
            repo.pulls.push(pull.clone());
            pull
        });
        Ok(HttpResponse::json(201, &self.pull_json(repo_path, &pull)?))
    }

    pub(super) fn get_pull(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        let pull = self.pull(repo_path, number)?;
        ok_json(self.pull_json(repo_path, &pull)?)
    }

    pub(super) fn patch_pull(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "write")?;
        let pull = self.pull(repo_path, number)?;
        let text = |field: &str| self.body_str(field).map(str::to_owned);
        let (title, body, base, state) = (text("title"), text("body"), text("base"), text("state"));
        if state.as_deref() == Some("open") && pull.merged.is_some() {
            return Err(rest_error(422, "Validation Failed"));
        }
        self.host.update_pull(repo_path, pull.number, |pull| {
            pull.title = title.unwrap_or_else(|| pull.title.clone());
            pull.body = body.unwrap_or_else(|| pull.body.clone());
            pull.base = base.unwrap_or_else(|| pull.base.clone());
            match state.as_deref() {
                Some("open") => {
                    pull.open = true;
                    pull.closed_at = None;
                }
                Some(_) => pull.close(clock::now_ms()),
                None => {}
            }
        });
        let pull = self.pull(repo_path, number)?;
        ok_json(self.pull_json(repo_path, &pull)?)
    }

    pub(super) fn is_merged(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        let pull = self.pull(repo_path, number)?;
        if pull.merged.is_some() {
            Ok(HttpResponse::empty(204))
        } else {
            Err(not_found())
        }
    }

    pub(super) fn reviews(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        let number = self.pull(repo_path, number)?.number;
        let items = self.read_repo(repo_path, |repo| {
            let reviews = repo.reviews.iter().filter(|review| review.number == number);
            reviews
                .map(|review| self.host.review_json(repo, review))
                .collect()
        })?;
        self.paginate(items, |_, items| items.into())
    }

    pub(super) fn create_review(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "write")?;
        let pull = self.pull(repo_path, number)?;
        let author = self.require_token()?.login.clone();
        let state = match self.body_str("event") {
            Some("REQUEST_CHANGES" | "APPROVE") if author == pull.author => {
                return Err(rest_error(
                    422,
                    "Review Can not request changes on your own pull request",
                ));
            }
            Some("REQUEST_CHANGES") => "CHANGES_REQUESTED",
            Some("APPROVE") => "APPROVED",
            _ => "COMMENTED",
        };
        let body = self.body_str("body").unwrap_or_default();
        let id = self
            .host
            .add_review(repo_path, pull.number, &author, state, body);
        ok_json(self.read_repo(repo_path, |repo| {
            let review = repo.reviews.iter().find(|review| review.id == id);
            review.map_or(Value::Null, |review| self.host.review_json(repo, review))
        })?)
    }

    pub(super) fn pull_files(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        let pull = self.pull(repo_path, number)?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let base = git.branch_head(&pull.base).unwrap_or_default();
        let from = git.merge_base(&base, &pull.head_sha).unwrap_or(base);
        let files = git.diff(&from, &pull.head_sha)?;
        self.paginate(files.iter().map(file_json).collect(), |_, items| {
            items.into()
        })
    }

    pub(super) fn pull_commits(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "read")?;
        let pull = self.pull(repo_path, number)?;
        let log = self
            .host
            .git(repo_path.owner, repo_path.name)
            .log(&format!("{}..{}", pull.base, pull.head_sha));
        let commits = log.iter().rev();
        let items = commits.map(|commit| {
            json!({"sha": commit.sha, "commit": {"message": commit.message, "author": {"name": commit.author, "email": commit.email}}})
        });
        self.paginate(items.collect(), |_, items| items.into())
    }
}

fn invalid_field(field: &str) -> RestError {
    RestError {
        errors: Some(json!([{"resource": "PullRequest", "field": field, "code": "invalid"}])),
        ..rest_error(422, "Validation Failed")
    }
}

fn custom_error(message: &str) -> RestError {
    let mut error = validation_error("PullRequest", "base", message);
    if let Some(error) = error
        .errors
        .as_mut()
        .and_then(|errors| errors[0].as_object_mut())
    {
        error.remove("field");
    }
    error
}
