//! Webhooks of pull request events, signed as by GitHub.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::GitHubInner;
use super::api_json::user_json;
use super::model::{
    CheckKind, CheckRecord, CommentRecord, PullRecord, RepoRecord, ReviewRecord, ReviewThreadRecord,
};
use super::rest::RepoPath;
use crate::clock;
use crate::persistence::lock;
use crate::webhook_sender::{WebhookEvent, WebhookHeaders, WebhookSender, WebhookTarget};

/// Webhooks of all repositories.
pub(crate) struct RepoWebhooks {
    /// Target by repository.
    targets: Mutex<Vec<(String, WebhookTarget)>>,
    pub(crate) sender: WebhookSender,
}

impl RepoWebhooks {
    pub(crate) fn start() -> Self {
        Self {
            targets: Mutex::default(),
            sender: WebhookSender::start(),
        }
    }

    pub(crate) fn set_target(&self, repo: &str, url: &str, secret: &str) {
        let target = WebhookTarget {
            url: url.to_owned(),
            secret: secret.to_owned(),
        };
        let mut targets = lock(&self.targets);
        targets.retain(|(existing, _)| existing != repo);
        targets.push((repo.to_owned(), target));
    }

    fn target(&self, repo_path: &RepoPath<'_>) -> Option<WebhookTarget> {
        let full_name = format!("{}/{}", repo_path.owner, repo_path.name);
        let targets = lock(&self.targets);
        let target = targets
            .iter()
            .find(|(repo, _)| repo.eq_ignore_ascii_case(&full_name));
        target.map(|(_, target)| target.clone())
    }
}

fn headers(event: &WebhookEvent, signature: String) -> WebhookHeaders {
    vec![
        ("User-Agent", "GitHub-Hookshot/sandbox".to_owned()),
        ("X-GitHub-Event", event.name.to_owned()),
        ("X-GitHub-Delivery", event.id.clone()),
        ("X-Hub-Signature-256", format!("sha256={signature}")),
    ]
}

impl GitHubInner {
    /// Queues an event if the repository has a webhook. `payload` returns the event's own members; the
    /// common ones are added.
    fn queue_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        sender: &str,
        event: &'static str,
        payload: impl FnOnce(&RepoRecord) -> Option<Value>,
    ) {
        let Some(target) = self.webhooks.target(repo_path) else {
            return;
        };
        let payload_json = self.model.read(|model| {
            let row = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            let mut payload_json = payload(row)?;
            payload_json["repository"] = self.repo_json(row);
            payload_json["sender"] = user_json(sender);
            payload_json["installation"] = json!({"id": model.installation_id(repo_path.owner)});
            Some(payload_json)
        });
        if let Some(payload) = payload_json {
            let event = WebhookEvent {
                id: clock::uuid(),
                name: event,
                payload,
            };
            self.webhooks.sender.push(&target, event, headers);
        }
    }

    pub(crate) fn send_comment_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        comment: &CommentRecord,
        action: &str,
    ) {
        self.queue_webhook(repo_path, &comment.author, "issue_comment", |row| {
            if let Some(issue) = row.issue(comment.number) {
                let (issue, comment) = (self.issue_json(row, issue), self.comment_json(row, comment));
                return Some(json!({"action": action, "issue": issue, "comment": comment}));
            }
            let pull = row.pull(comment.number)?;
            let value = self.pull_json(row, pull);
            let issue_fields = ["number", "title", "user", "state", "body", "html_url", "draft", "created_at"];
            let mut issue = json!({"pull_request": {"url": value["url"], "html_url": value["html_url"]}});
            for field in issue_fields {
                issue[field] = value[field].clone();
            }
            Some(json!({"action": action, "issue": issue, "comment": self.comment_json(row, comment)}))
        });
    }

    pub(crate) fn send_issue_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        sender: &str,
        action: &str,
    ) {
        self.queue_webhook(repo_path, sender, "issues", |row| {
            let issue = self.issue_json(row, row.issue(number)?);
            Some(json!({"action": action, "issue": issue}))
        });
    }

    pub(crate) fn send_review_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        review: &ReviewRecord,
        action: &str,
    ) {
        self.queue_webhook(repo_path, &review.author, "pull_request_review", |row| {
            let pull = self.pull_json(row, row.pull(review.number)?);
            let mut value = self.review_json(row, review);
            value["state"] = json!(review.state.to_lowercase());
            Some(json!({"action": action, "review": value, "pull_request": pull}))
        });
    }

    pub(crate) fn send_review_comment_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        thread: &ReviewThreadRecord,
    ) {
        self.queue_webhook(
            repo_path,
            &thread.author,
            "pull_request_review_comment",
            |row| {
                let pull = self.pull_json(row, row.pull(thread.number)?);
                let comment = self.review_comment_json(row, thread);
                Some(json!({"action": "created", "comment": comment, "pull_request": pull}))
            },
        );
    }

    pub(crate) fn send_review_thread_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        thread: &ReviewThreadRecord,
        action: &str,
    ) {
        self.queue_webhook(
            repo_path,
            "maintainer",
            "pull_request_review_thread",
            |row| {
                let pull = self.pull_json(row, row.pull(thread.number)?);
                let comments = [self.review_comment_json(row, thread)];
                let value = json!({"node_id": format!("PRRT_{}", thread.id), "comments": comments});
                Some(json!({"action": action, "thread": value, "pull_request": pull}))
            },
        );
    }

    /// Sends an event about a check, a check suite or a workflow run that has ended.
    pub(crate) fn send_ci_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        event: &'static str,
        value: impl FnOnce(&RepoRecord) -> Value,
    ) {
        self.queue_webhook(repo_path, "maintainer", event, |row| {
            let mut payload = json!({"action": "completed"});
            payload[event] = value(row);
            Some(payload)
        });
    }

    /// Sends the event about a check run that has ended, or about a commit status.
    pub(crate) fn send_check_webhook(&self, repo_path: &RepoPath<'_>, check: &CheckRecord) {
        match check.kind {
            CheckKind::CheckRun => {
                self.send_ci_webhook(repo_path, "check_run", |_| self.check_run_json(check));
            }
            CheckKind::CommitStatus => {
                let status = self.commit_status_json(check);
                self.queue_webhook(repo_path, "maintainer", "status", |_| {
                    let mut payload = status;
                    payload["sha"] = json!(check.sha);
                    Some(payload)
                });
            }
        }
    }

    pub(crate) fn send_pull_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        pull: &PullRecord,
        action: &str,
    ) {
        if self.webhooks.target(repo_path).is_none() {
            return;
        }
        let comparison = self.compare(repo_path, &pull.base, &pull.head_sha);
        self.queue_webhook(repo_path, "maintainer", "pull_request", |row| {
            let value = self.pull_details_json(row, pull, &comparison);
            Some(json!({"action": action, "number": pull.number, "pull_request": value}))
        });
    }
}
