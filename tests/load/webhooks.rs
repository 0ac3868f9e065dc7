//! Webhooks: from the repository host at a steady rate, from a ticketing system occasionally.

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

/// Connections of the host, each with its own schedule.
const SENDERS: u64 = 16;

/// Response to a repeated delivery.
const DUPLICATE: &[&str] = &["duplicate"];

/// One of this many deliveries is kept and sent again at the end.
const SAMPLE_INTERVAL: u64 = 25;

/// Sample of accepted deliveries.
pub static DELIVERY_SAMPLE: std::sync::Mutex<Vec<Vec<u8>>> = std::sync::Mutex::new(Vec::new());

static ORDER: AtomicU64 = AtomicU64::new(1);

/// Webhook event of the host.
struct Event {
    name: &'static str,
    payload: Value,
    /// Texts of which the response must contain one.
    expected: &'static [&'static str],
}

/// Responses to the end of a check, which may be one of a head that the service has not read yet.
const CHECK_ENDED: &[&str] = &["acknowledged", "not our pull request"];

/// Responses to a repetition of a check that was ignored: its head can be one of this service since.
const IGNORED_REPEATED: &[&str] = &["duplicate", "acknowledged"];

pub fn spawn_senders(env: &Arc<LoadEnv>, traffic: &mut JoinSet<()>) {
    let started = Instant::now();
    for sender in 0..SENDERS {
        traffic.spawn(send_repo_host_webhooks(Arc::clone(env), sender, started));
    }
    traffic.spawn(send_feedback(Arc::clone(env), started));
    traffic.spawn(send_ticket_events(Arc::clone(env), started));
}

async fn send_repo_host_webhooks(env: Arc<LoadEnv>, sender: u64, started: Instant) {
    let mut rng = Rng::with_seed(env.plan.seed ^ (sender << 32));
    let mut connection = HttpConnection::new(env.service);
    let mut last: Option<(Vec<u8>, &'static [&'static str])> = None;
    for number in (sender..).step_by(SENDERS as usize) {
        let scheduled_at = started + Duration::from_secs(number) / env.plan.webhooks_per_second;
        let (request, expected, is_repeated) = match last.take().filter(|_| rng.u8(..10) == 0) {
            Some((request, expected)) => (request, expected, true),
            None => {
                let event = random_event(&mut rng);
                (encode_delivery(&event), event.expected, false)
            }
        };
        tokio::time::sleep_until(scheduled_at.into()).await;
        if env.is_stopped() {
            return;
        }
        let sent = send(
            &env,
            &mut connection,
            &request,
            expected,
            RequestKind::RepoHostWebhook,
            scheduled_at,
        );
        if let Some(response) = sent.await {
            if number % SAMPLE_INTERVAL == 0 && !is_repeated {
                DELIVERY_SAMPLE.lock().unwrap().push(request.clone());
            }
            let is_ignored = response.contains("\"ignored\":true");
            let is_check = [CHECK_ENDED, IGNORED_REPEATED].contains(&expected);
            let next = match is_check && is_ignored {
                true => IGNORED_REPEATED,
                false => DUPLICATE,
            };
            last = Some((request, next));
        }
    }
}

/// Sends a delivery. Returns the text of the response, if it was as expected.
async fn send(
    env: &LoadEnv,
    connection: &mut HttpConnection,
    request: &[u8],
    expected: &[&str],
    kind: RequestKind,
    scheduled_at: Instant,
) -> Option<String> {
    match connection.send(request).await {
        Ok(response)
            if response.status == 200
                && expected.iter().any(|text| response.text().contains(text)) =>
        {
            env.recorder.record_response(kind, scheduled_at);
            env.recorder.count(
                match kind {
                    RequestKind::RepoHostWebhook => "host webhooks",
                    _ => "ticketing webhooks",
                },
                1,
            );
            Some(response.text().to_string())
        }
        Ok(response) => {
            let (status, excerpt) = (response.status, response.excerpt());
            let name = kind.name();
            env.recorder
                .record_error(format!("{name}: {status} {excerpt}, expected {expected:?}"));
            None
        }
        Err(error) => {
            record_error(&env.recorder, kind.name(), &error);
            None
        }
    }
}

/// Random event of an organization's host. Few of them concern our pull requests.
fn random_event(rng: &mut Rng) -> Event {
    let event = |name, file: &str, expected| {
        let payload = serde_json::from_str(file).unwrap();
        Event {
            name,
            payload,
            expected,
        }
    };
    let mut event = match rng.u8(..100) {
        0..30 => workflow_run(rng),
        30..45 => event(
            "check_run",
            include_str!("../data/webhooks/check_run.json"),
            CHECK_ENDED,
        ),
        45..55 => event(
            "pull_request",
            include_str!("../data/webhooks/synchronize.json"),
            &["acknowledged"],
        ),
        55..65 => event(
            "pull_request",
            include_str!("../data/webhooks/opened.json"),
            &["not a merged pull request"],
        ),
        65..80 => event(
            "issue_comment",
            include_str!("../data/webhooks/issue_comment.json"),
            &["not our pull request"],
        ),
        80..88 => event(
            "pull_request_review",
            include_str!("../data/webhooks/review.json"),
            &["not our pull request"],
        ),
        88..96 => event(
            "pull_request_review_comment",
            include_str!("../data/webhooks/review_comment.json"),
            &["not our pull request"],
        ),
        _ => event(
            "ping",
            include_str!("../data/webhooks/ping.json"),
            &["unsupported event"],
        ),
    };
    set_target(
        &mut event.payload,
        &repository_name(rng.usize(..)),
        rng.u64(100_000..1_000_000),
    );
    event
}

fn set_target(payload: &mut Value, repository: &str, number: u64) {
    payload["repository"]["full_name"] = format!("acme/{repository}").into();
    for field in ["pull_request", "issue"] {
        if payload[field].is_object() {
            payload[field]["number"] = number.into();
        }
    }
}

fn workflow_run(rng: &mut Rng) -> Event {
    let id = rng.u64(1..1 << 40);
    let action = ["requested", "in_progress", "completed"][rng.usize(..3)];
    let payload = json!({
        "action": action,
        "workflow_run": {
            "id": id, "name": "Agent Implement", "head_branch": "main", "run_number": 7, "event": "workflow_dispatch",
            "display_title": format!("Agent Implement {id}"), "status": "completed", "conclusion": "success",
            "html_url": format!("https://github.example/acme/shop/actions/runs/{id}"),
            "created_at": "2027-01-15T08:00:00Z", "updated_at": "2027-01-15T08:10:00Z", "run_attempt": 1,
            "head_sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821",
            "actor": {"login": "agent-implement[bot]", "id": 1, "type": "Bot"},
            "head_commit": {"id": "ec26c3e57ca3a959ca5aad62de7213c562f8c821", "message": "Make it faster"},
        },
        "repository": {"id": 1_296_269, "name": "shop", "full_name": "acme/shop"},
        "sender": {"login": "agent-implement[bot]", "id": 1, "type": "Bot"},
    });
    Event {
        name: "workflow_run",
        payload,
        expected: match action {
            "completed" => CHECK_ENDED,
            _ => &["the check has not ended"],
        },
    }
}

/// Encodes a delivery with a new delivery ID.
fn encode_delivery(event: &Event) -> Vec<u8> {
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

/// Posts a change request on one of our pull requests at an interval; a run follows.
async fn send_feedback(env: Arc<LoadEnv>, started: Instant) {
    let mut rng = Rng::with_seed(env.plan.seed ^ 0xfeed);
    for number in 1_u32.. {
        let due = started + env.plan.feedback_interval * number;
        if !sleep_until_or_end(&env, due).await {
            return;
        }
        let Some(pull) = rng.choice(env.opened_pulls().iter()).cloned() else {
            continue;
        };
        let text = format!("- [ ] Handle the empty list, as in case {number}");
        let (repo, comment) = (pull.repo.clone(), text.clone());
        let posting = tokio::task::spawn_blocking(move || {
            repo.add_comment(pull.number, "reviewer", &comment)
        });
        let id = posting.await.unwrap();
        let file = include_str!("../data/webhooks/issue_comment.json");
        let mut payload: Value = serde_json::from_str(file).unwrap();
        let name = pull.repo.full_name();
        set_target(&mut payload, name.trim_start_matches("acme/"), pull.number);
        payload["issue"]["body"] = pull.body.into();
        payload["comment"]["id"] = id.into();
        payload["comment"]["body"] = text.into();
        let event = Event {
            name: "issue_comment",
            payload,
            expected: &["queued"],
        };
        let (scheduled_at, mut connection) = (Instant::now(), HttpConnection::new(env.service));
        let request = encode_delivery(&event);
        let sent = send(
            &env,
            &mut connection,
            &request,
            event.expected,
            RequestKind::RepoHostWebhook,
            scheduled_at,
        );
        if sent.await.is_some() {
            env.recorder.count("comments on our pull requests", 1);
        }
    }
}

/// Sends an issue change at an interval, which triggers a poll.
async fn send_ticket_events(env: Arc<LoadEnv>, started: Instant) {
    for number in 1_u32.. {
        let due = started + env.plan.ticket_event_interval * number;
        if !sleep_until_or_end(&env, due).await {
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
        let mut connection = HttpConnection::new(env.service);
        send(
            &env,
            &mut connection,
            &request,
            &["queued"],
            RequestKind::TicketingWebhook,
            Instant::now(),
        )
        .await;
    }
}

/// Waits until a time. Returns false if the load ends before.
pub async fn sleep_until_or_end(env: &LoadEnv, due: Instant) -> bool {
    while !env.is_stopped() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        tokio::time::sleep(left.min(Duration::from_millis(500))).await;
    }
    false
}
