//! Webhooks of pull request events, signed as by GitHub. Faults can drop, repeat and reorder them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::GitHubInner;
use super::api_json::user_json;
use super::model::{CommentRecord, PullRecord, RepoRecord, ReviewRecord, ReviewThreadRecord};
use super::rest::RepoPath;
use crate::clock;
use crate::persistence::lock;
use crate::webhook_sender::{WebhookFaults, hmac_sha256_hex, http_post, send_with_retry};

/// Duration for which deliveries are collected before they are shuffled.
const SHUFFLE_WINDOW: Duration = Duration::from_millis(30);

/// Delivered webhook, including the response.
#[derive(Clone, Debug)]
pub struct DeliveredWebhook {
    /// Delivery ID.
    pub id: String,
    /// Event name.
    pub event: String,
    /// JSON body.
    pub payload: Value,
    /// Status of the response; `None` if there was none.
    pub status: Option<u16>,
    /// Body of the response.
    pub response_body: String,
}

/// Webhook of a repository.
#[derive(Clone)]
struct Hook {
    repo: String,
    url: String,
    secret: String,
}

struct Delivery {
    hook: Hook,
    id: String,
    event: &'static str,
    payload: Value,
}

/// Webhooks of all repositories, and the queue of the sending thread.
pub(crate) struct Webhooks {
    hooks: Mutex<Vec<Hook>>,
    queue: Mutex<Sender<Delivery>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    faults: WebhookFaults,
    delivered: Vec<DeliveredWebhook>,
    pending: usize,
}

impl Webhooks {
    pub(crate) fn start() -> Self {
        let (queue, receiver) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // The thread ends when the host drops its end of the queue.
        std::thread::spawn(move || send_all(&receiver, &shared));
        Self {
            hooks: Mutex::default(),
            queue: Mutex::new(queue),
            state,
        }
    }

    pub(crate) fn add(&self, repo: &str, url: &str, secret: &str) {
        let hook = Hook {
            repo: repo.to_owned(),
            url: url.to_owned(),
            secret: secret.to_owned(),
        };
        let mut hooks = lock(&self.hooks);
        hooks.retain(|existing| existing.repo != hook.repo);
        hooks.push(hook);
    }

    pub(crate) fn set_faults(&self, faults: WebhookFaults) {
        lock(&self.state).faults = faults;
    }

    pub(crate) fn deliveries(&self) -> Vec<DeliveredWebhook> {
        lock(&self.state).delivered.clone()
    }

    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).pending == 0
    }

    fn hook_for(&self, repo_path: &RepoPath<'_>) -> Option<Hook> {
        let full_name = format!("{}/{}", repo_path.owner, repo_path.name);
        let hooks = lock(&self.hooks);
        let hook = hooks
            .iter()
            .find(|hook| hook.repo.eq_ignore_ascii_case(&full_name));
        hook.cloned()
    }

    fn push(&self, hook: Hook, event: &'static str, payload: Value) {
        let mut state = lock(&self.state);
        if fastrand::f64() < state.faults.loss_rate {
            return;
        }
        let times = 1 + usize::from(fastrand::f64() < state.faults.duplicate_rate);
        let id = clock::uuid();
        for _ in 0..times {
            let delivery = Delivery {
                hook: hook.clone(),
                id: id.clone(),
                event,
                payload: payload.clone(),
            };
            // The thread lives as long as the host.
            if lock(&self.queue).send(delivery).is_ok() {
                state.pending += 1;
            }
        }
    }
}

fn send_all(receiver: &Receiver<Delivery>, state: &Mutex<State>) {
    while let Ok(first) = receiver.recv() {
        let mut batch = vec![first];
        if lock(state).faults.reorder {
            std::thread::sleep(SHUFFLE_WINDOW);
            batch.extend(receiver.try_iter());
            fastrand::shuffle(&mut batch);
        }
        let retry_until_accepted = lock(state).faults.retry_until_accepted;
        for delivery in batch {
            send_with_retry(retry_until_accepted, || {
                let response = send(&delivery);
                let (status, body) =
                    response.map_or((None, String::new()), |(status, body)| (Some(status), body));
                lock(state).delivered.push(DeliveredWebhook {
                    id: delivery.id.clone(),
                    event: delivery.event.to_owned(),
                    payload: delivery.payload.clone(),
                    status,
                    response_body: body,
                });
                status
            });
            lock(state).pending -= 1;
        }
    }
}

fn send(delivery: &Delivery) -> Option<(u16, String)> {
    let Hook { url, secret, .. } = &delivery.hook;
    let body = delivery.payload.to_string();
    let signature = format!("sha256={}", hmac_sha256_hex(secret, &body));
    let headers = [
        ("User-Agent", "GitHub-Hookshot/sandbox"),
        ("X-GitHub-Event", delivery.event),
        ("X-GitHub-Delivery", &delivery.id),
        ("X-Hub-Signature-256", &signature),
    ];
    http_post(url, &headers, &body)
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
        let Some(hook) = self.webhooks.hook_for(repo_path) else {
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
            self.webhooks.push(hook, event, payload);
        }
    }

    pub(crate) fn send_comment_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        comment: &CommentRecord,
        action: &str,
    ) {
        self.queue_webhook(repo_path, &comment.author, "issue_comment", |row| {
            let pull = row.pull(comment.number)?;
            let value = self.pull_json(row, pull, false);
            let issue_fields = ["number", "title", "user", "state", "body", "html_url", "draft", "created_at"];
            let mut issue = json!({"pull_request": {"url": value["url"], "html_url": value["html_url"]}});
            for field in issue_fields {
                issue[field] = value[field].clone();
            }
            Some(json!({"action": action, "issue": issue, "comment": self.comment_json(row, comment)}))
        });
    }

    pub(crate) fn send_review_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        review: &ReviewRecord,
        action: &str,
    ) {
        self.queue_webhook(repo_path, &review.author, "pull_request_review", |row| {
            let pull = self.pull_json(row, row.pull(review.number)?, false);
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
                let pull = self.pull_json(row, row.pull(thread.number)?, false);
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
                let pull = self.pull_json(row, row.pull(thread.number)?, false);
                let comments = [self.review_comment_json(row, thread)];
                let value = json!({"node_id": format!("PRRT_{}", thread.id), "comments": comments});
                Some(json!({"action": action, "thread": value, "pull_request": pull}))
            },
        );
    }

    pub(crate) fn send_pull_webhook(
        &self,
        repo_path: &RepoPath<'_>,
        pull: &PullRecord,
        action: &str,
    ) {
        self.queue_webhook(repo_path, "maintainer", "pull_request", |row| {
            let value = self.pull_json(row, pull, true);
            Some(json!({"action": action, "number": pull.number, "pull_request": value}))
        });
    }
}
