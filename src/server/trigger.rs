//! `POST /trigger/gap-fill`: starts a gap-fill run on a pull request. See docs/behaviour.md#gap-fill-trigger.
//!
//! Called by the workflow `comment-trigger.yml` of the target repository after it has checked the
//! permission of the commenter. Authenticated by `GAP_FILL_TRIGGER_SECRET`, not by an admin token.

use bytes::Bytes;
use serde_json::{Value, json};

use super::error::TriggerApiError;
use super::routing::{Access, ApiResult, Route, ok, parse_json};
use domain::json_number::non_negative_integer;
use engine::app::App;
use engine::pull_requests::gap_fill::{self, GapFillOutcome, GapFillRequest};

/// Routes of `/trigger`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/trigger/gap-fill", "triggerGapFill", fill_gap)
            .access(Access::TriggerSecret)
            .body(),
    ]
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
