//! `/api/jobs/:id/cancel` and `/api/jobs/:id/retry`: control of runs. See
//! docs/behaviour.md#cancel-and-retry.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, accepted, ok, parse_json};
use domain::audit::Actor;
use engine::app::App;
use engine::control;

/// Routes that control runs. Each also takes the id or key of an issue in place of a job id.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/jobs/:jobId/cancel", "cancelJob", cancel).body(),
        Route::post("/api/jobs/:jobId/retry", "retryJob", retry).body(),
    ]
}

async fn cancel(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let is_retry = match parse_options(&body)?.get("retry") {
        None => false,
        Some(Value::Bool(is_retry)) => *is_retry,
        Some(_) => return Err(AdminApiError::RetryNotBoolean.into()),
    };
    let job = control::cancel(&app, by, named, is_retry).await?;
    Ok(ok(&json!({"cancelled": true, "jobId": job})))
}

async fn retry(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    parse_options(&body)?;
    control::retry(&app, by, &named).await?;
    Ok(accepted(&json!({"retrying": true})))
}

/// Parses a body of options, all of which are optional. An empty body has none.
pub(super) fn parse_options(body: &[u8]) -> Result<Map<String, Value>, AdminApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match parse_json(body) {
        Some(Value::Object(options)) => Ok(options),
        _ => Err(AdminApiError::InvalidBody),
    }
}
