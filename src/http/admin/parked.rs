//! `/api/parked`: issues that the dispatch breaker took out of the queue.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::app::App;
use crate::domain::ids::{IssueId, IssueKey};
use crate::domain::issue::Phase;
use crate::domain::time::Timestamp;
use crate::http::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use crate::store::parked;

/// Routes of `/api/parked`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "parked").boxed();
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(list)
            .boxed(),
        only(&all, [Method::GET]),
    ])
}

async fn list(app: App) -> ApiResult {
    let parked = app.store.read_long(parked::all).await?;
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ParkedView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    repo: String,
    phase: Phase,
    failures: u32,
    last_conclusion: String,
    parked_at: Timestamp,
}
