//! `/api/poll`: starts a poll of the ticketing systems at once.

use serde_json::json;

use crate::routing::{ApiResult, Route, accepted};
use domain::audit::Actor;
use engine::admin::poll;
use engine::app::App;

/// Routes of `/api/poll`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::post("/api/poll", "poll", start)]
}

async fn start(by: Actor, app: App) -> ApiResult {
    poll::request(&app, by).await?;
    Ok(accepted(&json!({"started": true})))
}
