//! Sending of webhooks: small signed POST requests to addresses on loopback. Faults can drop, repeat and
//! reorder them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::Value;

use super::persistence::lock;

/// Pause before a rejected delivery is sent again. Real vendors wait a minute and longer.
const RETRY_DELAY: Duration = Duration::from_millis(60);

/// Duration for which events are collected before they are shuffled.
const SHUFFLE_WINDOW: Duration = Duration::from_millis(30);

/// Maximum duration of retries of one delivery.
const RETRY_TIMEOUT: Duration = Duration::from_secs(50);

/// Webhook faults. Probabilities are 0 to 1 per event.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookFaults {
    /// Probability that an event is never sent.
    pub loss_rate: f64,
    /// Probability that an event is sent twice with the same delivery ID.
    pub duplicate_rate: f64,
    /// Whether events of about the same time are shuffled.
    pub reorder: bool,
    /// Whether a delivery is repeated with the same delivery ID until it gets a 2xx response.
    pub retry_until_accepted: bool,
}

/// Sends once, or until a 2xx response; `send` returns the status of the response. A delivery that has waited behind others
/// for so long that its signature has expired (401) is not repeated.
fn send_with_retry(retry_until_accepted: bool, mut send: impl FnMut() -> Option<u16>) {
    let started = Instant::now();
    loop {
        let is_final = send().is_some_and(|status| (200..300).contains(&status) || status == 401);
        if is_final || !retry_until_accepted || started.elapsed() > RETRY_TIMEOUT {
            return;
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

/// Computes the HMAC-SHA256 of a body, in hexadecimal.
pub(crate) fn hmac_sha256_hex(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref())
}

/// Sends a minimal POST request. Returns status and body, or `None` if there was no response.
fn http_post(url: &str, headers: &[(&str, String)], body: &str) -> Option<(u16, String)> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(host).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    stream
        .write_all(&[head.as_bytes(), body.as_bytes()].concat())
        .ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let status = response.split(' ').nth(1)?.parse().ok()?;
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Some((status, body.to_owned()))
}

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

/// Receiver of webhooks.
#[derive(Clone)]
pub(crate) struct WebhookTarget {
    pub url: String,
    pub secret: String,
}

/// Event to send.
pub(crate) struct WebhookEvent {
    pub id: String,
    pub name: &'static str,
    pub payload: Value,
}

/// Headers of one delivery, beside the content type.
pub(crate) type WebhookHeaders = Vec<(&'static str, String)>;

/// Signed event.
#[derive(Clone)]
struct SignedEvent {
    url: String,
    headers: WebhookHeaders,
    id: String,
    name: &'static str,
    payload: Value,
    body: String,
}

/// Webhook sender of a vendor.
pub struct WebhookSender {
    queue: Mutex<Sender<SignedEvent>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    faults: WebhookFaults,
    delivered: Vec<DeliveredWebhook>,
    pending: usize,
}

impl WebhookSender {
    pub(crate) fn start() -> Self {
        let (queue, receiver) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // The thread ends when the vendor drops its end of the queue.
        std::thread::spawn(move || send_all(&receiver, &shared));
        Self {
            queue: Mutex::new(queue),
            state,
        }
    }

    /// Queues an event. `headers` gets its signature: an HMAC-SHA256, in hexadecimal.
    pub(crate) fn push(
        &self,
        target: &WebhookTarget,
        event: WebhookEvent,
        headers: impl FnOnce(&WebhookEvent, String) -> WebhookHeaders,
    ) {
        let body = event.payload.to_string();
        let event = SignedEvent {
            url: target.url.clone(),
            headers: headers(&event, hmac_sha256_hex(&target.secret, &body)),
            id: event.id,
            name: event.name,
            payload: event.payload,
            body,
        };
        let mut state = lock(&self.state);
        if fastrand::f64() < state.faults.loss_rate {
            return;
        }
        let times = 1 + usize::from(fastrand::f64() < state.faults.duplicate_rate);
        for event in std::iter::repeat_n(event, times) {
            // The thread lives as long as the vendor.
            if lock(&self.queue).send(event).is_ok() {
                state.pending += 1;
            }
        }
    }

    /// Sets the faults of deliveries.
    pub fn set_faults(&self, faults: WebhookFaults) {
        lock(&self.state).faults = faults;
    }

    /// Returns the deliveries so far in the order they were sent, including repeated ones.
    pub fn deliveries(&self) -> Vec<DeliveredWebhook> {
        lock(&self.state).delivered.clone()
    }

    /// Returns whether all queued webhooks have been sent.
    pub fn is_idle(&self) -> bool {
        lock(&self.state).pending == 0
    }
}

fn send_all(receiver: &Receiver<SignedEvent>, state: &Mutex<State>) {
    while let Ok(first) = receiver.recv() {
        let mut batch = vec![first];
        if lock(state).faults.reorder {
            std::thread::sleep(SHUFFLE_WINDOW);
            batch.extend(receiver.try_iter());
            fastrand::shuffle(&mut batch);
        }
        let retry_until_accepted = lock(state).faults.retry_until_accepted;
        for event in batch {
            send_with_retry(retry_until_accepted, || {
                let (status, response_body) =
                    match http_post(&event.url, &event.headers, &event.body) {
                        Some((status, body)) => (Some(status), body),
                        None => (None, String::new()),
                    };
                lock(state).delivered.push(DeliveredWebhook {
                    id: event.id.clone(),
                    event: event.name.to_owned(),
                    payload: event.payload.clone(),
                    status,
                    response_body,
                });
                status
            });
            lock(state).pending -= 1;
        }
    }
}
