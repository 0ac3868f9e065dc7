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

use super::error::{ApiError, TriggerFault};
use super::parts::{
    ApiResult, BODY, Routes, authorization, body, json, method, ok, one_of, only, with,
};
use domain::keys::signature::bearer_equals;
use domain::number::whole;
use engine::app::App;
use engine::gap_fill::{self, Asked, Granted};

/// Routes of `/trigger`.
pub fn routes(app: &App) -> Routes {
    let gap_fill = path!("trigger" / "gap-fill").boxed();
    one_of([
        gap_fill
            .clone()
            .and(method(Method::POST))
            .and(trusted(app))
            .and(body(BODY))
            .and(with(app))
            .then(fill_gap)
            .boxed(),
        only(&gap_fill, [Method::POST]),
    ])
}

/// Requests of somebody who knows the secret.
fn trusted(app: &App) -> BoxedFilter<()> {
    let secret = app.config.gap_fill_trigger_secret.clone();
    authorization()
        .and_then(move |header: Option<String>| {
            let fault = match &secret {
                None => Some(TriggerFault::NotConfigured),
                Some(secret) => {
                    let is_known = header.is_some_and(|header| bearer_equals(&header, secret));
                    (!is_known).then_some(TriggerFault::Unauthorized)
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
    let asked = json(&body)
        .and_then(|body| asked(&body))
        .ok_or(TriggerFault::InvalidBody)?;
    Ok(ok(&match gap_fill::trigger(&app, asked).await? {
        Granted::Started(job) => json!({"ok": true, "dispatched": true, "jobId": job}),
        Granted::Waiting => json!({"ok": true, "dispatched": false, "queued": true}),
    }))
}

/// Reads the body. An instruction that is no text is a fault, too: without it another run would be
/// started than was asked for.
fn asked(body: &Value) -> Option<Asked> {
    let issue = body["issueKey"].as_str()?.trim();
    let pull = whole(&body["prNumber"]).filter(|number| *number > 0)?;
    let instruction = match &body["instruction"] {
        Value::Null => None,
        given => Some(given.as_str()?.to_owned()),
    };
    (!issue.is_empty()).then(|| Asked {
        issue: issue.to_owned(),
        pull,
        instruction,
    })
}
