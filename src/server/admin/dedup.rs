//! `/api/dedup`: dedup entries of dispatched issues. See docs/behaviour.md#deduplication.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::audit::Actor;
use domain::ids::{IssueId, IssueKey};
use domain::time::Timestamp;
use engine::admin::dedup;
use engine::app::App;

/// Routes of `/api/dedup`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/dedup", "listDedup", list).returns::<Vec<EntryView>>(),
        Route::delete("/api/dedup/:issueId", "clearDedup", remove),
    ]
}

async fn list(app: App) -> ApiResult {
    let (window, now) = (app.core.config.dedup_window, app.core.now());
    let mut entries: Vec<EntryView> = app
        .core
        .store()
        .read_long(store::dedup::all)
        .await?
        .into_iter()
        .filter(|entry| entry.is_active(window, now))
        .map(|entry| EntryView {
            expires_at: entry.expires_at(window),
            issue_id: entry.issue.id,
            issue_identifier: entry.issue.key,
            issue_title: entry.issue.title,
            dispatched_at: entry.dispatched_at,
        })
        .collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.dispatched_at));
    Ok(ok(&entries))
}

/// Deletes the dedup entry of an issue, given by id or key.
async fn remove(PathSegment(id_or_key): PathSegment, by: Actor, app: App) -> ApiResult {
    match dedup::remove(&app.core, by, id_or_key).await? {
        true => Ok(ok(&json!({"deleted": true}))),
        false => Err(AdminApiError::NothingDeleted.into()),
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DedupEntry")]
struct EntryView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    dispatched_at: Timestamp,
    /// `None` if entries never expire.
    expires_at: Option<Timestamp>,
}
