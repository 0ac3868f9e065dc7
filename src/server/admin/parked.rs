//! `/api/parked`: issues that the dispatch breaker took out of the queue.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::AdminFault;
use crate::parts::{
    ApiResult, BODY, Routes, body, json, ok, one_of, only, operator, signed_in, with,
};
use domain::audit::{Action, Actor};
use domain::ids::{IssueId, IssueKey};
use domain::issue::Phase;
use domain::time::Timestamp;
use engine::app::App;
use store::{audit, parked};

/// Routes of `/api/parked`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "parked").boxed();
    let unparked = path!("api" / "parked" / "unpark").boxed();
    one_of([
        unparked
            .clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(body(BODY))
            .and(with(app))
            .then(unpark)
            .boxed(),
        only(&unparked, [Method::POST]),
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

/// Releases an issue; the next poll looks at it again, so one is asked for.
async fn unpark(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = json(&body).ok_or(AdminFault::InvalidBody)?;
    let named = body
        .get("issueId")
        .and_then(Value::as_str)
        .filter(|named| !named.is_empty());
    let named = named.ok_or(AdminFault::IssueIdRequired)?.to_owned();
    let now = app.now();
    let unparked = app.store.write(move |tx| {
        let mut all = parked::all(tx)?.into_iter();
        match all.find(|parked| parked.issue.is_called(&named)) {
            Some(parked) => {
                let deed = by.did(Action::Unparked, &parked.issue.key);
                audit::append(tx, &deed, now)?;
                parked::unpark(tx, &parked.issue.id)
            }
            None => Ok(false),
        }
    });
    let unparked = unparked.await?;
    if unparked {
        app.bells.poll.notify_one();
    }
    Ok(ok(&serde_json::json!({ "unparked": unparked })))
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
