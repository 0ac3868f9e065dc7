//! What the vendors of the town send out: small signed POSTs to addresses on loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::Value;

use super::persistence::lock;

/// How soon is what nobody has taken sent again? Vendors wait a minute and longer.
const AGAIN: Duration = Duration::from_millis(60);

/// How long is it tried?
const PATIENCE: Duration = Duration::from_secs(50);

/// What goes wrong with webhooks, by chance in 0..=1, and what is done about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookFaults {
    /// Never sent. Not so with tickets.
    pub loss_rate: f64,
    /// Sent again, under the same delivery id.
    pub duplicate_rate: f64,
    /// Sent in any order among those of about the same time. Not so with tickets.
    pub reorder: bool,
    /// Sent again, under the same delivery id, until it is answered that it was taken.
    pub retry_until_accepted: bool,
}

/// Sends once, or until it is taken; `send` answers the status.
pub(crate) fn send_with_retry(is_insistent: bool, mut send: impl FnMut() -> Option<u16>) {
    let began = Instant::now();
    loop {
        let is_taken = send().is_some_and(|status| (200..300).contains(&status));
        if is_taken || !is_insistent || began.elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

/// HMAC-SHA256 of a body, in hexadecimal.
pub(crate) fn hmac_sha256_hex(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref())
}

/// A POST as small as it can be. None when nobody answered; else status and body.
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
    let mut told = String::new();
    stream.read_to_string(&mut told).ok()?;
    let status = told.split(' ').nth(1)?.parse().ok()?;
    let answer = told.split_once("\r\n\r\n").map_or("", |(_, answer)| answer);
    Some((status, answer.to_owned()))
}

/// An event of a ticketing vendor as it was sent, and how it was answered; none when nobody did.
#[derive(Clone, Debug)]
pub struct TicketWebhookDelivery {
    /// The vendor's name for the delivery.
    pub id: String,
    pub payload: Value,
    pub response: Option<(u16, String)>,
}

/// Where a ticketing vendor's events go: nowhere until it is told.
pub(crate) struct TicketWebhookSender {
    target: Mutex<Option<Target>>,
    queue: Mutex<Sender<Outgoing>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    dial: WebhookFaults,
    sent: Vec<TicketWebhookDelivery>,
    under_way: usize,
}

#[derive(Clone)]
struct Target {
    url: String,
    secret: String,
}

/// The headers that name a delivery.
const NAMING: [&str; 2] = ["Linear-Delivery", "X-Atlassian-Webhook-Identifier"];

/// What a vendor puts above its events.
pub(crate) type WebhookHeaders = Vec<(&'static str, String)>;

/// One event, ready to leave.
#[derive(Clone)]
struct Outgoing {
    url: String,
    headers: WebhookHeaders,
    payload: Value,
    body: String,
}

impl TicketWebhookSender {
    pub fn start() -> Self {
        let (queue, due) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // It ends with the vendor, whose queue it reads.
        std::thread::spawn(move || send_all(&due, &shared));
        Self {
            target: Mutex::default(),
            queue: Mutex::new(queue),
            state,
        }
    }

    pub fn set_target(&self, url: &str, secret: &str) {
        *lock(&self.target) = Some(Target {
            url: url.to_owned(),
            secret: secret.to_owned(),
        });
    }

    /// Sends what there is to tell, if it is told to anybody: `headers` gets the payload and its
    /// signature.
    pub fn enqueue(
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
            let event = Outgoing {
                url: url.clone(),
                headers: headers(&payload, hmac_sha256_hex(&secret, &body)),
                payload,
                body,
            };
            let mut state = lock(&self.state);
            let times = 1 + usize::from(fastrand::f64() < state.dial.duplicate_rate);
            for event in std::iter::repeat_n(event, times) {
                // The thread lives as long as the vendor.
                if lock(&self.queue).send(event).is_ok() {
                    state.under_way += 1;
                }
            }
        }
    }

    pub fn set_faults(&self, dial: WebhookFaults) {
        lock(&self.state).dial = dial;
    }

    pub fn deliveries(&self) -> Vec<TicketWebhookDelivery> {
        lock(&self.state).sent.clone()
    }

    pub fn is_idle(&self) -> bool {
        lock(&self.state).under_way == 0
    }
}

fn send_all(due: &Receiver<Outgoing>, state: &Mutex<State>) {
    while let Ok(event) = due.recv() {
        let headers: Vec<(&str, &str)> = event
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let named = headers.iter().find(|(name, _)| NAMING.contains(name));
        let id = named.map_or("", |(_, id)| id);
        let is_insistent = lock(state).dial.retry_until_accepted;
        send_with_retry(is_insistent, || {
            let answered = http_post(&event.url, &headers, &event.body);
            let status = answered.as_ref().map(|(status, _)| *status);
            lock(state).sent.push(TicketWebhookDelivery {
                id: id.to_owned(),
                payload: event.payload.clone(),
                response: answered,
            });
            status
        });
        lock(state).under_way -= 1;
    }
}
