//! `/api/outbox`: what we owe the outside, and what was given up.

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminApiError, ApiError};
use crate::routing::{
    ApiResult, PathSegment, Routes, ok, one_of, operator, reject_other_methods, require_admin,
    with_app, without_param,
};
use domain::audit::Actor;
use domain::time::Timestamp;
use engine::app::App;
use engine::outbox_admin::{self, OutboxError};
use store::outbox::{self, OutboxEntry};

/// Routes of `/api/outbox`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "outbox").boxed();
    let each = path!("api" / "outbox" / PathSegment).boxed();
    let retrying = path!("api" / "outbox" / PathSegment / "retry").boxed();
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(with_app(app))
            .then(list)
            .boxed(),
        retrying
            .clone()
            .and(require_admin(app, Method::POST))
            .and(operator(app))
            .and(with_app(app))
            .then(retry)
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::DELETE))
            .and(operator(app))
            .and(with_app(app))
            .then(remove)
            .boxed(),
        reject_other_methods(&all, [Method::GET]),
        reject_other_methods(&without_param(&retrying), [Method::POST]),
        reject_other_methods(&without_param(&each), [Method::DELETE]),
    ])
}

async fn list(app: App) -> ApiResult {
    let read = app
        .store
        .read_long(|tx| Ok((outbox::pending(tx)?, outbox::dead(tx)?)));
    let (pending, dead) = read.await?;
    let views = |errands: &[OutboxEntry]| errands.iter().map(ErrandView::of).collect::<Vec<_>>();
    Ok(ok(
        &json!({"pending": views(&pending), "dead": views(&dead)}),
    ))
}

async fn retry(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    outbox_admin::retry(&app, by, number(&id)?).await?;
    Ok(ok(&json!({"retried": true})))
}

async fn remove(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    let removed = match number(&id) {
        Ok(seq) => outbox_admin::drop_entry(&app, by, seq).await,
        Err(unknown) => Err(unknown),
    };
    match removed {
        Ok(()) => Ok(ok(&json!({"deleted": true}))),
        Err(OutboxError::NotFound) => Err(AdminApiError::NothingDeleted.into()),
        Err(error) => Err(ApiError::from(error)),
    }
}

/// What is no number is no errand's.
fn number(id: &str) -> Result<u64, OutboxError> {
    id.parse().map_err(|_| OutboxError::NotFound)
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
    fn of(errand: &OutboxEntry) -> Self {
        Self {
            id: errand.seq.to_string(),
            lane: errand.queue_key.clone(),
            name: errand.effect.name(),
            attempts: errand.attempts,
            pushed_at: errand.pushed_at,
            due_at: errand.due_at,
            claimed_at: errand.claimed_at,
            last_error: errand.last_error.clone(),
        }
    }
}
