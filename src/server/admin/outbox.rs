//! `/api/outbox`: what we owe the outside, and what was given up.

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminFault, ApiError};
use crate::parts::{
    ApiResult, Routes, Segment, any_of, ok, one_of, only, operator, signed_in, with,
};
use domain::audit::Actor;
use domain::time::Timestamp;
use engine::app::App;
use engine::errands::{self, ErrandError};
use store::outbox::{self, Errand};

/// Routes of `/api/outbox`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "outbox").boxed();
    let each = path!("api" / "outbox" / Segment).boxed();
    let retrying = path!("api" / "outbox" / Segment / "retry").boxed();
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(list)
            .boxed(),
        retrying
            .clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(with(app))
            .then(retry)
            .boxed(),
        each.clone()
            .and(signed_in(app, Method::DELETE))
            .and(operator(app))
            .and(with(app))
            .then(remove)
            .boxed(),
        only(&all, [Method::GET]),
        only(&any_of(&retrying), [Method::POST]),
        only(&any_of(&each), [Method::DELETE]),
    ])
}

async fn list(app: App) -> ApiResult {
    let read = app
        .store
        .read_long(|tx| Ok((outbox::pending(tx)?, outbox::dead(tx)?)));
    let (pending, dead) = read.await?;
    let views = |errands: &[Errand]| errands.iter().map(ErrandView::of).collect::<Vec<_>>();
    Ok(ok(
        &json!({"pending": views(&pending), "dead": views(&dead)}),
    ))
}

async fn retry(Segment(id): Segment, by: Actor, app: App) -> ApiResult {
    errands::retry(&app, by, number(&id)?).await?;
    Ok(ok(&json!({"retried": true})))
}

async fn remove(Segment(id): Segment, by: Actor, app: App) -> ApiResult {
    let removed = match number(&id) {
        Ok(seq) => errands::drop(&app, by, seq).await,
        Err(unknown) => Err(unknown),
    };
    match removed {
        Ok(()) => Ok(ok(&json!({"deleted": true}))),
        Err(ErrandError::Unknown) => Err(AdminFault::NothingDeleted.into()),
        Err(error) => Err(ApiError::from(error)),
    }
}

/// What is no number is no errand's.
fn number(id: &str) -> Result<u64, ErrandError> {
    id.parse().map_err(|_| ErrandError::Unknown)
}

/// An errand on the wire. What it would say stays inside: that is strangers' text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrandView {
    id: String,
    lane: String,
    name: &'static str,
    attempts: u32,
    pushed_at: Timestamp,
    due_at: Timestamp,
    claimed_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl ErrandView {
    fn of(errand: &Errand) -> Self {
        Self {
            id: errand.seq.to_string(),
            lane: errand.lane.clone(),
            name: errand.effect.name(),
            attempts: errand.attempts,
            pushed_at: errand.pushed_at,
            due_at: errand.due_at,
            claimed_at: errand.claimed_at,
            last_error: errand.last_error.clone(),
        }
    }
}
