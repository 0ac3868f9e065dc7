//! `/api/poll`: asks the ticketing systems now rather than when the period is over.

use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::app::App;
use crate::http::parts::{ApiResult, Routes, accepted, one_of, only, signed_in, with};

/// Routes of `/api/poll`.
pub fn routes(app: &App) -> Routes {
    let poll = path!("api" / "poll").boxed();
    one_of([
        poll.clone()
            .and(signed_in(app, Method::POST))
            .and(with(app))
            .then(start)
            .boxed(),
        only(&poll, [Method::POST]),
    ])
}

async fn start(app: App) -> ApiResult {
    app.bells.poll.notify_one();
    Ok(accepted(&json!({"started": true})))
}
