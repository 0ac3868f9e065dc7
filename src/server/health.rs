//! `GET /`: health check. Responds 503 with reasons if the service is degraded.

use serde_json::{Map, Value, json};
use warp::Filter;
use warp::http::Method;

use super::error::ApiError;
use super::routing::{ApiResult, Routes, method, ok, one_of, reject_other_methods, with_app};
use engine::app::App;

/// Routes of `/`.
pub(crate) fn routes(app: &App) -> Routes {
    let root = warp::path::end().boxed();
    one_of([
        root.clone()
            .and(method(Method::GET))
            .and(with_app(app))
            .then(show)
            .boxed(),
        reject_other_methods(&root, [Method::GET]),
    ])
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
