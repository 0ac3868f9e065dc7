//! Pull requests and their reviews.

use serde_json::{Value, json};

use super::Inner;
use super::git::Changed;
use super::model::{Pull, Review};
use super::rest::{Answer, Call, Place, Refusal, invalid, not_found, ok, refuse};
use crate::clock;
use crate::http::Reply;

pub(crate) fn file_shape(change: &Changed) -> Value {
    json!({
        "filename": change.path, "status": change.status, "additions": change.added,
        "deletions": change.removed, "changes": change.added + change.removed, "patch": change.patch,
    })
}

impl Inner {
    /// Brings the remembered head of open pull requests up to date with git.
    pub fn refresh_pulls(&self, at: &Place<'_>) {
        let git = self.git(at.owner, at.name);
        let open = self.shelf.read(|model| {
            let row = model.find(at.owner, at.name)?;
            let pulls = model.repos[row].pulls.iter().filter(|pull| pull.open);
            Some(
                pulls
                    .map(|pull| (pull.number, pull.head.clone(), pull.head_sha.clone()))
                    .collect::<Vec<_>>(),
            )
        });
        let open = open.unwrap_or_default();
        if open.is_empty() {
            return;
        }
        let heads = git.branches();
        for (number, head, known) in open {
            match heads.get(&head).cloned() {
                Some(sha) if sha != known => {
                    self.outdate(at, number, &git.changes(&known, &sha).unwrap_or_default());
                    self.change_pull(at, number, |pull| pull.head_sha = sha);
                    let pull = self.shelf.read(|model| {
                        let row = &model.repos[model.find(at.owner, at.name)?];
                        row.pull(number).cloned()
                    });
                    if let Some(pull) = pull {
                        self.tell_pull(at, &pull, "synchronize");
                    }
                }
                _ => {}
            }
        }
    }

    /// Marks conversations at files that have changed; the host looks at the lines.
    fn outdate(&self, at: &Place<'_>, number: u64, changes: &[Changed]) {
        self.shelf.change(|model| {
            let threads = model.repo(at.owner, at.name).threads.iter_mut();
            for thread in threads.filter(|thread| thread.number == number) {
                thread.outdated |= changes.iter().any(|change| change.path == thread.path);
            }
        });
    }

    pub fn change_pull(&self, at: &Place<'_>, number: u64, edit: impl FnOnce(&mut Pull)) {
        self.shelf.change(|model| {
            let pulls = &mut model.repo(at.owner, at.name).pulls;
            if let Some(pull) = pulls.iter_mut().find(|pull| pull.number == number) {
                edit(pull);
                pull.updated = clock::now_ms();
            }
        });
    }

    pub fn add_review(
        &self,
        at: &Place<'_>,
        number: u64,
        author: &str,
        state: &str,
        body: &str,
    ) -> u64 {
        self.refresh_pulls(at);
        let review = self.shelf.change(|model| {
            let id = model.next_id();
            let repo = model.repo(at.owner, at.name);
            let sha = repo
                .pull(number)
                .map(|pull| pull.head_sha.clone())
                .unwrap_or_default();
            let review = Review {
                id,
                number,
                author: author.to_owned(),
                state: state.to_uppercase(),
                body: body.to_owned(),
                sha,
                at: clock::now_ms(),
            };
            repo.reviews.push(review.clone());
            repo.touch(number);
            review
        });
        self.tell_review(at, &review, "submitted");
        review.id
    }
}

impl Call<'_> {
    /// The pull request's row, with its head as git has it.
    fn pull(&self, at: &Place<'_>, number: &str) -> Result<Pull, Refusal> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        self.host.refresh_pulls(at);
        self.read(at, |repo| repo.pull(number).cloned())?
            .ok_or_else(not_found)
    }

    fn pull_json(&self, at: &Place<'_>, pull: &Pull) -> Result<Value, Refusal> {
        self.read(at, |repo| self.host.pull_shape(repo, pull, true))
    }

    pub fn list_pulls(&self, at: &Place<'_>) -> Answer {
        self.need(at, "pull_requests", "read")?;
        self.host.refresh_pulls(at);
        let state = self.param("state").unwrap_or_else(|| "open".into());
        let head = self.param("head");
        let base = self.param("base");
        let shapes = self.read(at, |repo| {
            let pulls = repo.pulls.iter().rev();
            pulls
                .filter(|pull| state == "all" || pull.open == (state == "open"))
                .filter(|pull| base.as_ref().is_none_or(|base| *base == pull.base))
                .filter(|pull| {
                    let label = pull.label(&repo.owner);
                    head.as_ref()
                        .is_none_or(|head| head.eq_ignore_ascii_case(&label))
                })
                .map(|pull| self.host.pull_shape(repo, pull, false))
                .collect()
        })?;
        self.page(shapes, |_, items| items.into())
    }

    pub fn create_pull(&self, at: &Place<'_>) -> Answer {
        self.need(at, "pull_requests", "write")?;
        let of_a_job = self.token()?.run.is_some();
        if of_a_job && !self.read(at, |repo| repo.actions_open_pulls)? {
            let refusal = "GitHub Actions is not permitted to create or approve pull requests.";
            return Err(refuse(403, refusal));
        }
        let head = self.text("head").unwrap_or_default();
        let head = head
            .strip_prefix(&format!("{}:", at.owner))
            .unwrap_or(head)
            .to_owned();
        let base = self.text("base").unwrap_or_default().to_owned();
        let title = self.text("title").unwrap_or_default().to_owned();
        let git = self.host.git(at.owner, at.name);
        if title.is_empty() {
            return Err(missing("title"));
        }
        let head_sha = git.branch(&head).ok_or_else(|| missing("head"))?;
        let base_sha = git.branch(&base).ok_or_else(|| missing("base"))?;
        let open = self.read(at, |repo| {
            repo.pulls
                .iter()
                .any(|pull| pull.open && pull.head == head && pull.base == base)
        })?;
        if open {
            let message = format!("A pull request already exists for {}:{head}.", at.owner);
            return Err(custom(&message));
        }
        if git.log(&format!("{base_sha}..{head_sha}")).is_empty() {
            return Err(custom(&format!("No commits between {base} and {head}")));
        }
        let author = self.token()?.login.clone();
        let pull = self.host.shelf.change(|model| {
            let id = model.next_id();
            let repo = model.repo(at.owner, at.name);
            let now = clock::now_ms();
            let pull = Pull {
                id,
                number: repo.next_number(),
                title,
                body: self.text("body").unwrap_or_default().to_owned(),
                head,
                fork: None,
                base,
                head_sha,
                author,
                open: true,
                draft: self.body["draft"] == Value::Bool(true),
                merged: None,
                at: now,
                updated: now,
                closed: None,
            };
            repo.pulls.push(pull.clone());
            pull
        });
        Ok(Reply::json(201, &self.pull_json(at, &pull)?))
    }

    pub fn get_pull(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "read")?;
        let pull = self.pull(at, number)?;
        ok(self.pull_json(at, &pull)?)
    }

    pub fn patch_pull(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "write")?;
        let pull = self.pull(at, number)?;
        let text = |field: &str| self.text(field).map(str::to_owned);
        let (title, body, base, state) = (text("title"), text("body"), text("base"), text("state"));
        if state.as_deref() == Some("open") && pull.merged.is_some() {
            return Err(refuse(422, "Validation Failed"));
        }
        self.host.change_pull(at, pull.number, |pull| {
            pull.title = title.unwrap_or_else(|| pull.title.clone());
            pull.body = body.unwrap_or_else(|| pull.body.clone());
            pull.base = base.unwrap_or_else(|| pull.base.clone());
            if let Some(state) = state {
                pull.open = state == "open";
                pull.closed = (!pull.open).then(clock::now_ms);
            }
        });
        let pull = self.pull(at, number)?;
        ok(self.pull_json(at, &pull)?)
    }

    pub fn is_merged(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "read")?;
        let pull = self.pull(at, number)?;
        if pull.merged.is_some() {
            Ok(Reply::empty(204))
        } else {
            Err(not_found())
        }
    }

    pub fn reviews(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "read")?;
        let number = self.pull(at, number)?.number;
        let shapes = self.read(at, |repo| {
            let reviews = repo.reviews.iter().filter(|review| review.number == number);
            reviews
                .map(|review| self.host.review_shape(repo, review))
                .collect()
        })?;
        self.page(shapes, |_, items| items.into())
    }

    pub fn create_review(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "write")?;
        let pull = self.pull(at, number)?;
        let author = self.token()?.login.clone();
        let state = match self.text("event") {
            Some("REQUEST_CHANGES" | "APPROVE") if author == pull.author => {
                return Err(refuse(
                    422,
                    "Review Can not request changes on your own pull request",
                ));
            }
            Some("REQUEST_CHANGES") => "CHANGES_REQUESTED",
            Some("APPROVE") => "APPROVED",
            _ => "COMMENTED",
        };
        let body = self.text("body").unwrap_or_default();
        let id = self.host.add_review(at, pull.number, &author, state, body);
        ok(self.read(at, |repo| {
            let review = repo.reviews.iter().find(|review| review.id == id);
            review.map_or(Value::Null, |review| self.host.review_shape(repo, review))
        })?)
    }

    pub fn pull_files(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "read")?;
        let pull = self.pull(at, number)?;
        let git = self.host.git(at.owner, at.name);
        let base = git.branch(&pull.base).unwrap_or_default();
        let from = git.merge_base(&base, &pull.head_sha).unwrap_or(base);
        let files = git.changes(&from, &pull.head_sha)?;
        self.page(files.iter().map(file_shape).collect(), |_, items| {
            items.into()
        })
    }

    pub fn pull_commits(&self, at: &Place<'_>, number: &str) -> Answer {
        self.need(at, "pull_requests", "read")?;
        let pull = self.pull(at, number)?;
        let log = self
            .host
            .git(at.owner, at.name)
            .log(&format!("{}..{}", pull.base, pull.head_sha));
        let commits = log.iter().rev();
        let shapes = commits.map(|commit| {
            json!({"sha": commit.sha, "commit": {"message": commit.message, "author": {"name": commit.author, "email": commit.email}}})
        });
        self.page(shapes.collect(), |_, items| items.into())
    }
}

fn missing(field: &str) -> Refusal {
    Refusal {
        errors: Some(json!([{"resource": "PullRequest", "field": field, "code": "invalid"}])),
        ..refuse(422, "Validation Failed")
    }
}

fn custom(message: &str) -> Refusal {
    let mut refusal = invalid("PullRequest", "base", message);
    if let Some(error) = refusal
        .errors
        .as_mut()
        .and_then(|errors| errors[0].as_object_mut())
    {
        error.remove("field");
    }
    refusal
}
