//! What the vendors of the town send out: small signed POSTs to addresses on loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::Value;

use super::state::lock;

/// HMAC-SHA256 of a body, in hexadecimal.
pub(crate) fn signature(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref())
}

/// A POST as small as it can be. None when nobody answered; else status and body.
pub(crate) fn post(url: &str, headers: &[(&str, &str)], body: &str) -> Option<(u16, String)> {
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
pub struct TicketEvent {
    pub payload: Value,
    pub answered: Option<(u16, String)>,
}

/// Where a ticketing vendor's events go: nowhere until it is told.
pub(crate) struct TicketHook {
    target: Mutex<Option<Target>>,
    queue: Mutex<Sender<Outgoing>>,
    sent: Arc<Mutex<Vec<TicketEvent>>>,
}

#[derive(Clone)]
struct Target {
    url: String,
    secret: String,
}

/// What a vendor puts above its events.
pub(crate) type Headers = Vec<(&'static str, String)>;

/// One event, ready to leave.
struct Outgoing {
    url: String,
    headers: Headers,
    payload: Value,
    body: String,
}

impl TicketHook {
    pub fn start() -> Self {
        let (queue, due) = channel();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let shared = sent.clone();
        // It ends with the vendor, whose queue it reads.
        std::thread::spawn(move || send_all(&due, &shared));
        Self {
            target: Mutex::default(),
            queue: Mutex::new(queue),
            sent,
        }
    }

    pub fn aim(&self, url: &str, secret: &str) {
        *lock(&self.target) = Some(Target {
            url: url.to_owned(),
            secret: secret.to_owned(),
        });
    }

    /// Sends what there is to tell, if it is told to anybody: `headers` gets the payload and its
    /// signature.
    pub fn tell(
        &self,
        payloads: impl FnOnce() -> Vec<Value>,
        headers: impl Fn(&Value, String) -> Headers,
    ) {
        let target = lock(&self.target).clone();
        let Some(Target { url, secret }) = target else {
            return;
        };
        for payload in payloads() {
            let body = payload.to_string();
            let event = Outgoing {
                url: url.clone(),
                headers: headers(&payload, signature(&secret, &body)),
                payload,
                body,
            };
            // The thread lives as long as the vendor.
            let _ = lock(&self.queue).send(event);
        }
    }

    pub fn sent(&self) -> Vec<TicketEvent> {
        lock(&self.sent).clone()
    }
}

fn send_all(due: &Receiver<Outgoing>, sent: &Mutex<Vec<TicketEvent>>) {
    while let Ok(event) = due.recv() {
        let headers: Vec<(&str, &str)> = event
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let answered = post(&event.url, &headers, &event.body);
        lock(sent).push(TicketEvent {
            payload: event.payload,
            answered,
        });
    }
}
