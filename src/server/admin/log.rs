//! `/api/log`: dispatch log, newest first. See docs/behaviour.md#dispatch-log.

use std::collections::{BTreeSet, HashMap};

use super::jobs::{JobGroupStatus, JobView};
use crate::routing::{ApiResult, Route, ok};
use domain::ids::IssueId;
use domain::job::Job;
use engine::app::App;
use store::jobs::{self, DISPATCH_LOG_SIZE};

/// Routes of `/api/log`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/log", "dispatchLog", list).returns::<Vec<JobView<'_>>>()]
}

async fn list(app: App) -> ApiResult {
    let read = app.core.store().read_long(|tx| {
        let latest = jobs::latest(tx, DISPATCH_LOG_SIZE)?;
        let mut groups = HashMap::new();
        let issues: BTreeSet<&IssueId> = latest.iter().map(|job| &job.issue.id).collect();
        for issue in issues {
            JobGroupStatus::of_issue(tx, issue, &mut groups)?;
        }
        Ok((latest, groups))
    });
    let (latest, groups) = read.await?;
    let group_of = |job: &Job| groups.get(&job.group).copied();
    let views: Vec<JobView<'_>> = latest
        .iter()
        .map(|job| JobView::of(job, group_of(job).unwrap_or_default()))
        .collect();
    Ok(ok(&views))
}
