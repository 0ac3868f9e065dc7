//! Every API request the town received, written as the real vendor would have seen it.
//!
//! Git transport and log downloads are not API requests and are left out. Credentials never enter:
//! `Authorization` keeps its scheme, and whether it was an App's own proof (a JWT) or a token:
//! each is good for other calls, and contract checkers look at it.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Map, Value};

use super::clock;
use super::faults::FakeService;
use super::http::HttpRequest;
use super::persistence::lock;

/// How many requests are remembered before the oldest is forgotten.
const REMEMBERED: usize = 50_000;

/// One request and the status it was answered with.
#[derive(Clone, Debug, Serialize)]
pub struct LoggedRequest {
    pub at: String,
    pub vendor: &'static str,
    pub method: String,
    /// With the vendor's public host, as contract checkers expect it.
    pub url: String,
    pub headers: Map<String, Value>,
    /// Parsed when it is JSON, else text; null when empty.
    pub body: Value,
    /// `None` when the connection was dropped without an answer.
    pub status: Option<u16>,
}

/// The list of requests. Clones share it.
#[derive(Clone, Default)]
pub struct RequestLog(Arc<Mutex<VecDeque<LoggedRequest>>>);

impl RequestLog {
    pub fn all(&self) -> Vec<LoggedRequest> {
        lock(&self.0).iter().cloned().collect()
    }

    pub fn for_service(&self, vendor: FakeService) -> Vec<LoggedRequest> {
        let mut all = self.all();
        all.retain(|request| request.vendor == vendor.name());
        all
    }

    pub fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// One JSON object a line.
    pub fn write_jsonl(&self, path: &Path) -> anyhow::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        for request in self.all() {
            serde_json::to_writer(&mut out, &request)?;
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    pub(crate) fn record(&self, vendor: FakeService, request: &HttpRequest, status: Option<u16>) {
        let entry = LoggedRequest {
            at: clock::iso(clock::now_ms()),
            vendor: vendor.name(),
            method: request.method.clone(),
            url: public_url(vendor, request),
            headers: headers(request),
            body: without_environment(body(request)),
            status,
        };
        let mut log = lock(&self.0);
        if log.len() >= REMEMBERED {
            log.pop_front();
        }
        log.push_back(entry);
    }
}

fn public_url(vendor: FakeService, request: &HttpRequest) -> String {
    let path = &request.path;
    let base = match vendor {
        FakeService::Linear => format!("https://api.linear.app{path}"),
        FakeService::GitHub => format!("https://api.github.com{path}"),
        FakeService::Git => format!("https://github.com{path}"),
        FakeService::Jira if path.starts_with("/ex/") => format!("https://api.atlassian.com{path}"),
        FakeService::Jira => format!("https://sandbox.atlassian.net{path}"),
        FakeService::Fly => format!("https://api.machines.dev{path}"),
        FakeService::Docker => format!("http://docker{path}"),
        FakeService::Chat => match path.strip_prefix("/teams") {
            Some(rest) => format!("https://sandbox.logic.azure.com/workflows{rest}"),
            None => format!(
                "https://hooks.slack.com/services{}",
                path.strip_prefix("/slack").unwrap_or(path)
            ),
        },
    };
    if request.query.is_empty() {
        base
    } else {
        format!("{base}?{}", request.query)
    }
}

fn headers(request: &HttpRequest) -> Map<String, Value> {
    request
        .headers
        .iter()
        .map(|(name, value)| {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let shown = match (name.as_str(), text.split_once(' ')) {
                // Masked so that what checks the form of a pair still finds one.
                ("authorization", Some(("Basic", _))) => {
                    let pair = BASE64.encode(b"redacted@sandbox.test:redacted");
                    format!("Basic {pair}")
                }
                ("authorization", Some((scheme, token))) if is_jwt(token) => {
                    format!("{scheme} eyJredacted.redacted.redacted")
                }
                ("authorization", Some((scheme, _))) => format!("{scheme} [redacted]"),
                ("authorization", None) => "[redacted]".to_owned(),
                _ => text,
            };
            (name.as_str().to_owned(), Value::String(shown))
        })
        .collect()
}

fn is_jwt(token: &str) -> bool {
    token.starts_with("eyJ") && token.matches('.').count() == 2
}

/// A machine is made with its secrets in its environment; their names are enough for a log.
fn without_environment(mut body: Value) -> Value {
    const MASK: &str = "[redacted]";
    if let Some(env) = body
        .pointer_mut("/config/env")
        .and_then(Value::as_object_mut)
    {
        env.values_mut().for_each(|value| *value = MASK.into());
    }
    if let Some(env) = body.get_mut("Env").and_then(Value::as_array_mut) {
        for pair in env {
            let text = pair.as_str().unwrap_or_default();
            let name = text.split_once('=').map_or(text, |(name, _)| name);
            *pair = format!("{name}={MASK}").into();
        }
    }
    body
}

fn body(request: &HttpRequest) -> Value {
    if request.body.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&request.body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&request.body).into_owned()))
}
