//! Incoming webhooks of Slack and Teams: messages are validated and stored.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock;
use super::http::{HttpRequest, HttpResponse};
use super::persistence::PersistedModel;

/// Fake chat vendors. Clones share their state.
#[derive(Clone)]
pub struct FakeChat(Arc<PersistedModel<Vec<ReceivedChatMessage>>>);

/// Accepted chat message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReceivedChatMessage {
    /// Arrival time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Chat vendor: `slack` or `teams`.
    pub kind: String,
    /// Message as sent.
    pub body: Value,
}

impl FakeChat {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(PersistedModel::open(dir.join("chat.json"))?)))
    }

    /// Returns the accepted messages, oldest first.
    pub fn messages(&self) -> Vec<ReceivedChatMessage> {
        self.0.read(Clone::clone)
    }

    pub(crate) fn keep_in_memory(&self) {
        self.0.keep_in_memory();
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.0.flush()
    }

    pub(crate) fn rate_limited_response(left: Duration) -> HttpResponse {
        HttpResponse::text(429, "rate_limited").header("retry-after", left.as_secs().max(1))
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let kind = segments.first().map(String::as_str).unwrap_or_default();
        if request.method != "POST" {
            return HttpResponse::text(405, "method_not_allowed");
        }
        let Some(body) = request.json().filter(Value::is_object) else {
            return HttpResponse::text(400, "invalid_payload");
        };
        match kind {
            "slack" => {
                let has = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
                if !(has("text") || has("blocks") || has("attachments")) {
                    return HttpResponse::text(400, "no_text");
                }
                self.store(kind, body);
                HttpResponse::text(200, "ok")
            }
            "teams" => {
                self.store(kind, body);
                HttpResponse::empty(202)
            }
            _ => HttpResponse::text(404, "no_service"),
        }
    }

    fn store(&self, kind: &str, body: Value) {
        self.0.update(|messages| {
            messages.push(ReceivedChatMessage {
                at_ms: clock::now_ms(),
                kind: kind.to_owned(),
                body,
            });
        });
    }
}
