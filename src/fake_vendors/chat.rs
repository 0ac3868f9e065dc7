//! The chat vendors' incoming webhooks: they take a message and keep it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock;
use super::http::{Reply, Request};
use super::state::Shelf;

/// The stand-in chat vendors. Clones are the same ones.
#[derive(Clone)]
pub struct Chat(Arc<Shelf<Vec<Message>>>);

/// One accepted message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    pub at_ms: i64,
    /// `slack` or `teams`.
    pub kind: String,
    pub body: Value,
}

impl Chat {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Shelf::open(dir.join("chat.json"))?)))
    }

    /// Accepted messages, oldest first.
    pub fn messages(&self) -> Vec<Message> {
        self.0.read(Clone::clone)
    }

    pub(crate) fn keep_in_memory(&self) {
        self.0.keep_in_memory();
    }

    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.0.settle()
    }

    pub(crate) fn rate_limited(left: Duration) -> Reply {
        Reply::text(429, "rate_limited").header("retry-after", left.as_secs().max(1))
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let segments = request.segments();
        let kind = segments.first().map(String::as_str).unwrap_or_default();
        if request.method != "POST" {
            return Reply::text(405, "method_not_allowed");
        }
        let Some(body) = request.json().filter(Value::is_object) else {
            return Reply::text(400, "invalid_payload");
        };
        match kind {
            "slack" => {
                let says = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
                if !(says("text") || says("blocks") || says("attachments")) {
                    return Reply::text(400, "no_text");
                }
                self.keep(kind, body);
                Reply::text(200, "ok")
            }
            "teams" => {
                self.keep(kind, body);
                Reply::empty(202)
            }
            _ => Reply::text(404, "no_service"),
        }
    }

    fn keep(&self, kind: &str, body: Value) {
        self.0.change(|messages| {
            messages.push(Message {
                at_ms: clock::now_ms(),
                kind: kind.to_owned(),
                body,
            });
        });
    }
}
