//! `/api/poll`: starts a poll of the ticketing systems at once.

use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::routing::{
    ApiResult, Routes, accepted, one_of, operator, reject_other_methods, require_admin, with_app,
};
use domain::audit::Actor;
use engine::admin::poll;
use engine::app::App;

/// Routes of `/api/poll`.
pub(super) fn routes(app: &App) -> Routes {
    let poll = path!("api" / "poll").boxed();
    one_of([
        poll.clone()
            .and(require_admin(app, Method::POST))
            .and(operator(app))
            .and(with_app(app))
            .then(start)
            .boxed(),
        reject_other_methods(&poll, [Method::POST]),
    ])
}

async fn start(by: Actor, app: App) -> ApiResult {
    poll::request(&app, by).await?;
    Ok(accepted(&json!({"started": true})))
}
