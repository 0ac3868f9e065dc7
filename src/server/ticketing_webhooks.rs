//! `POST /api/ticketing-a/webhook` and `POST /api/ticketing-b/webhook`: webhooks of Linear and Jira. See
//! docs/behaviour.md#ticketing-webhooks.
//!
//! Payloads are not used as data: a relevant event only starts a poll at once, which reads the tickets.
//! As for the repository webhook, a repeated delivery is ignored. Irrelevant events are acknowledged and
//! not stored.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::http::HeaderMap;

use super::error::WebhookApiError;
use super::routing::{Access, ApiResult, MAX_WEBHOOK_BODY, Route, ok, parse_json};
use super::webhook_source::WebhookSource;
use domain::issue::System;
use domain::time::Timestamp;
use domain::vendor::Vendor;
use engine::app::App;
use engine::ticket_webhooks;
use store::{StoreResult, job_index, mappings};
use vendors::ticketing::{self, is_relevant_event};

/// Maximum difference between the timestamp of a Linear delivery and our clock, as recommended by Linear.
const LINEAR_MAX_SKEW: Duration = Duration::from_secs(60);

/// Routes of both ticketing webhooks.
pub(crate) fn routes() -> Vec<Route> {
    let from_linear = |headers: HeaderMap, body: Bytes, app: App| {
        receive(System::Linear, WebhookSource::Linear, headers, body, app)
    };
    let from_jira = |headers: HeaderMap, body: Bytes, app: App| {
        receive(System::Jira, WebhookSource::Jira, headers, body, app)
    };
    vec![
        Route::post("/api/ticketing-a/webhook", "linearWebhook", from_linear)
            .access(Access::Webhook(WebhookSource::Linear))
            .body_of(MAX_WEBHOOK_BODY),
        Route::post("/api/ticketing-b/webhook", "jiraWebhook", from_jira)
            .access(Access::Webhook(WebhookSource::Jira))
            .body_of(MAX_WEBHOOK_BODY),
    ]
}

async fn receive(
    system: System,
    source: WebhookSource,
    headers: HeaderMap,
    body: Bytes,
    app: App,
) -> ApiResult {
    let payload = parse_json(&body)
        .filter(Value::is_object)
        .ok_or(WebhookApiError::InvalidPayload)?;
    // An old delivery may be a replay.
    if system == System::Linear && !is_fresh(&payload, app.core.now()) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let announced = announced_issue(&app, system, &payload)?;
    if announced.is_none() && !is_relevant(&app, system, &payload)? {
        return Ok(ok(&json!({"ignored": true})));
    }
    let prefix = Vendor::from(system).slug();
    let delivery = format!("{prefix}:{}", source.delivery_id(&headers, &body));
    start_poll(&app, system, &delivery, announced).await
}

/// Returns the id or the key by which the service knows the issue on which an event announces a comment. `None` if it
/// knows neither: it knows an issue without a run by its key only.
pub(crate) fn announced_issue(
    app: &App,
    system: System,
    payload: &Value,
) -> StoreResult<Option<String>> {
    for named in ticketing::announced_issue(system, payload) {
        let store = app.core.store();
        if store
            .read(|tx| job_index::issue_named(tx, &named))?
            .is_some()
        {
            return Ok(Some(named));
        }
    }
    Ok(None)
}

/// Whether an event may change the result of the next poll.
pub(crate) fn is_relevant(app: &App, system: System, payload: &Value) -> StoreResult<bool> {
    let mapped = app.core.store().read(mappings::all)?;
    Ok(is_relevant_event(system, payload, &mapped))
}

/// Starts a poll at once, unless the delivery is a repetition.
pub(crate) async fn start_poll(
    app: &App,
    system: System,
    delivery: &str,
    announced: Option<String>,
) -> ApiResult {
    let is_new = ticket_webhooks::receive(app, system, delivery, announced).await?;
    Ok(ok(&match is_new {
        true => json!({"queued": true}),
        false => json!({"ignored": true, "reason": "duplicate"}),
    }))
}

/// Whether the timestamp of a Linear payload is within [`LINEAR_MAX_SKEW`] of our clock.
fn is_fresh(payload: &Value, now: Timestamp) -> bool {
    let signed_at = payload["webhookTimestamp"].as_u64();
    signed_at
        .map(Timestamp::from_millis)
        .is_some_and(|at| now.since(at) <= LINEAR_MAX_SKEW && at.since(now) <= LINEAR_MAX_SKEW)
}
