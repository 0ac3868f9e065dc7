//! `/api/parked`: issues parked by the dispatch breaker. See docs/behaviour.md#dispatch-breaker.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, Route, ok, parse_json};
use domain::audit::Actor;
use domain::ids::{IssueId, IssueKey};
use domain::issue::Phase;
use domain::time::Timestamp;
use engine::admin::parked;
use engine::app::App;
use store::dispatch_breaker;

/// Routes of `/api/parked`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/parked", "listParked", list).returns::<Vec<ParkedView>>(),
        Route::post("/api/parked/unpark", "unpark", unpark).body(),
    ]
}

async fn list(app: App) -> ApiResult {
    let parked = app.core.store().read_long(dispatch_breaker::all).await?;
    let views: Vec<ParkedView> = parked
        .into_iter()
        .map(|parked| ParkedView {
            issue_id: parked.issue.id,
            issue_identifier: parked.issue.key,
            issue_title: parked.issue.title,
            repo: parked.repo.to_string(),
            phase: parked.phase,
            failures: parked.failures,
            last_conclusion: parked.last_conclusion,
            parked_at: parked.parked_at,
        })
        .collect();
    Ok(ok(&views))
}

async fn unpark(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(AdminApiError::InvalidBody)?;
    let id_or_key = body
        .get("issueId")
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty());
    let id_or_key = id_or_key.ok_or(AdminApiError::IssueIdRequired)?.to_owned();
    let unparked = parked::unpark(&app, by, id_or_key).await?;
    Ok(ok(&serde_json::json!({ "unparked": unparked })))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ParkedIssue")]
struct ParkedView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    repo: String,
    phase: Phase,
    /// Number of consecutive failures.
    #[schemars(range(min = 1))]
    failures: u32,
    last_conclusion: String,
    parked_at: Timestamp,
}
