//! `POST /trigger/gap-fill`: a comment on a pull request asks for a run. (spec: *Webhook and trigger
//! endpoints*)
//!
//! The workflow `comment-trigger.yml` of the target repository calls it, after it has seen that the
//! commenter may. It needs no administrator.

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
pub fn routes(app: &App) -> Routes {
    let gap_fill = path!("trigger" / "gap-fill").boxed();
    one_of([
        gap_fill
            .clone()
            .and(method(Method::POST))
            .and(trusted(app))
            .and(body(MAX_BODY))
            .and(with_app(app))
            .then(fill_gap)
            .boxed(),
        reject_other_methods(&gap_fill, [Method::POST]),
    ])
}

/// Requests of somebody who knows the secret.
fn trusted(app: &App) -> BoxedFilter<()> {
    let secret = app.config.gap_fill_trigger_secret.clone();
    authorization()
        .and_then(move |header: Option<String>| {
            let fault = match &secret {
                None => Some(TriggerApiError::NotConfigured),
                Some(secret) => {
                    let is_known =
                        header.is_some_and(|header| bearer_token_matches(&header, secret));
                    (!is_known).then_some(TriggerApiError::Unauthorized)
                }
            };
            ready(match fault {
                None => Ok(()),
                Some(fault) => Err(Rejection::from(ApiError::from(fault))),
            })
        })
        .untuple_one()
        .boxed()
}

async fn fill_gap(body: Bytes, app: App) -> ApiResult {
    let asked = parse_json(&body)
        .and_then(|body| asked(&body))
        .ok_or(TriggerApiError::InvalidBody)?;
    Ok(ok(&match gap_fill::trigger(&app, asked).await? {
        GapFillOutcome::Started(job) => json!({"ok": true, "dispatched": true, "jobId": job}),
        GapFillOutcome::Waiting => json!({"ok": true, "dispatched": false, "queued": true}),
    }))
}

/// Reads the body. An instruction that is no text is a fault, too: without it another run would be
/// started than was asked for.
fn asked(body: &Value) -> Option<GapFillRequest> {
    let issue = body["issueKey"].as_str()?.trim();
    let pull = non_negative_integer(&body["prNumber"]).filter(|number| *number > 0)?;
    let instruction = match &body["instruction"] {
        Value::Null => None,
        given => Some(given.as_str()?.to_owned()),
    };
    (!issue.is_empty()).then(|| GapFillRequest {
        issue: issue.to_owned(),
        pull_number: pull,
        instruction,
    })
}
