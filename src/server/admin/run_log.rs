//! `/api/jobs/:id/log`: the log of a run. See docs/behaviour.md#log-of-a-run.

use warp::http::header::{HeaderName, HeaderValue};

use super::paging::invalid;
use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, QueryParams, Route, attachment, plain_text};
use domain::ids::JobId;
use domain::job::Job;
use engine::app::App;
use engine::run_logs;
use store::jobs;

/// Offset of the end of the text.
const SIZE: HeaderName = HeaderName::from_static("x-log-size");

/// Offset of the first kept byte of the text.
const START: HeaderName = HeaderName::from_static("x-log-start");

/// Routes of `/api/jobs/:id/log`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/jobs/:jobId/log", "readRunLog", read)]
}

async fn read(PathSegment(id): PathSegment, query: QueryParams, app: App) -> ApiResult {
    let id = JobId::new(id);
    let offset = match query.get("offset") {
        None => 0,
        Some(offset) => offset
            .parse()
            .map_err(|_| invalid("offset must be a whole number"))?,
    };
    let found = app.core.store().read_long(move |tx| {
        let Some(job) = jobs::get(tx, &id)? else {
            return Ok(Err(AdminApiError::JobNotFound));
        };
        let log = run_logs::read(tx, &id, offset)?.ok_or(AdminApiError::NoLog);
        Ok(log.map(|log| (job, log)))
    });
    let (job, log) = found.await??;
    let mut response = match query.get("download").map(String::as_str) {
        Some("1") => attachment(&file_name(&job), log.text),
        _ => plain_text(log.text),
    };
    let headers = response.headers_mut();
    headers.insert(SIZE, HeaderValue::from(log.log.end));
    headers.insert(START, HeaderValue::from(log.log.start));
    Ok(response)
}

/// File name of a log: issue, kind and number of the dispatch.
fn file_name(job: &Job) -> String {
    let kind = job.kind.as_str();
    let name = format!("{}-{kind}-{}.log", job.issue.key, job.dispatch_number);
    name.replace(
        |c: char| !c.is_ascii_alphanumeric() && !"-._".contains(c),
        "_",
    )
}
