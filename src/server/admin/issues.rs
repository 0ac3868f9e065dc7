//! `/api/issues`: flagged issues of the last poll with their decisions.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::decision::Decision;
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::issue::{Phase, StatusCategory, System};
use domain::mapping::Mapping;
use domain::stage::Stage;
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};
use store::mappings;

use super::poll_snapshot::{MergedPollSnapshot, load_poll_snapshot};

/// Routes of `/api/issues`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/issues", "listIssues", list).returns::<IssuesView<'_>>()]
}

async fn list(app: App) -> ApiResult {
    let snapshot = load_poll_snapshot(&app)?;
    let in_progress = app.live.poll_snapshots.in_progress();
    // There may be thousands of issues, so serializing them must not block the threads that serve requests.
    let response = app.core.store().read_long(move |tx| {
        let mappings = mappings::all(tx)?;
        Ok(ok(&IssuesView::of(&snapshot, &mappings, in_progress)))
    });
    Ok(response.await?)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Issues")]
struct IssuesView<'a> {
    issues: Vec<IssueView<'a>>,
    in_progress_counts_by_team: BTreeMap<TeamKey, u32>,
    /// Team keys of the mappings whose issues the last poll could not read.
    stale: Vec<TeamKey>,
    /// Time of the last successful poll of those mappings; `None` if there was none.
    stale_since: BTreeMap<TeamKey, Option<Timestamp>>,
}

impl<'a> IssuesView<'a> {
    fn of(
        snapshot: &'a MergedPollSnapshot,
        mappings: &[Mapping],
        in_progress: BTreeMap<TeamKey, u32>,
    ) -> Self {
        let stale: BTreeMap<TeamKey, Option<Timestamp>> = mappings
            .iter()
            .filter_map(|mapping| {
                let of_system = snapshot.stale_since.get(&mapping.system());
                let since = of_system.or_else(|| snapshot.unread_since.get(&mapping.team_key))?;
                Some((mapping.team_key.clone(), *since))
            })
            .collect();
        let planning: HashSet<&TeamKey> = mappings
            .iter()
            .filter(|mapping| mapping.planning_enabled)
            .map(|mapping| &mapping.team_key)
            .collect();
        let view = |polled| IssueView::of(polled, planning.contains(&polled.issue.team));
        Self {
            issues: snapshot.issues().map(view).collect(),
            in_progress_counts_by_team: in_progress,
            stale: stale.keys().cloned().collect(),
            stale_since: stale,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Issue")]
struct IssueView<'a> {
    id: &'a IssueId,
    identifier: &'a IssueKey,
    title: &'a str,
    url: &'a str,
    team_key: &'a TeamKey,
    /// Name of the workflow state in the ticketing system.
    state_name: &'a str,
    state: StatusCategory,
    /// Whether the issue is flagged for a run and not blocked by an open issue.
    ready: bool,
    planning_pending: bool,
    /// Label or field value that marks the stage.
    marker: Option<&'static str>,
    decision: &'a Decision,
}

impl<'a> IssueView<'a> {
    fn of(polled: &'a PolledIssue, planning: bool) -> Self {
        let PolledIssue { issue, decision } = polled;
        let required = issue.stage.required_phase(planning);
        Self {
            id: &issue.issue.id,
            identifier: &issue.issue.key,
            title: &issue.issue.title,
            url: &issue.issue.url,
            team_key: &issue.team,
            state_name: &issue.state_name,
            state: issue.status_category,
            ready: required.is_some() && issue.open_blockers.is_empty(),
            planning_pending: required == Some(Phase::Planning),
            marker: marker(issue.issue.system, issue.stage),
            decision,
        }
    }
}

fn marker(system: System, stage: Stage) -> Option<&'static str> {
    match system {
        System::Linear => stage.linear_label(),
        System::Jira => stage.jira_status(),
    }
}
