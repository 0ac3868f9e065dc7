//! Log of every API request that the fake vendors received, with the URL of the real vendor.
//!
//! Git transport and log downloads are not API requests and are not logged. Credentials are never
//! logged: of `Authorization` only the scheme is kept, and whether the credential was a JWT of the
//! App or a token, because contract checks need to distinguish these.

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

/// Maximum number of logged requests; the oldest is dropped first.
const MAX_REQUESTS: usize = 50_000;

/// Request with the status of its response.
#[derive(Clone, Debug, Serialize)]
pub struct LoggedRequest {
    /// Time of the request, as `2026-11-20T23:36:11.093Z`.
    pub at: String,
    /// Service name, see [`FakeService::name`].
    pub vendor: &'static str,
    /// HTTP method.
    pub method: String,
    /// Full URL with the vendor's public host, as contract checks expect it.
    pub url: String,
    /// Request headers with credentials redacted.
    pub headers: Map<String, Value>,
    /// Body as JSON, or as text if it is not JSON; null if it is empty.
    pub body: Value,
    /// Status of the response; `None` if the connection was dropped without one.
    pub status: Option<u16>,
}

/// List of logged requests. Clones share it.
#[derive(Clone, Default)]
pub struct RequestLog(Arc<Mutex<VecDeque<LoggedRequest>>>);

impl RequestLog {
    /// Returns all logged requests, oldest first.
    pub fn all(&self) -> Vec<LoggedRequest> {
        lock(&self.0).iter().cloned().collect()
    }

    /// Returns the requests of one service, oldest first.
    pub fn for_service(&self, vendor: FakeService) -> Vec<LoggedRequest> {
        let mut all = self.all();
        all.retain(|request| request.vendor == vendor.name());
        all
    }

    /// Returns the number of logged requests.
    pub fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Returns whether no request is logged.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all logged requests.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Writes the log to a file, one JSON object per line.
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
            body: redact_environment(body(request)),
            status,
        };
        self.add(entry);
    }

    pub(crate) fn add(&self, request: LoggedRequest) {
        let mut log = lock(&self.0);
        if log.len() >= MAX_REQUESTS {
            log.pop_front();
        }
        log.push_back(request);
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
        FakeService::Kubernetes => format!("https://kubernetes.default.svc{path}"),
        FakeService::Bucket => format!("https://s3.amazonaws.com{path}"),
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
            let redacted = match (name.as_str(), text.split_once(' ')) {
                // Redacted to a valid pair, so that format checks still pass.
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
            (name.as_str().to_owned(), Value::String(redacted))
        })
        .collect()
}

fn is_jwt(token: &str) -> bool {
    token.starts_with("eyJ") && token.matches('.').count() == 2
}

/// Redacts the environment of a machine or container, which contains secrets. Names are kept.
fn redact_environment(mut body: Value) -> Value {
    const MASK: &str = "[redacted]";
    for place in ["/config/env", "/stringData"] {
        if let Some(env) = body.pointer_mut(place).and_then(Value::as_object_mut) {
            env.values_mut().for_each(|value| *value = MASK.into());
        }
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
    // A build context holds a program of many megabytes.
    if request.header("content-type") == Some("application/x-tar") {
        return format!("tar archive of {} bytes", request.body.len()).into();
    }
    serde_json::from_slice(&request.body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&request.body).into_owned()))
}
