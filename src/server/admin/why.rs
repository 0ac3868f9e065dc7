//! `/api/why/:issue`: what was decided about an issue, and before that.

use serde::Serialize;
use serde_json::Value;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::AdminFault;
use crate::parts::{ApiResult, Routes, Segment, any_of, ok, one_of, only, signed_in, with};
use domain::decision::{self, Decision};
use domain::ids::IssueKey;
use domain::time::Timestamp;
use engine::app::App;
use store::{ReadTx, StoreResult, jobs, ledger, parked};

/// Routes of `/api/why`.
pub fn routes(app: &App) -> Routes {
    let each = path!("api" / "why" / Segment).boxed();
    one_of([
        each.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(show)
            .boxed(),
        only(&any_of(&each), [Method::GET]),
    ])
}

async fn show(Segment(key): Segment, app: App) -> ApiResult {
    let now = app.now();
    let view = app.store.read(|tx| look(tx, &IssueKey::new(key), now))?;
    Ok(ok(&view.ok_or(AdminFault::IssueNotFound)?))
}

/// What is known of an issue; none when it was never seen.
pub fn look(tx: &ReadTx, key: &IssueKey, now: Timestamp) -> StoreResult<Option<WhyView>> {
    let Some(mut row) = ledger::get(tx, key)? else {
        return Ok(None);
    };
    let jobs = jobs::of_issue(tx, &row.issue.id)?;
    let is_parked = parked::get(tx, &row.issue.id)?.is_some();
    let failed = decision::failed(&jobs, row.current(), is_parked, now);
    let decision = failed.or_else(|| row.decisions.pop());
    row.decisions.reverse();
    Ok(Some(WhyView {
        identifier: row.issue.key,
        title: row.issue.title,
        url: row.issue.url,
        decision,
        history: row.decisions,
        job: match jobs.last() {
            Some(job) => super::jobs::look(tx, &job.id)?,
            None => None,
        },
    }))
}

/// What was decided about an issue, and the run that came of it.
#[derive(Serialize)]
pub struct WhyView {
    identifier: IssueKey,
    title: String,
    url: String,
    /// The one in force.
    decision: Option<Decision>,
    /// Those before it, newest first.
    history: Vec<Decision>,
    /// The last run, if there ever was one.
    job: Option<Value>,
}
