//! `POST /api/repo-host/webhook`: webhooks of GitHub. See docs/behaviour.md#repository-webhook.
//!
//! Requests without a well-formed signature header are rejected before their body is read. The signature
//! is verified over the raw bytes before they are parsed. A delivery is stored before the response is
//! sent, because GitHub does not redeliver automatically.

use std::future::ready;

use bytes::Bytes;
use serde_json::json;
use warp::filters::BoxedFilter;
use warp::http::header::CONTENT_TYPE;
use warp::http::{HeaderMap, Method};
use warp::reject::Rejection;
use warp::{Filter, path};

use super::client_identity::{REPO_HOST_SIGNATURE, require_signature_header};
use super::error::{ApiError, WebhookApiError};
use super::routing::{
    ApiResult, MAX_WEBHOOK_BODY, Routes, body, form_field, method, ok, one_of,
    reject_other_methods, with_app,
};
use domain::crypto::sha256_hex;
use domain::crypto::signature::is_valid_signature;
use domain::secret::Secret;
use engine::app::App;
use engine::feedback::{self, WebhookOutcome};
use vendors::scm::webhook;

/// Maximum length of a delivery id. Longer ids are replaced by a hash. GitHub sends GUIDs.
const MAX_DELIVERY_ID: usize = 100;

/// Routes of `/api/repo-host`.
pub(crate) fn routes(app: &App) -> Routes {
    let hook = path!("api" / "repo-host" / "webhook").boxed();
    one_of([
        hook.clone()
            .and(method(Method::POST))
            .and(require_configured(app))
            .and(require_signature_header(REPO_HOST_SIGNATURE))
            .and(warp::header::headers_cloned())
            .and(body(MAX_WEBHOOK_BODY))
            .and(with_app(app))
            .then(receive)
            .boxed(),
        reject_other_methods(&hook, [Method::POST]),
    ])
}

/// Extracts the webhook secret. Rejects the request if none is configured.
fn require_configured(app: &App) -> BoxedFilter<(Secret,)> {
    let secret = app.core.config.scm_webhook_secret.clone();
    warp::any()
        .and_then(move || {
            let secret = secret.clone();
            let not_configured = || Rejection::from(ApiError::from(WebhookApiError::NotConfigured));
            ready(secret.ok_or_else(not_configured))
        })
        .boxed()
}

async fn receive(secret: Secret, headers: HeaderMap, body: Bytes, app: App) -> ApiResult {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let signature = header(REPO_HOST_SIGNATURE).unwrap_or_default();
    if !is_valid_signature(&body, signature, &secret) {
        return Err(WebhookApiError::InvalidSignature.into());
    }
    let is_form = header(CONTENT_TYPE.as_str())
        .is_some_and(|value| value.starts_with("application/x-www-form-urlencoded"));
    let payload = match is_form {
        true => form_field(&body, "payload").and_then(|payload| webhook::parse_payload(&payload)),
        false => webhook::parse_payload(&body),
    };
    let payload = payload.ok_or(WebhookApiError::InvalidPayload)?;
    let event = webhook::parse_event(header("x-github-event"), &payload)?;
    let delivery = match header("x-github-delivery") {
        Some(id) if !id.is_empty() && id.len() <= MAX_DELIVERY_ID => id.to_owned(),
        // Without a usable id, identical bytes count as the same delivery.
        _ => format!("sha256:{}", sha256_hex(&String::from_utf8_lossy(&body))),
    };
    Ok(ok(
        &match feedback::receive(&app, &delivery, event).await? {
            WebhookOutcome::Queued => json!({"queued": true}),
            WebhookOutcome::Acknowledged => json!({"acknowledged": true}),
            WebhookOutcome::Ignored(reason) => json!({"ignored": true, "reason": reason}),
        },
    ))
}
