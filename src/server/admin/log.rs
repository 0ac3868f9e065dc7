//! `/api/log`: the dispatch log, newest first. (spec: *Dispatch log entry*)

use std::collections::{BTreeSet, HashMap};

use warp::http::Method;
use warp::{Filter, path};

use super::jobs::{Group, JobView};
use crate::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use domain::ids::IssueId;
use domain::job::Job;
use engine::app::App;
use store::jobs::{self, LOG_SIZE};

/// Routes of `/api/log`.
pub fn routes(app: &App) -> Routes {
    let log = path!("api" / "log").boxed();
    one_of([
        log.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(list)
            .boxed(),
        only(&log, [Method::GET]),
    ])
}

async fn list(app: App) -> ApiResult {
    let read = app.store.read_long(|tx| {
        let latest = jobs::latest(tx, LOG_SIZE)?;
        let mut groups = HashMap::new();
        let issues: BTreeSet<&IssueId> = latest.iter().map(|job| &job.issue.id).collect();
        for issue in issues {
            Group::of_issue(tx, issue, &mut groups)?;
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
