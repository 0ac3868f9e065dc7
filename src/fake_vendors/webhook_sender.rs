//! Sending of webhooks: small signed POST requests to addresses on loopback.

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

/// Maximum duration of retries of one delivery.
const RETRY_TIMEOUT: Duration = Duration::from_secs(50);

/// Webhook faults. Probabilities are 0 to 1 per event.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookFaults {
    /// Probability that an event is never sent. Ignored for ticketing webhooks.
    pub loss_rate: f64,
    /// Probability that an event is sent twice with the same delivery ID.
    pub duplicate_rate: f64,
    /// Whether events of about the same time are shuffled. Ignored for ticketing webhooks.
    pub reorder: bool,
    /// Whether a delivery is repeated with the same delivery ID until it gets a 2xx response.
    pub retry_until_accepted: bool,
}

/// Sends once, or until a 2xx response; `send` returns the status of the response.
pub(crate) fn send_with_retry(retry_until_accepted: bool, mut send: impl FnMut() -> Option<u16>) {
    let started = Instant::now();
    loop {
        let is_accepted = send().is_some_and(|status| (200..300).contains(&status));
        if is_accepted || !retry_until_accepted || started.elapsed() > RETRY_TIMEOUT {
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
pub(crate) fn http_post(url: &str, headers: &[(&str, &str)], body: &str) -> Option<(u16, String)> {
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

/// Webhook delivery of a ticketing vendor.
#[derive(Clone, Debug)]
pub struct TicketWebhookDelivery {
    /// Delivery ID in the vendor's header.
    pub id: String,
    /// JSON body.
    pub payload: Value,
    /// Status and body of the response; `None` if there was none.
    pub response: Option<(u16, String)>,
}

/// Webhook sender of a ticketing vendor. Sends nothing until a target is set.
pub(crate) struct TicketWebhookSender {
    target: Mutex<Option<Target>>,
    queue: Mutex<Sender<QueuedEvent>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    faults: WebhookFaults,
    sent: Vec<TicketWebhookDelivery>,
    pending: usize,
}

#[derive(Clone)]
struct Target {
    url: String,
    secret: String,
}

/// Headers that carry the delivery ID.
const DELIVERY_ID_HEADERS: [&str; 2] = ["Linear-Delivery", "X-Atlassian-Webhook-Identifier"];

/// Headers of one delivery.
pub(crate) type WebhookHeaders = Vec<(&'static str, String)>;

/// Event ready to be sent.
#[derive(Clone)]
struct QueuedEvent {
    url: String,
    headers: WebhookHeaders,
    payload: Value,
    body: String,
}

impl TicketWebhookSender {
    pub(crate) fn start() -> Self {
        let (queue, receiver) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // The thread ends when the vendor drops its end of the queue.
        std::thread::spawn(move || send_all(&receiver, &shared));
        Self {
            target: Mutex::default(),
            queue: Mutex::new(queue),
            state,
        }
    }

    pub(crate) fn set_target(&self, url: &str, secret: &str) {
        *lock(&self.target) = Some(Target {
            url: url.to_owned(),
            secret: secret.to_owned(),
        });
    }

    /// Queues webhooks if a target is set. `headers` gets the payload and its signature.
    pub(crate) fn enqueue(
        &self,
        payloads: impl FnOnce() -> Vec<Value>,
        headers: impl Fn(&Value, String) -> WebhookHeaders,
    ) {
        let target = lock(&self.target).clone();
        let Some(Target { url, secret }) = target else {
            return;
        };
        for payload in payloads() {
            let body = payload.to_string();
            let event = QueuedEvent {
                url: url.clone(),
                headers: headers(&payload, hmac_sha256_hex(&secret, &body)),
                payload,
                body,
            };
            let mut state = lock(&self.state);
            let times = 1 + usize::from(fastrand::f64() < state.faults.duplicate_rate);
            for event in std::iter::repeat_n(event, times) {
                // The thread lives as long as the vendor.
                if lock(&self.queue).send(event).is_ok() {
                    state.pending += 1;
                }
            }
        }
    }

    pub(crate) fn set_faults(&self, faults: WebhookFaults) {
        lock(&self.state).faults = faults;
    }

    pub(crate) fn deliveries(&self) -> Vec<TicketWebhookDelivery> {
        lock(&self.state).sent.clone()
    }

    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).pending == 0
    }
}

fn send_all(receiver: &Receiver<QueuedEvent>, state: &Mutex<State>) {
    while let Ok(event) = receiver.recv() {
        let headers: Vec<(&str, &str)> = event
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let id_header = headers
            .iter()
            .find(|(name, _)| DELIVERY_ID_HEADERS.contains(name));
        let id = id_header.map_or("", |(_, id)| id);
        let retry_until_accepted = lock(state).faults.retry_until_accepted;
        send_with_retry(retry_until_accepted, || {
            let response = http_post(&event.url, &headers, &event.body);
            let status = response.as_ref().map(|(status, _)| *status);
            lock(state).sent.push(TicketWebhookDelivery {
                id: id.to_owned(),
                payload: event.payload.clone(),
                response,
            });
            status
        });
        lock(state).pending -= 1;
    }
}
