//! Webhooks: of the repository host at a steady rate, of a ticketing system now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::crypto::signature::sign;
use domain::secret::Secret;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http_client::{HttpConnection, encode_request};
use crate::load_env::{LINEAR_SECRET, LoadEnv, REPO_HOST_SECRET, repository_name};
use crate::measurements::RequestKind;
use crate::record_error;

/// Connections that the host sends on, each at its own times.
const LANES: u64 = 16;

/// Every so many deliveries one is kept, to be sent once more at the end.
const KEPT: u64 = 25;

/// Deliveries that were taken, and what they are answered when they come again.
pub static DELIVERY_SAMPLE: std::sync::Mutex<Vec<Vec<u8>>> = std::sync::Mutex::new(Vec::new());

static ORDER: AtomicU64 = AtomicU64::new(1);

/// Something that the host tells.
struct Event {
    name: &'static str,
    payload: Value,
    /// What the answer says.
    answered: &'static str,
}

pub fn spawn_senders(scene: &Arc<LoadEnv>, traffic: &mut JoinSet<()>) {
    let began = Instant::now();
    for lane in 0..LANES {
        traffic.spawn(host_lane(Arc::clone(scene), lane, began));
    }
    traffic.spawn(feedback(Arc::clone(scene), began));
    traffic.spawn(tickets(Arc::clone(scene), began));
}

async fn host_lane(scene: Arc<LoadEnv>, lane: u64, began: Instant) {
    let mut rng = Rng::with_seed(scene.plan.seed ^ (lane << 32));
    let mut line = HttpConnection::new(scene.service);
    let mut last: Option<Vec<u8>> = None;
    for number in (lane..).step_by(LANES as usize) {
        let meant_for = began + Duration::from_secs(number) / scene.plan.webhooks_per_second;
        let (request, answered) = match last.take().filter(|_| rng.u8(..10) == 0) {
            Some(again) => (again, "duplicate"),
            None => {
                let event = any_event(&mut rng);
                (signed(&event), event.answered)
            }
        };
        tokio::time::sleep_until(meant_for.into()).await;
        if scene.is_stopped() {
            return;
        }
        let taken = deliver(
            &scene,
            &mut line,
            &request,
            answered,
            RequestKind::RepoHostWebhook,
            meant_for,
        );
        if taken.await {
            if number % KEPT == 0 && answered != "duplicate" {
                DELIVERY_SAMPLE.lock().unwrap().push(request.clone());
            }
            last = Some(request);
        }
    }
}

/// Sends a delivery; whether it was taken, and answered as it should be.
async fn deliver(
    scene: &LoadEnv,
    line: &mut HttpConnection,
    request: &[u8],
    answered: &str,
    kind: RequestKind,
    meant_for: Instant,
) -> bool {
    match line.send(request).await {
        Ok(answer) if answer.status == 200 && answer.text().contains(answered) => {
            scene.recorder.record_response(kind, meant_for);
            scene.recorder.count(
                match kind {
                    RequestKind::RepoHostWebhook => "host webhooks",
                    _ => "ticketing webhooks",
                },
                1,
            );
            true
        }
        Ok(answer) => {
            let (status, said) = (answer.status, answer.excerpt());
            let name = kind.name();
            scene
                .recorder
                .record_error(format!("{name}: {status} {said}, not {answered}"));
            false
        }
        Err(error) => {
            record_error(&scene.recorder, kind.name(), &error);
            false
        }
    }
}

/// What an organisation's host tells all day; hardly any of it is about pull requests of ours.
fn any_event(rng: &mut Rng) -> Event {
    let event = |name, file: &str, answered| {
        let payload = serde_json::from_str(file).unwrap();
        Event {
            name,
            payload,
            answered,
        }
    };
    let mut event = match rng.u8(..100) {
        0..30 => Event {
            name: "workflow_run",
            payload: workflow_run(rng),
            answered: "unsupported event",
        },
        30..45 => event(
            "check_run",
            include_str!("../data/webhooks/check_run.json"),
            "unsupported event",
        ),
        45..55 => event(
            "pull_request",
            include_str!("../data/webhooks/synchronize.json"),
            "acknowledged",
        ),
        55..65 => event(
            "pull_request",
            include_str!("../data/webhooks/opened.json"),
            "not a merged pull request",
        ),
        65..80 => event(
            "issue_comment",
            include_str!("../data/webhooks/issue_comment.json"),
            "not our pull request",
        ),
        80..88 => event(
            "pull_request_review",
            include_str!("../data/webhooks/review.json"),
            "not our pull request",
        ),
        88..96 => event(
            "pull_request_review_comment",
            include_str!("../data/webhooks/review_comment.json"),
            "not our pull request",
        ),
        _ => event(
            "ping",
            include_str!("../data/webhooks/ping.json"),
            "unsupported event",
        ),
    };
    address(
        &mut event.payload,
        &repository_name(rng.usize(..)),
        rng.u64(100_000..1_000_000),
    );
    event
}

fn address(payload: &mut Value, repository: &str, number: u64) {
    payload["repository"]["full_name"] = format!("acme/{repository}").into();
    for field in ["pull_request", "issue"] {
        if payload[field].is_object() {
            payload[field]["number"] = number.into();
        }
    }
}

fn workflow_run(rng: &mut Rng) -> Value {
    let id = rng.u64(1..1 << 40);
    let action = ["requested", "in_progress", "completed"][rng.usize(..3)];
    json!({
        "action": action,
        "workflow_run": {
            "id": id, "name": "Agent Implement", "head_branch": "main", "run_number": 7, "event": "workflow_dispatch",
            "display_title": format!("Agent Implement {id}"), "status": "completed", "conclusion": "success",
            "html_url": format!("https://github.example/acme/shop/actions/runs/{id}"),
            "created_at": "2027-01-15T08:00:00Z", "updated_at": "2027-01-15T08:10:00Z", "run_attempt": 1,
            "actor": {"login": "agent-implement[bot]", "id": 1, "type": "Bot"},
            "head_commit": {"id": "ec26c3e57ca3a959ca5aad62de7213c562f8c821", "message": "Make it faster"},
        },
        "repository": {"id": 1_296_269, "name": "shop", "full_name": "acme/shop"},
        "sender": {"login": "agent-implement[bot]", "id": 1, "type": "Bot"},
    })
}

/// The bytes of a delivery under an id of its own.
fn signed(event: &Event) -> Vec<u8> {
    let body = event.payload.to_string();
    let order = ORDER.fetch_add(1, Ordering::Relaxed);
    let id = format!("{order:08x}-0000-4000-8000-{order:012x}");
    let signature = sign(body.as_bytes(), &Secret::new(REPO_HOST_SECRET));
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "GitHub-Hookshot/load"),
        ("x-github-event", event.name),
        ("x-github-delivery", &id),
        ("x-hub-signature-256", &format!("sha256={signature}")),
    ];
    encode_request("POST", "/api/repo-host/webhook", &headers, body.as_bytes())
}

/// Now and then a person asks for a change on a pull request of ours: a run follows.
async fn feedback(scene: Arc<LoadEnv>, began: Instant) {
    let mut rng = Rng::with_seed(scene.plan.seed ^ 0xfeed);
    for number in 1_u32.. {
        let due = began + scene.plan.feedback_interval * number;
        if !sleep_until_or_end(&scene, due).await {
            return;
        }
        let Some(pull) = rng.choice(scene.opened_pulls().iter()).cloned() else {
            continue;
        };
        let text = format!("- [ ] Handle the empty list, as in case {number}");
        let (repo, said) = (pull.repo.clone(), text.clone());
        let saying =
            tokio::task::spawn_blocking(move || repo.add_comment(pull.number, "reviewer", &said));
        let id = saying.await.unwrap();
        let file = include_str!("../data/webhooks/issue_comment.json");
        let mut payload: Value = serde_json::from_str(file).unwrap();
        let name = pull.repo.full_name();
        address(&mut payload, name.trim_start_matches("acme/"), pull.number);
        payload["issue"]["body"] = pull.body.into();
        payload["comment"]["id"] = id.into();
        payload["comment"]["body"] = text.into();
        let event = Event {
            name: "issue_comment",
            payload,
            answered: "queued",
        };
        let (meant_for, mut line) = (Instant::now(), HttpConnection::new(scene.service));
        let request = signed(&event);
        let sent = deliver(
            &scene,
            &mut line,
            &request,
            event.answered,
            RequestKind::RepoHostWebhook,
            meant_for,
        );
        if sent.await {
            scene.recorder.count("remarks on our pull requests", 1);
        }
    }
}

/// Now and then an issue changes, and the poll is asked to look.
async fn tickets(scene: Arc<LoadEnv>, began: Instant) {
    for number in 1_u32.. {
        let due = began + scene.plan.ticket_event_interval * number;
        if !sleep_until_or_end(&scene, due).await {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let payload = json!({
            "action": "update", "type": "Issue", "webhookTimestamp": now.as_millis() as u64,
            "data": {"id": "an-issue", "identifier": "T0-1", "title": "Make it faster", "team": {"key": "T0"}},
        });
        let body = payload.to_string();
        let signature = sign(body.as_bytes(), &Secret::new(LINEAR_SECRET));
        let headers = [
            ("content-type", "application/json"),
            ("linear-event", "Issue"),
            ("linear-delivery", &format!("ticket-event-{number}")),
            ("linear-signature", &signature),
        ];
        let request = encode_request(
            "POST",
            "/api/ticketing-a/webhook",
            &headers,
            body.as_bytes(),
        );
        let mut line = HttpConnection::new(scene.service);
        deliver(
            &scene,
            &mut line,
            &request,
            "queued",
            RequestKind::TicketingWebhook,
            Instant::now(),
        )
        .await;
    }
}

/// Waits for a time; false when the load is over before.
pub async fn sleep_until_or_end(scene: &LoadEnv, due: Instant) -> bool {
    while !scene.is_stopped() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        tokio::time::sleep(left.min(Duration::from_millis(500))).await;
    }
    false
}
