//! `/api/jobs/:id/steps`: steps of a job, with paging. See docs/behaviour.md#steps.
//!
//! Large bodies are streamed: each response uses the memory of one chunk, regardless of the size of the
//! steps and the speed of the client. Steps are never deleted, so no snapshot is held while streaming.

use std::io;
use std::vec::IntoIter;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::{Reply, Response};

use super::jobs::{JobView, find_with_group};
use super::paging::{self, MAX_LIMIT, invalid};
use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, PathSegment, QueryParams, Route, json_text};
use domain::ids::JobId;
use domain::report::{StepEnd, StepRecord};
use engine::app::App;
use store::steps::{self, StepPage};
use store::{StoreError, StoreResult};

/// Minimum size of a chunk of the body, in bytes.
const CHUNK_SIZE: usize = 64 << 10;

/// Routes of `/api/jobs/:id/steps`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/jobs/:jobId/steps", "listSteps", list).mentions::<StepRecord>()]
}

async fn list(PathSegment(id): PathSegment, query: QueryParams, app: App) -> ApiResult {
    let id = JobId::new(id);
    let limit = paging::parse_limit(&query, MAX_LIMIT)?;
    let (job_id, log) = (id.clone(), app.live.log_tails.get(&id));
    // Scans all steps of the job to determine their order.
    let found = app.core.store().read_long(move |tx| {
        let Some((job, group)) = find_with_group(tx, &job_id)? else {
            return Ok(Err(AdminApiError::JobNotFound));
        };
        let after = query.get("after").map(String::as_str);
        let Some(page) = steps::page(tx, &job_id, after, limit)? else {
            return Ok(Err(invalid("after must be the id of a step of this run")));
        };
        let (end, job) = (job.step_end(), json!(JobView::of(&job, group)));
        Ok(Ok((end, job, page)))
    });
    let (end, job, page) = found.await?.map_err(ApiError::from)?;
    let head = format!(r#"{{"job":{job},"log":{},"steps":["#, json!(log));
    let mut body = StepsBody::new(app, id, end, head, page);
    // A body of one chunk is sent with a Content-Length.
    let first = body.next()?.unwrap_or_default();
    Ok(match body.tail {
        None => json_text(first),
        Some(_) => streamed(first, body),
    })
}

/// Body that is generated while it is sent.
struct StepsBody {
    app: App,
    job: JobId,
    /// End of the job's open steps, if it has ended.
    end: Option<StepEnd>,
    chunk: String,
    ids: IntoIter<String>,
    tail: Option<String>,
}

impl StepsBody {
    fn new(app: App, job: JobId, end: Option<StepEnd>, head: String, page: StepPage) -> Self {
        let (dropped, next) = (page.dropped, json!(page.next));
        let truncated = dropped > 0;
        let tail = format!(r#"],"truncated":{truncated},"dropped":{dropped},"next":{next}}}"#);
        Self {
            app,
            job,
            end,
            chunk: head,
            ids: page.ids.into_iter(),
            tail: Some(tail),
        }
    }

    /// Returns the next chunk; `None` at the end.
    fn next(&mut self) -> StoreResult<Option<Bytes>> {
        let Self {
            app,
            job,
            end,
            chunk,
            ids,
            tail,
        } = self;
        app.core.store().read(|tx| {
            // The first part alone may be larger than a chunk.
            while (chunk.len() < CHUNK_SIZE || chunk.ends_with('['))
                && let Some(id) = ids.next()
            {
                let Some(mut step) = steps::get(tx, job, &id)? else {
                    continue;
                };
                // Older versions kept the open steps of an ended job.
                if let Some(end) = *end {
                    step.close(end);
                }
                // A step needs a comma before it unless it is the first, directly after the opening bracket.
                if !chunk.ends_with('[') {
                    chunk.push(',');
                }
                chunk.push_str(&json!(step).to_string());
            }
            Ok(())
        })?;
        if ids.len() == 0 {
            chunk.extend(tail.take());
        }
        Ok(Some(std::mem::take(chunk))
            .filter(|chunk| !chunk.is_empty())
            .map(Bytes::from))
    }
}

fn streamed(first: Bytes, body: StepsBody) -> Response {
    let rest = stream::try_unfold(body, |mut body| async move {
        let chunk = body.next().map_err(abort)?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, body)))
    });
    let chunks = stream::iter([Ok(first)]).chain(rest);
    let mut response = warp::reply::stream(chunks).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Logs the error and aborts the body, because the status has already been sent.
fn abort(error: StoreError) -> io::Error {
    tracing::error!(%error, "Failed to read the steps of a run.");
    io::Error::other(error)
}
