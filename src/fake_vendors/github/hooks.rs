//! Webhooks: what happens on pull requests is told to an address, signed, as the host tells it: with
//! no promise of order, and as often as the dial says.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::Inner;
use super::model::{Comment, Pull, Repo as Row, Review, Thread};
use super::rest::Place;
use super::shapes::user;
use crate::clock;
use crate::post::{HookDial, insist, post, signature};
use crate::state::lock;

/// For how long deliveries are held back to be shuffled.
const SHUFFLE: Duration = Duration::from_millis(30);

/// A delivery as it was sent, and the status it was answered with; none when nobody answered.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub id: String,
    pub event: String,
    pub payload: Value,
    pub status: Option<u16>,
    pub answer: String,
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
pub(crate) struct Hooks {
    hooks: Mutex<Vec<Hook>>,
    queue: Mutex<Sender<Delivery>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    dial: HookDial,
    delivered: Vec<Delivered>,
    under_way: usize,
}

impl Hooks {
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

    pub fn dial(&self, dial: HookDial) {
        lock(&self.state).dial = dial;
    }

    pub fn delivered(&self) -> Vec<Delivered> {
        lock(&self.state).delivered.clone()
    }

    pub fn is_idle(&self) -> bool {
        lock(&self.state).under_way == 0
    }

    fn of(&self, at: &Place<'_>) -> Option<Hook> {
        let full_name = format!("{}/{}", at.owner, at.name);
        let hooks = lock(&self.hooks);
        let own = hooks
            .iter()
            .find(|hook| hook.repo.eq_ignore_ascii_case(&full_name));
        own.cloned()
    }

    fn push(&self, hook: Hook, event: &'static str, payload: Value) {
        let mut state = lock(&self.state);
        if fastrand::f64() < state.dial.lost {
            return;
        }
        let times = 1 + usize::from(fastrand::f64() < state.dial.twice);
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
        if lock(state).dial.shuffled {
            std::thread::sleep(SHUFFLE);
            batch.extend(due.try_iter());
            fastrand::shuffle(&mut batch);
        }
        let is_insistent = lock(state).dial.insistent;
        for delivery in batch {
            insist(is_insistent, || {
                let answered = send(&delivery);
                let (status, answer) = answered
                    .map_or((None, String::new()), |(status, answer)| {
                        (Some(status), answer)
                    });
                lock(state).delivered.push(Delivered {
                    id: delivery.id.clone(),
                    event: delivery.event.to_owned(),
                    payload: delivery.payload.clone(),
                    status,
                    answer,
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
    let signature = format!("sha256={}", signature(secret, &body));
    let headers = [
        ("User-Agent", "GitHub-Hookshot/sandbox"),
        ("X-GitHub-Event", delivery.event),
        ("X-GitHub-Delivery", &delivery.id),
        ("X-Hub-Signature-256", &signature),
    ];
    post(url, &headers, &body)
}

impl Inner {
    /// Tells the repository's hook of an event; `payload` gets what every payload carries.
    fn tell(
        &self,
        at: &Place<'_>,
        sender: &str,
        event: &'static str,
        payload: impl FnOnce(&Row) -> Option<Value>,
    ) {
        let Some(hook) = self.hooks.of(at) else {
            return;
        };
        let made = self.shelf.read(|model| {
            let row = &model.repos[model.find(at.owner, at.name)?];
            let mut made = payload(row)?;
            made["repository"] = self.repo_shape(row);
            made["sender"] = user(sender);
            made["installation"] = json!({"id": model.installation(at.owner)});
            Some(made)
        });
        if let Some(payload) = made {
            self.hooks.push(hook, event, payload);
        }
    }

    pub fn tell_comment(&self, at: &Place<'_>, comment: &Comment, action: &str) {
        self.tell(at, &comment.author, "issue_comment", |row| {
            let pull = row.pull(comment.number)?;
            let shape = self.pull_shape(row, pull, false);
            let kept = ["number", "title", "user", "state", "body", "html_url", "draft", "created_at"];
            let mut issue = json!({"pull_request": {"url": shape["url"], "html_url": shape["html_url"]}});
            for field in kept {
                issue[field] = shape[field].clone();
            }
            Some(json!({"action": action, "issue": issue, "comment": self.comment_shape(row, comment)}))
        });
    }

    pub fn tell_review(&self, at: &Place<'_>, review: &Review, action: &str) {
        self.tell(at, &review.author, "pull_request_review", |row| {
            let pull = self.pull_shape(row, row.pull(review.number)?, false);
            let mut shape = self.review_shape(row, review);
            shape["state"] = json!(review.state.to_lowercase());
            Some(json!({"action": action, "review": shape, "pull_request": pull}))
        });
    }

    pub fn tell_remark(&self, at: &Place<'_>, thread: &Thread) {
        self.tell(at, &thread.author, "pull_request_review_comment", |row| {
            let pull = self.pull_shape(row, row.pull(thread.number)?, false);
            let comment = self.remark_shape(row, thread);
            Some(json!({"action": "created", "comment": comment, "pull_request": pull}))
        });
    }

    pub fn tell_thread(&self, at: &Place<'_>, thread: &Thread, action: &str) {
        self.tell(at, "maintainer", "pull_request_review_thread", |row| {
            let pull = self.pull_shape(row, row.pull(thread.number)?, false);
            let comments = [self.remark_shape(row, thread)];
            let shape = json!({"node_id": format!("PRRT_{}", thread.id), "comments": comments});
            Some(json!({"action": action, "thread": shape, "pull_request": pull}))
        });
    }

    pub fn tell_pull(&self, at: &Place<'_>, pull: &Pull, action: &str) {
        self.tell(at, "maintainer", "pull_request", |row| {
            let shape = self.pull_shape(row, pull, true);
            Some(json!({"action": action, "number": pull.number, "pull_request": shape}))
        });
    }
}
