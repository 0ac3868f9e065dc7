//! `/api/reaper`: actions of the reaper. See docs/behaviour.md#reaper.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::ids::{IssueKey, TeamKey};
use domain::reaper::{ReapOutcome, ReaperRule};
use domain::time::Timestamp;
use engine::app::App;
use store::reaper_log::{self, ReaperAction};

/// Default number of actions listed.
const DEFAULT_LIMIT: usize = 20;

/// Routes of `/api/reaper`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/reaper/summary", "reaperSummary", summarize),
        Route::get("/api/reaper/recent", "reaperRecent", list).returns::<Vec<ActionView<'_>>>(),
    ]
}

async fn summarize(app: App) -> ApiResult {
    let from = app.core.now() - reaper_log::SUMMARY_WINDOW;
    let actions = app.core.store().read(|tx| reaper_log::since(tx, from))?;
    let mut by_rule: BTreeMap<&str, usize> = ReaperRule::ALL
        .iter()
        .map(|rule| (rule.as_str(), 0))
        .collect();
    let destroyed = actions
        .iter()
        .filter(|action| action.outcome == ReapOutcome::Destroyed);
    for action in destroyed {
        *by_rule.entry(action.rule.as_str()).or_default() += 1;
    }
    Ok(ok(&json!({
        "total24h": by_rule.values().sum::<usize>(),
        "byRule": by_rule,
        "lastSweepAt": app.live.heartbeats.last_sweep_at(),
        "dryRun": app.core.config.reaper.dry_run,
    })))
}

async fn list(query: QueryParams, app: App) -> ApiResult {
    let requested = query.get("limit").and_then(|limit| limit.parse().ok());
    let limit = requested
        .unwrap_or(DEFAULT_LIMIT)
        .min(reaper_log::MAX_RECENT_ACTIONS);
    let actions = app.core.store().read(|tx| reaper_log::recent(tx, limit))?;
    let shown: Vec<ActionView<'_>> = actions.iter().map(ActionView::of).collect();
    Ok(ok(&shown))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReaperAction")]
struct ActionView<'a> {
    at: Timestamp,
    rule: ReaperRule,
    machine_id: &'a str,
    /// Team of the run.
    tenant: Option<&'a TeamKey>,
    issue_identifier: Option<&'a IssueKey>,
    age_seconds: u64,
    badge: ReapOutcome,
}

impl<'a> ActionView<'a> {
    fn of(action: &'a ReaperAction) -> Self {
        Self {
            at: action.at,
            rule: action.rule,
            machine_id: &action.machine_id,
            tenant: action.tenant.as_ref(),
            issue_identifier: action.issue.as_ref(),
            age_seconds: action.age_seconds,
            badge: action.outcome,
        }
    }
}
