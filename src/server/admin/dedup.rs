//! `/api/dedup`: issues that were dispatched and wait out their window.

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::AdminFault;
use crate::parts::{
    ApiResult, Routes, Segment, any_of, ok, one_of, only, operator, signed_in, with,
};
use domain::audit::{Action, Actor};
use domain::ids::{IssueId, IssueKey};
use domain::time::Timestamp;
use engine::app::App;
use store::{audit, dedup};

/// Routes of `/api/dedup`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "dedup").boxed();
    let each = path!("api" / "dedup" / Segment).boxed();
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(list)
            .boxed(),
        each.clone()
            .and(signed_in(app, Method::DELETE))
            .and(operator(app))
            .and(with(app))
            .then(remove)
            .boxed(),
        only(&all, [Method::GET]),
        only(&any_of(&each), [Method::DELETE]),
    ])
}

async fn list(app: App) -> ApiResult {
    let (window, now) = (app.config.dedup_window, app.now());
    let mut entries: Vec<EntryView> = app
        .store
        .read_long(dedup::all)
        .await?
        .into_iter()
        .filter(|entry| entry.holds(window, now))
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

/// Takes an issue out of the window, by its id or by what people call it.
async fn remove(Segment(named): Segment, by: Actor, app: App) -> ApiResult {
    let (window, now) = (app.config.dedup_window, app.now());
    let removed = app.store.write(move |tx| {
        let mut entries = dedup::all(tx)?.into_iter();
        match entries.find(|entry| entry.issue.is_called(&named) && entry.holds(window, now)) {
            Some(entry) => {
                let deed = by.did(Action::DedupDeleted, &entry.issue.key);
                audit::append(tx, &deed, now)?;
                dedup::remove(tx, &entry.issue.id)
            }
            None => Ok(false),
        }
    });
    if removed.await? {
        Ok(ok(&json!({"deleted": true})))
    } else {
        Err(AdminFault::NothingDeleted.into())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    dispatched_at: Timestamp,
    /// Null when entries never age out.
    expires_at: Option<Timestamp>,
}
