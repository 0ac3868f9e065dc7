//! `/api/poll`: asks the ticketing systems now rather than when the period is over.

use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::parts::{ApiResult, Routes, accepted, one_of, only, operator, signed_in, with};
use domain::audit::{Action, Actor};
use engine::app::App;
use store::audit;

/// Routes of `/api/poll`.
pub fn routes(app: &App) -> Routes {
    let poll = path!("api" / "poll").boxed();
    one_of([
        poll.clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(with(app))
            .then(start)
            .boxed(),
        only(&poll, [Method::POST]),
    ])
}

async fn start(by: Actor, app: App) -> ApiResult {
    let (deed, now) = (by.did(Action::PollAsked, ""), app.now());
    let noted = app.store.write(move |tx| audit::append(tx, &deed, now));
    noted.await?;
    app.bells.poll.notify_one();
    Ok(accepted(&json!({"started": true})))
}
