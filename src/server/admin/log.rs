//! `/api/log`: dispatch log, newest first. See docs/behaviour.md#dispatch-log.

use std::collections::{BTreeSet, HashMap};

use warp::http::HeaderValue;
use warp::http::header::LINK;
use warp::reply::Response;

use super::jobs::{JobGroupStatus, JobView};
use super::paging::{self, given, invalid, parse_text, parse_time};
use crate::error::AdminApiError;
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::ids::{IssueId, JobId, TeamKey};
use domain::job::{Job, JobKind};
use domain::job_filter::{JobFilter, StatusFilter};
use engine::app::App;
use store::job_index;
use store::jobs::DISPATCH_LOG_SIZE;

/// Routes of `/api/log`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/log", "dispatchLog", list).returns::<Vec<JobView<'_>>>()]
}

async fn list(query: QueryParams, app: App) -> ApiResult {
    let limit = paging::parse_limit(&query, DISPATCH_LOG_SIZE)?;
    let filter = parse_filter(&query)?;
    let before = parse_before(&query)?;
    let read = app.core.store().read_long(move |tx| {
        let page = job_index::page(tx, &filter, before.as_ref(), limit)?;
        let mut groups = HashMap::new();
        let issues: BTreeSet<&IssueId> = page.jobs.iter().map(|job| &job.issue.id).collect();
        for issue in issues {
            JobGroupStatus::of_issue(tx, issue, &mut groups)?;
        }
        Ok((page, groups))
    });
    let (page, groups) = read.await?;
    let group_of = |job: &Job| groups.get(&job.group).copied();
    let views: Vec<JobView<'_>> = page
        .jobs
        .iter()
        .map(|job| JobView::of(job, group_of(job).unwrap_or_default()))
        .collect();
    let response = ok(&views);
    Ok(match page.next {
        Some(next) => with_next_page(response, query, &next),
        None => response,
    })
}

/// Adds the address of the next page: the same query, before the last job that was read.
fn with_next_page(mut response: Response, mut query: QueryParams, next: &JobId) -> Response {
    query.insert("before".to_owned(), next.to_string());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(query)
        .finish();
    let link = format!("</api/log?{query}>; rel=\"next\"");
    if let Ok(link) = HeaderValue::from_str(&link) {
        response.headers_mut().insert(LINK, link);
    }
    response
}

fn parse_filter(query: &QueryParams) -> Result<JobFilter, AdminApiError> {
    let statuses = parse_list(query, "status", StatusFilter::parse, || {
        format!("status must be a list of {}", StatusFilter::NAMES)
    })?;
    let kinds = parse_list(query, "kind", JobKind::parse, || {
        let names = JobKind::ALL.map(JobKind::as_str).join(", ");
        format!("kind must be a list of {names}")
    })?;
    let text = parse_text(query, "q")?.map(str::trim);
    Ok(JobFilter {
        statuses,
        excludes_cancelled: !parse_bool(query, "cancelled")?,
        excludes_shadow: !parse_bool(query, "shadow")?,
        kinds,
        team: given(query, "team").map(TeamKey::from),
        issue: given(query, "issue").map(str::to_owned),
        text: text.filter(|text| !text.is_empty()).map(str::to_owned),
        from: parse_time(query, "from")?,
        to: parse_time(query, "to")?,
        ended_from: parse_time(query, "endedFrom")?,
        ended_to: parse_time(query, "endedTo")?,
    })
}

/// Parses `true` or `false`. An absent one is true.
fn parse_bool(query: &QueryParams, name: &str) -> Result<bool, AdminApiError> {
    match given(query, name) {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(invalid(&format!("{name} must be true or false"))),
    }
}

/// Parses values that are separated by commas.
fn parse_list<T>(
    query: &QueryParams,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    rule: impl Fn() -> String,
) -> Result<Vec<T>, AdminApiError> {
    let values = given(query, name).into_iter();
    let parsed = values.flat_map(|list| list.split(',')).map(|value| {
        let value = parse(value);
        value.ok_or_else(|| AdminApiError::Invalid(rule()))
    });
    parsed.collect()
}

/// Parses `before`. Rejects what cannot be an id: if the first page were returned instead, a client that reads
/// page by page would never finish.
fn parse_before(query: &QueryParams) -> Result<Option<JobId>, AdminApiError> {
    let Some(text) = query.get("before") else {
        return Ok(None);
    };
    let is_id = !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_id {
        true => Ok(Some(JobId::from(text.as_str()))),
        false => Err(invalid("before must be the id of a job")),
    }
}
