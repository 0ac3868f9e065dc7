//! `POST /api/mappings/:teamKey/sync-workflows`: opens or updates the pull request with the workflow
//! files. See docs/configuration.md#sync-workflows.

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::templates::{SYNC_BRANCH, SyncReport, SyncStatus};
use engine::app::App;
use engine::workflow_sync;

/// Routes of `/api/mappings/:teamKey/sync-workflows`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/mappings/:teamKey/sync-workflows",
            "syncWorkflows",
            start,
        )
        .returns::<SyncView>(),
    ]
}

async fn start(PathSegment(key): PathSegment, by: Actor, app: App) -> ApiResult {
    let report = workflow_sync::request(&app, by, TeamKey::new(key)).await?;
    Ok(ok(&SyncView::from(report)))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WorkflowSync")]
struct SyncView {
    status: SyncStatus,
    #[schemars(example = "acme/shop")]
    target_repo: String,
    base_branch: String,
    sync_branch: &'static str,
    changed_files: Vec<String>,
    #[schemars(range(min = 1))]
    pr_number: Option<u64>,
    pr_url: Option<String>,
}

impl From<SyncReport> for SyncView {
    fn from(report: SyncReport) -> Self {
        let (pr_number, pr_url) = report.pull.map(|pull| (pull.number, pull.url)).unzip();
        Self {
            status: report.status,
            target_repo: report.repo.to_string(),
            base_branch: report.base_branch,
            sync_branch: SYNC_BRANCH,
            changed_files: report.changed_files,
            pr_number,
            pr_url,
        }
    }
}
