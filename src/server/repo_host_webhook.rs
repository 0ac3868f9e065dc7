//! `POST /api/repo-host/webhook`: webhooks of GitHub. See docs/behaviour.md#repository-webhook.
//!
//! A delivery is stored before the response is sent, because GitHub does not redeliver automatically. Events of
//! issues are treated like those of the ticketing systems: a relevant one only starts a poll at once.

use bytes::Bytes;
use serde_json::json;
use warp::http::HeaderMap;
use warp::http::header::CONTENT_TYPE;

use super::error::WebhookApiError;
use super::routing::{Access, ApiResult, MAX_WEBHOOK_BODY, Route, ok};
use super::ticketing_webhooks;
use super::webhook_source::{WebhookSource, header};
use domain::issue::System;
use engine::app::App;
use engine::pull_requests::feedback::{self, WebhookOutcome};
use vendors::scm::webhook::{self, WebhookEvent};

/// Reason for ignoring an event of an issue that no project takes as a ticket.
const NOT_ON_PULL: &str = "not on a pull request";

/// Routes of `/api/repo-host`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/repo-host/webhook", "repoHostWebhook", receive)
            .access(Access::Webhook(WebhookSource::GitHub))
            .body_of(MAX_WEBHOOK_BODY),
    ]
}

async fn receive(headers: HeaderMap, body: Bytes, app: App) -> ApiResult {
    let is_form = header(&headers, CONTENT_TYPE.as_str())
        .is_some_and(|value| value.starts_with("application/x-www-form-urlencoded"));
    let payload = match is_form {
        true => form_urlencoded::parse(&body)
            .find(|(name, _)| name == "payload")
            .and_then(|(_, payload)| webhook::parse_payload(payload.as_bytes())),
        false => webhook::parse_payload(&body),
    };
    let payload = payload.ok_or(WebhookApiError::InvalidPayload)?;
    let event = webhook::parse_event(header(&headers, "x-github-event"), &payload)?;
    let delivery = WebhookSource::GitHub.delivery_id(&headers, &body);
    if event == WebhookEvent::IssueChanged {
        return match ticketing_webhooks::is_relevant(&app, System::GitHub, &payload)? {
            true => {
                let system = System::GitHub;
                let announced = ticketing_webhooks::announced_issue(&app, system, &payload)?;
                ticketing_webhooks::start_poll(&app, system, &delivery, announced).await
            }
            false => Ok(ok(&json!({"ignored": true, "reason": NOT_ON_PULL}))),
        };
    }
    Ok(ok(
        &match feedback::receive(&app, &delivery, event).await? {
            WebhookOutcome::Queued => json!({"queued": true}),
            WebhookOutcome::Acknowledged => json!({"acknowledged": true}),
            WebhookOutcome::Ignored(reason) => json!({"ignored": true, "reason": reason}),
        },
    ))
}
