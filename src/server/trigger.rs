//! `POST /trigger/gap-fill`: starts a gap-fill run on a pull request. See docs/behaviour.md#gap-fill-trigger.
//!
//! Called by the workflow `comment-trigger.yml` of the target repository after it has checked the
//! permission of the commenter. Authenticated by `GAP_FILL_TRIGGER_SECRET`, not by an admin token.

use std::future::ready;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::filters::BoxedFilter;
use warp::http::Method;
use warp::reject::Rejection;
use warp::{Filter, path};

use super::error::{ApiError, TriggerApiError};
use super::routing::{
    ApiResult, MAX_BODY, Routes, authorization, body, method, ok, one_of, parse_json,
    reject_other_methods, with_app,
};
use domain::crypto::signature::bearer_token_matches;
use domain::json_number::non_negative_integer;
use engine::app::App;
use engine::gap_fill::{self, GapFillOutcome, GapFillRequest};

/// Routes of `/trigger`.
pub(crate) fn routes(app: &App) -> Routes {
    let gap_fill = path!("trigger" / "gap-fill").boxed();
    one_of([
        gap_fill
            .clone()
            .and(method(Method::POST))
            .and(require_secret(app))
            .and(body(MAX_BODY))
            .and(with_app(app))
            .then(fill_gap)
            .boxed(),
        reject_other_methods(&gap_fill, [Method::POST]),
    ])
}

/// Accepts requests with the secret as bearer token.
fn require_secret(app: &App) -> BoxedFilter<()> {
    let secret = app.core.config.gap_fill_trigger_secret.clone();
    authorization()
        .and_then(move |header: Option<String>| {
            let error = match &secret {
                None => Some(TriggerApiError::NotConfigured),
                Some(secret) => {
                    let is_valid =
                        header.is_some_and(|header| bearer_token_matches(&header, secret));
                    (!is_valid).then_some(TriggerApiError::Unauthorized)
                }
            };
            ready(match error {
                None => Ok(()),
                Some(error) => Err(Rejection::from(ApiError::from(error))),
            })
        })
        .untuple_one()
        .boxed()
}

async fn fill_gap(body: Bytes, app: App) -> ApiResult {
    let request = parse_json(&body)
        .and_then(|body| parse_request(&body))
        .ok_or(TriggerApiError::InvalidBody)?;
    Ok(ok(&match gap_fill::trigger(&app, request).await? {
        GapFillOutcome::Started(job) => json!({"ok": true, "dispatched": true, "jobId": job}),
        GapFillOutcome::Waiting => json!({"ok": true, "dispatched": false, "queued": true}),
    }))
}

/// Parses the body. An instruction that is not a string is an error: without it, the run would do
/// something else than requested.
fn parse_request(body: &Value) -> Option<GapFillRequest> {
    let issue = body["issueKey"].as_str()?.trim();
    let pull = non_negative_integer(&body["prNumber"]).filter(|number| *number > 0)?;
    let instruction = match &body["instruction"] {
        Value::Null => None,
        value => Some(value.as_str()?.to_owned()),
    };
    (!issue.is_empty()).then(|| GapFillRequest {
        issue: issue.to_owned(),
        pull_number: pull,
        instruction,
    })
}
