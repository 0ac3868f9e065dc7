//! `POST /api/ticketing-a/webhook` and `/api/ticketing-b/webhook`: something happened to a ticket.
//!
//! Nothing is believed of what they tell: an event that may concern us makes the poll look now rather
//! than later, and the poll sees for itself. As at the repository host's hook, the signature is checked
//! over the bytes as they came before anything in them is looked at, and a delivery counts once. What
//! cannot concern us is answered and forgotten.

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

/// How old, or how far ahead of our clock, may a delivery of Linear's be? (the vendor's own advice)
const LINEAR_WINDOW: Duration = Duration::from_secs(60);

/// Longest delivery id that is kept as it is.
const MAX_DELIVERY_ID: usize = 100;

/// Routes of both.
pub fn routes(app: &App) -> Routes {
    let a = path!("api" / "ticketing-a" / "webhook").boxed();
    let b = path!("api" / "ticketing-b" / "webhook").boxed();
    one_of([
        hook(app, &a, System::Linear),
        hook(app, &b, System::Jira),
        reject_other_methods(&a, [Method::POST]),
        reject_other_methods(&b, [Method::POST]),
    ])
}

fn hook(app: &App, path: &BoxedFilter<()>, system: System) -> Routes {
    path.clone()
        .and(method(Method::POST))
        .and(configured(app, system))
        .and(require_signature_header(signature_of(system)))
        .and(warp::header::headers_cloned())
        .and(body(MAX_WEBHOOK_BODY))
        .and(with_app(app))
        .then(
            move |secret: Secret, headers: HeaderMap, body: Bytes, app: App| async move {
                take(system, secret, headers, body, app).await
            },
        )
        .boxed()
}

/// The secret that a system signs with.
fn configured(app: &App, system: System) -> BoxedFilter<(Secret,)> {
    let secret = match system {
        System::Linear => app.config.linear_webhook_secret.clone(),
        System::Jira => app.config.jira_webhook_secret.clone(),
    };
    warp::any()
        .and_then(move || {
            let off = || Rejection::from(ApiError::from(WebhookApiError::NotConfigured));
            ready(secret.clone().ok_or_else(off))
        })
        .boxed()
}

/// The header with the signature.
fn signature_of(system: System) -> &'static str {
    match system {
        System::Linear => LINEAR_SIGNATURE,
        System::Jira => JIRA_SIGNATURE,
    }
}

async fn take(
    system: System,
    secret: Secret,
    headers: HeaderMap,
    body: Bytes,
    app: App,
) -> ApiResult {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (id, name) = match system {
        System::Linear => ("linear-delivery", "linear"),
        System::Jira => ("x-atlassian-webhook-identifier", "jira"),
    };
    if !is_valid_signature(
        &body,
        header(signature_of(system)).unwrap_or_default(),
        &secret,
    ) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let payload = routing::parse_json(&body)
        .filter(Value::is_object)
        .ok_or(WebhookApiError::InvalidPayload)?;
    // What was signed long ago may have been overheard.
    if system == System::Linear && !is_fresh(&payload, app.now()) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let mapped = app.store.read(mappings::all)?;
    if !is_relevant_event(system, &payload, &mapped) {
        return Ok(ok(&json!({"ignored": true})));
    }
    let id = match header(id) {
        Some(id) if !id.is_empty() && id.len() <= MAX_DELIVERY_ID => id.to_owned(),
        // The same bytes are the same delivery.
        _ => format!("sha256:{}", sha256_hex(&String::from_utf8_lossy(&body))),
    };
    let is_news = ticket_webhooks::receive(&app, system, &format!("{name}:{id}")).await?;
    Ok(ok(&match is_news {
        true => json!({"queued": true}),
        false => json!({"ignored": true, "reason": "duplicate"}),
    }))
}

/// Whether it was signed just now.
fn is_fresh(payload: &Value, now: Timestamp) -> bool {
    let signed_at = payload["webhookTimestamp"].as_u64();
    signed_at
        .map(Timestamp::from_millis)
        .is_some_and(|at| now.since(at) <= LINEAR_WINDOW && at.since(now) <= LINEAR_WINDOW)
}
