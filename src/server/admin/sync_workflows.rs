//! `POST /api/mappings/:teamKey/sync-workflows`: our files, offered to the target repository.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::parts::{
    ApiResult, Routes, Segment, any_of, ok, one_of, only, operator, signed_in, with,
};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::templates::{SYNC_BRANCH, SyncReport, SyncStatus};
use engine::app::App;
use engine::sync;

/// Routes of `/api/mappings/:teamKey/sync-workflows`.
pub fn routes(app: &App) -> Routes {
    let sync = path!("api" / "mappings" / Segment / "sync-workflows").boxed();
    one_of([
        sync.clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(with(app))
            .then(start)
            .boxed(),
        only(&any_of(&sync), [Method::POST]),
    ])
}

async fn start(Segment(key): Segment, by: Actor, app: App) -> ApiResult {
    let report = sync::request(&app, by, TeamKey::new(key)).await?;
    Ok(ok(&SyncView::from(report)))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncView {
    status: SyncStatus,
    target_repo: String,
    base_branch: String,
    sync_branch: &'static str,
    changed_files: Vec<String>,
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
