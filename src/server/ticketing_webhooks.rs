//! `POST /api/ticketing-a/webhook` and `POST /api/ticketing-b/webhook`: webhooks of Linear and Jira. See
//! docs/behaviour.md#ticketing-webhooks.
//!
//! Payloads are not used as data: a relevant event only starts a poll at once, which reads the tickets.
//! As for the repository webhook, the signature is verified over the raw bytes before they are parsed,
//! and a repeated delivery is ignored. Irrelevant events are acknowledged and not stored.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::filters::BoxedFilter;
use warp::http::{HeaderMap, Method};
use warp::reject::Rejection;
use warp::{Filter, path};

use super::client_identity::{JIRA_SIGNATURE, LINEAR_SIGNATURE, require_signature_header};
use super::error::{ApiError, WebhookApiError};
use super::routing::{
    self, ApiResult, MAX_WEBHOOK_BODY, Routes, body, method, ok, one_of, reject_other_methods,
    with_app,
};
use domain::crypto::sha256_hex;
use domain::crypto::signature::is_valid_signature;
use domain::issue::System;
use domain::secret::Secret;
use domain::time::Timestamp;
use engine::app::App;
use engine::ticket_webhooks;
use store::mappings;
use vendors::ticketing::is_relevant_event;

/// Maximum difference between the timestamp of a Linear delivery and our clock, as recommended by Linear.
const LINEAR_MAX_SKEW: Duration = Duration::from_secs(60);

/// Maximum length of a delivery id. Longer ids are replaced by a hash.
const MAX_DELIVERY_ID: usize = 100;

/// Routes of both ticketing webhooks.
pub(crate) fn routes(app: &App) -> Routes {
    let linear = path!("api" / "ticketing-a" / "webhook").boxed();
    let jira = path!("api" / "ticketing-b" / "webhook").boxed();
    one_of([
        webhook(app, &linear, System::Linear),
        webhook(app, &jira, System::Jira),
        reject_other_methods(&linear, [Method::POST]),
        reject_other_methods(&jira, [Method::POST]),
    ])
}

fn webhook(app: &App, path: &BoxedFilter<()>, system: System) -> Routes {
    path.clone()
        .and(method(Method::POST))
        .and(require_configured(app, system))
        .and(require_signature_header(signature_header(system)))
        .and(warp::header::headers_cloned())
        .and(body(MAX_WEBHOOK_BODY))
        .and(with_app(app))
        .then(
            move |secret: Secret, headers: HeaderMap, body: Bytes, app: App| async move {
                receive(system, secret, headers, body, app).await
            },
        )
        .boxed()
}

/// Extracts the webhook secret of a system. Rejects the request if none is configured.
fn require_configured(app: &App, system: System) -> BoxedFilter<(Secret,)> {
    let secret = match system {
        System::Linear => app.core.config.linear_webhook_secret.clone(),
        System::Jira => app.core.config.jira_webhook_secret.clone(),
    };
    warp::any()
        .and_then(move || {
            let not_configured = || Rejection::from(ApiError::from(WebhookApiError::NotConfigured));
            ready(secret.clone().ok_or_else(not_configured))
        })
        .boxed()
}

/// Returns the name of the header that carries the signature.
fn signature_header(system: System) -> &'static str {
    match system {
        System::Linear => LINEAR_SIGNATURE,
        System::Jira => JIRA_SIGNATURE,
    }
}

async fn receive(
    system: System,
    secret: Secret,
    headers: HeaderMap,
    body: Bytes,
    app: App,
) -> ApiResult {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (id_header, prefix) = match system {
        System::Linear => ("linear-delivery", "linear"),
        System::Jira => ("x-atlassian-webhook-identifier", "jira"),
    };
    if !is_valid_signature(
        &body,
        header(signature_header(system)).unwrap_or_default(),
        &secret,
    ) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let payload = routing::parse_json(&body)
        .filter(Value::is_object)
        .ok_or(WebhookApiError::InvalidPayload)?;
    // An old delivery may be a replay.
    if system == System::Linear && !is_fresh(&payload, app.core.now()) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let mapped = app.core.store().read(mappings::all)?;
    if !is_relevant_event(system, &payload, &mapped) {
        return Ok(ok(&json!({"ignored": true})));
    }
    let id = match header(id_header) {
        Some(id) if !id.is_empty() && id.len() <= MAX_DELIVERY_ID => id.to_owned(),
        // Without a usable id, identical bytes count as the same delivery.
        _ => format!("sha256:{}", sha256_hex(&String::from_utf8_lossy(&body))),
    };
    let is_new = ticket_webhooks::receive(&app, system, &format!("{prefix}:{id}")).await?;
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
