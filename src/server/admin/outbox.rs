//! `/api/outbox`: pending and failed outbox entries. See docs/behaviour.md#effects-and-retries.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::audit::Actor;
use domain::time::Timestamp;
use engine::admin::outbox::{self, OutboxError};
use engine::app::App;
use store::outbox::OutboxEntry;

/// Routes of `/api/outbox`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/outbox", "listOutbox", list).mentions::<EntryView>(),
        Route::delete("/api/outbox/:id", "dropEffect", remove),
        Route::post("/api/outbox/:id/retry", "retryEffect", retry),
    ]
}

async fn list(app: App) -> ApiResult {
    let read = app
        .core
        .store()
        .read_long(|tx| Ok((store::outbox::pending(tx)?, store::outbox::dead(tx)?)));
    let (pending, dead) = read.await?;
    let views = |entries: &[OutboxEntry]| entries.iter().map(EntryView::of).collect::<Vec<_>>();
    Ok(ok(
        &json!({"pending": views(&pending), "dead": views(&dead)}),
    ))
}

async fn retry(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    outbox::retry(&app.core, by, parse_seq(&id)?).await?;
    Ok(ok(&json!({"retried": true})))
}

async fn remove(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    let removed = match parse_seq(&id) {
        Ok(seq) => outbox::drop_entry(&app, by, seq).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(ok(&json!({"deleted": true}))),
        Err(OutboxError::NotFound) => Err(AdminApiError::NothingDeleted.into()),
        Err(error) => Err(ApiError::from(error)),
    }
}

/// Parses the id of an outbox entry. Anything but a number is an unknown id.
fn parse_seq(id: &str) -> Result<u64, OutboxError> {
    id.parse().map_err(|_| OutboxError::NotFound)
}

/// Outbox entry without its content, which contains untrusted text.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Effect")]
struct EntryView {
    id: String,
    #[serde(rename = "lane")]
    /// Queue key. Effects with the same key are performed in order.
    queue_key: String,
    #[schemars(extend("enum" = [
        "start run",
        "end run",
        "destroy machine",
        "move marker",
        "comment on ticket",
        "log excerpt on ticket",
        "comment on pull request",
        "set draft flag",
        "chat message",
        "sync workflows",
    ]))]
    name: &'static str,
    attempts: u32,
    pushed_at: Timestamp,
    due_at: Timestamp,
    /// Start of the current attempt.
    claimed_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl EntryView {
    fn of(entry: &OutboxEntry) -> Self {
        Self {
            id: entry.seq.to_string(),
            queue_key: entry.queue_key.clone(),
            name: entry.effect.name(),
            attempts: entry.attempts,
            pushed_at: entry.pushed_at,
            due_at: entry.due_at,
            claimed_at: entry.claimed_at,
            last_error: entry.last_error.clone(),
        }
    }
}
