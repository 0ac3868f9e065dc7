//! `/api/jobs/:id/steps`: what a run has reported, page by page.
//!
//! The body is written while it is sent: what it takes of memory is a piece, however large the steps are
//! and however slowly somebody reads. Steps are never removed, so no snapshot is held meanwhile.

use std::io;
use std::vec::IntoIter;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use warp::http::Method;
use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::{Reply, Response};
use warp::{Filter, path};

use super::jobs::{JobView, find_with_group};
use super::paging::{self, MAX_LIMIT, QueryParams, invalid};
use crate::error::{AdminApiError, ApiError};
use crate::routing::{
    ApiResult, PathSegment, Routes, json_text, one_of, reject_other_methods, require_admin,
    with_app, without_param,
};
use domain::ids::JobId;
use engine::app::App;
use store::steps::{self, StepPage};
use store::{StoreError, StoreResult};

/// Size from which a piece of the body is sent, in bytes.
const PIECE: usize = 64 << 10;

/// Routes of `/api/jobs/:id/steps`.
pub fn routes(app: &App) -> Routes {
    let steps = path!("api" / "jobs" / PathSegment / "steps").boxed();
    one_of([
        steps
            .clone()
            .and(require_admin(app, Method::GET))
            .and(warp::query::<QueryParams>())
            .and(with_app(app))
            .then(list)
            .boxed(),
        reject_other_methods(&without_param(&steps), [Method::GET]),
    ])
}

async fn list(PathSegment(id): PathSegment, query: QueryParams, app: App) -> ApiResult {
    let id = JobId::new(id);
    let limit = paging::parse_limit(&query, MAX_LIMIT)?;
    let (asked, log) = (id.clone(), app.log_tails.get(&id));
    // Every step of the job is looked at to find its place.
    let found = app.store.read_long(move |tx| {
        let Some((job, group)) = find_with_group(tx, &asked)? else {
            return Ok(Err(AdminApiError::JobNotFound));
        };
        let after = query.get("after").map(String::as_str);
        let Some(page) = steps::page(tx, &asked, after, limit)? else {
            return Ok(Err(invalid("after must be the id of a step of this run")));
        };
        let job = json!(JobView::of(&job, group));
        Ok(Ok((job, page)))
    });
    let (job, page) = found.await?.map_err(ApiError::from)?;
    let head = format!(r#"{{"job":{job},"log":{},"steps":["#, json!(log));
    let mut body = Body::new(app, id, head, page);
    // What is one piece is answered with its length, as the simplest client likes it.
    let first = body.next()?.unwrap_or_default();
    Ok(match body.tail {
        None => json_text(first),
        Some(_) => streamed(first, body),
    })
}

/// A body that is still to be sent.
struct Body {
    app: App,
    job: JobId,
    piece: String,
    ids: IntoIter<String>,
    tail: Option<String>,
}

impl Body {
    fn new(app: App, job: JobId, head: String, page: StepPage) -> Self {
        let (dropped, next) = (page.dropped, json!(page.next));
        let truncated = dropped > 0;
        let tail = format!(r#"],"truncated":{truncated},"dropped":{dropped},"next":{next}}}"#);
        Self {
            app,
            job,
            piece: head,
            ids: page.ids.into_iter(),
            tail: Some(tail),
        }
    }

    /// The next piece; None when all has been sent.
    fn next(&mut self) -> StoreResult<Option<Bytes>> {
        let Self {
            app,
            job,
            piece,
            ids,
            tail,
        } = self;
        app.store.read(|tx| {
            while piece.len() < PIECE
                && let Some(id) = ids.next()
            {
                let Some(step) = steps::get(tx, job, &id)? else {
                    continue;
                };
                // The head ends with the bracket of the list; what goes on after a piece needs its comma.
                if !piece.ends_with('[') {
                    piece.push(',');
                }
                piece.push_str(&json!(step).to_string());
            }
            Ok(())
        })?;
        if ids.len() == 0 {
            piece.extend(tail.take());
        }
        Ok(Some(std::mem::take(piece))
            .filter(|piece| !piece.is_empty())
            .map(Bytes::from))
    }
}

fn streamed(first: Bytes, body: Body) -> Response {
    let rest = stream::try_unfold(body, |mut body| async move {
        let piece = body.next().map_err(broken)?;
        Ok::<_, io::Error>(piece.map(|piece| (piece, body)))
    });
    let pieces = stream::iter([Ok(first)]).chain(rest);
    let mut response = warp::reply::stream(pieces).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The status has been sent already: the body breaks off.
fn broken(error: StoreError) -> io::Error {
    tracing::error!(%error, "Failed to read the steps of a run.");
    io::Error::other(error)
}
