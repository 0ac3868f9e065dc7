//! `GET /`: health check. Responds 503 with reasons if the service is degraded.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::routing::{Access, ApiResult, Route, ok};
use engine::app::App;

/// Routes of `/`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/", "health", show).access(Access::Public)]
}

async fn show(app: App) -> ApiResult {
    let mut reasons = Vec::new();
    if !app.core.store().is_healthy() {
        reasons.push("the store cannot write".to_owned());
    }
    reasons.extend(app.core.store().disk_space().problem());
    let mut state = Map::new();
    let status = if reasons.is_empty() { "ok" } else { "degraded" };
    state.insert("status".to_owned(), Value::from(status));
    state.insert("polls".to_owned(), json!(app.live.heartbeats.polls()));
    state.insert(
        "lastPollAt".to_owned(),
        json!(app.live.heartbeats.last_poll_at()),
    );
    state.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    if reasons.is_empty() {
        return Ok(ok(&state));
    }
    state.insert("reasons".to_owned(), json!(reasons));
    Err(ApiError::degraded(state))
}
