//! Webhooks: what happens on pull requests is told to an address, signed, as the host tells it: with
//! no promise of order, and as often as the dial says.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::GitHubInner;
use super::api_json::user_json;
use super::model::{
    CommentRecord, PullRecord, RepoRecord as Row, ReviewRecord, ReviewThreadRecord,
};
use super::rest::RepoPath;
use crate::clock;
use crate::persistence::lock;
use crate::webhook_sender::{WebhookFaults, hmac_sha256_hex, http_post, send_with_retry};

/// For how long deliveries are held back to be shuffled.
const SHUFFLE: Duration = Duration::from_millis(30);

/// A delivery as it was sent, and the status it was answered with; none when nobody answered.
#[derive(Clone, Debug)]
pub struct DeliveredWebhook {
    pub id: String,
    pub event: String,
    pub payload: Value,
    pub status: Option<u16>,
    pub response_body: String,
}

/// Where a repository's events go.
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

/// All hooks of the host, and the thread that sends.
pub(crate) struct Webhooks {
    hooks: Mutex<Vec<Hook>>,
    queue: Mutex<Sender<Delivery>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    dial: WebhookFaults,
    delivered: Vec<DeliveredWebhook>,
    under_way: usize,
}

impl Webhooks {
    pub fn start() -> Self {
        let (queue, due) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // It ends with the host, whose queue it reads.
        std::thread::spawn(move || send_all(&due, &shared));
        Self {
            hooks: Mutex::default(),
            queue: Mutex::new(queue),
            state,
        }
    }

    pub fn add(&self, repo: &str, url: &str, secret: &str) {
        let hook = Hook {
            repo: repo.to_owned(),
            url: url.to_owned(),
            secret: secret.to_owned(),
        };
        let mut hooks = lock(&self.hooks);
        hooks.retain(|known| known.repo != hook.repo);
        hooks.push(hook);
    }

    pub fn set_faults(&self, dial: WebhookFaults) {
        lock(&self.state).dial = dial;
    }

    pub fn deliveries(&self) -> Vec<DeliveredWebhook> {
        lock(&self.state).delivered.clone()
    }

    pub fn is_idle(&self) -> bool {
        lock(&self.state).under_way == 0
    }

    fn of(&self, at: &RepoPath<'_>) -> Option<Hook> {
        let full_name = format!("{}/{}", at.owner, at.name);
        let hooks = lock(&self.hooks);
        let own = hooks
            .iter()
            .find(|hook| hook.repo.eq_ignore_ascii_case(&full_name));
        own.cloned()
    }

    fn push(&self, hook: Hook, event: &'static str, payload: Value) {
        let mut state = lock(&self.state);
        if fastrand::f64() < state.dial.loss_rate {
            return;
        }
        let times = 1 + usize::from(fastrand::f64() < state.dial.duplicate_rate);
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
                state.under_way += 1;
            }
        }
    }
}

fn send_all(due: &Receiver<Delivery>, state: &Mutex<State>) {
    while let Ok(first) = due.recv() {
        let mut batch = vec![first];
        if lock(state).dial.reorder {
            std::thread::sleep(SHUFFLE);
            batch.extend(due.try_iter());
            fastrand::shuffle(&mut batch);
        }
        let is_insistent = lock(state).dial.retry_until_accepted;
        for delivery in batch {
            send_with_retry(is_insistent, || {
                let answered = send(&delivery);
                let (status, answer) = answered
                    .map_or((None, String::new()), |(status, answer)| {
                        (Some(status), answer)
                    });
                lock(state).delivered.push(DeliveredWebhook {
                    id: delivery.id.clone(),
                    event: delivery.event.to_owned(),
                    payload: delivery.payload.clone(),
                    status,
                    response_body: answer,
                });
                status
            });
            lock(state).under_way -= 1;
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
    /// Tells the repository's hook of an event; `payload` gets what every payload carries.
    fn tell(
        &self,
        at: &RepoPath<'_>,
        sender: &str,
        event: &'static str,
        payload: impl FnOnce(&Row) -> Option<Value>,
    ) {
        let Some(hook) = self.webhooks.of(at) else {
            return;
        };
        let made = self.model.read(|model| {
            let row = &model.repos[model.find_repo(at.owner, at.name)?];
            let mut made = payload(row)?;
            made["repository"] = self.repo_json(row);
            made["sender"] = user_json(sender);
            made["installation"] = json!({"id": model.installation_id(at.owner)});
            Some(made)
        });
        if let Some(payload) = made {
            self.webhooks.push(hook, event, payload);
        }
    }

    pub fn send_comment_webhook(&self, at: &RepoPath<'_>, comment: &CommentRecord, action: &str) {
        self.tell(at, &comment.author, "issue_comment", |row| {
            let pull = row.pull(comment.number)?;
            let shape = self.pull_json(row, pull, false);
            let kept = ["number", "title", "user", "state", "body", "html_url", "draft", "created_at"];
            let mut issue = json!({"pull_request": {"url": shape["url"], "html_url": shape["html_url"]}});
            for field in kept {
                issue[field] = shape[field].clone();
            }
            Some(json!({"action": action, "issue": issue, "comment": self.comment_json(row, comment)}))
        });
    }

    pub fn send_review_webhook(&self, at: &RepoPath<'_>, review: &ReviewRecord, action: &str) {
        self.tell(at, &review.author, "pull_request_review", |row| {
            let pull = self.pull_json(row, row.pull(review.number)?, false);
            let mut shape = self.review_json(row, review);
            shape["state"] = json!(review.state.to_lowercase());
            Some(json!({"action": action, "review": shape, "pull_request": pull}))
        });
    }

    pub fn send_review_comment_webhook(&self, at: &RepoPath<'_>, thread: &ReviewThreadRecord) {
        self.tell(at, &thread.author, "pull_request_review_comment", |row| {
            let pull = self.pull_json(row, row.pull(thread.number)?, false);
            let comment = self.review_comment_json(row, thread);
            Some(json!({"action": "created", "comment": comment, "pull_request": pull}))
        });
    }

    pub fn send_review_thread_webhook(
        &self,
        at: &RepoPath<'_>,
        thread: &ReviewThreadRecord,
        action: &str,
    ) {
        self.tell(at, "maintainer", "pull_request_review_thread", |row| {
            let pull = self.pull_json(row, row.pull(thread.number)?, false);
            let comments = [self.review_comment_json(row, thread)];
            let shape = json!({"node_id": format!("PRRT_{}", thread.id), "comments": comments});
            Some(json!({"action": action, "thread": shape, "pull_request": pull}))
        });
    }

    pub fn send_pull_webhook(&self, at: &RepoPath<'_>, pull: &PullRecord, action: &str) {
        self.tell(at, "maintainer", "pull_request", |row| {
            let shape = self.pull_json(row, pull, true);
            Some(json!({"action": action, "number": pull.number, "pull_request": shape}))
        });
    }
}
