//! `/api/reaper`: what the reaper destroyed, or would have.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use domain::ids::{IssueKey, TeamKey};
use domain::reaping::{Badge, Rule};
use domain::time::Timestamp;
use engine::app::App;
use store::reaper::{self, Action};

/// How many actions are shown when nobody says how many.
const DEFAULT_LIMIT: usize = 20;

/// Routes of `/api/reaper`.
pub fn routes(app: &App) -> Routes {
    let summary = path!("api" / "reaper" / "summary").boxed();
    let recent = path!("api" / "reaper" / "recent").boxed();
    let get = signed_in(app, Method::GET);
    one_of([
        summary
            .clone()
            .and(get.clone())
            .and(with(app))
            .then(summarise)
            .boxed(),
        recent
            .clone()
            .and(get)
            .and(warp::query::<BTreeMap<String, String>>())
            .and(with(app))
            .then(list)
            .boxed(),
        only(&summary, [Method::GET]),
        only(&recent, [Method::GET]),
    ])
}

async fn summarise(app: App) -> ApiResult {
    let from = app.now() - reaper::SUMMARY_SPAN;
    let actions = app.store.read(|tx| reaper::since(tx, from))?;
    let mut by_rule: BTreeMap<&str, usize> =
        Rule::ALL.iter().map(|rule| (rule.as_str(), 0)).collect();
    let destroyed = actions
        .iter()
        .filter(|action| action.badge == Badge::Destroyed);
    for action in destroyed {
        *by_rule.entry(action.rule.as_str()).or_default() += 1;
    }
    Ok(ok(&json!({
        "total24h": by_rule.values().sum::<usize>(),
        "byRule": by_rule,
        "lastSweepAt": app.pulse.last_sweep_at(),
        "dryRun": app.config.reaper.dry_run,
    })))
}

async fn list(query: BTreeMap<String, String>, app: App) -> ApiResult {
    let asked = query.get("limit").and_then(|limit| limit.parse().ok());
    let limit = asked.unwrap_or(DEFAULT_LIMIT).min(reaper::RECENT);
    let actions = app.store.read(|tx| reaper::recent(tx, limit))?;
    let shown: Vec<ActionView<'_>> = actions.iter().map(ActionView::of).collect();
    Ok(ok(&shown))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActionView<'a> {
    at: Timestamp,
    rule: Rule,
    machine_id: &'a str,
    tenant: Option<&'a TeamKey>,
    issue_identifier: Option<&'a IssueKey>,
    age_seconds: u64,
    badge: Badge,
}

impl<'a> ActionView<'a> {
    fn of(action: &'a Action) -> Self {
        Self {
            at: action.at,
            rule: action.rule,
            machine_id: &action.machine_id,
            tenant: action.tenant.as_ref(),
            issue_identifier: action.issue.as_ref(),
            age_seconds: action.age_seconds,
            badge: action.badge,
        }
    }
}
