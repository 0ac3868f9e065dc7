//! `/api/why/:issue`: what was decided about an issue, and before that.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::app::App;
use crate::domain::decision::Decision;
use crate::domain::ids::IssueKey;
use crate::http::error::AdminFault;
use crate::http::parts::{ApiResult, Routes, Segment, any_of, ok, one_of, only, signed_in, with};
use crate::store::ledger;

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
    let row = app.store.read(|tx| ledger::get(tx, &IssueKey::new(key)))?;
    let mut row = row.ok_or(AdminFault::IssueNotFound)?;
    let decision = row.decisions.pop();
    row.decisions.reverse();
    Ok(ok(&WhyView {
        identifier: row.issue.key,
        decision,
        history: row.decisions,
    }))
}

#[derive(Serialize)]
struct WhyView {
    identifier: IssueKey,
    /// The one in force.
    decision: Option<Decision>,
    /// Those before it, newest first.
    history: Vec<Decision>,
}
