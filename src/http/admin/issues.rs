//! `/api/issues`: every flagged issue as the last poll saw it, and what was decided about it.

use std::collections::BTreeMap;

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::app::{App, Sighted};
use crate::domain::decision::Decision;
use crate::domain::ids::{IssueId, IssueKey, TeamKey};
use crate::domain::issue::{Phase, Progress, System};
use crate::domain::mapping::Mapping;
use crate::domain::stage::Stage;
use crate::domain::time::Timestamp;
use crate::http::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use crate::store::mappings;

use super::sight::{Sight, look};

/// Routes of `/api/issues`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "issues").boxed();
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
    let Sight {
        sighted,
        stale_since,
        unread_since,
    } = look(&app)?;
    let mappings = app.store.read(mappings::all)?;
    let stale: BTreeMap<TeamKey, Option<Timestamp>> = mappings
        .iter()
        .filter_map(|mapping| {
            let of_system = stale_since.get(&mapping.system());
            let since = of_system.or_else(|| unread_since.get(&mapping.team_key))?;
            Some((mapping.team_key.clone(), *since))
        })
        .collect();
    let planning = |team: &TeamKey| mappings.iter().any(|mapping| is_planning(mapping, team));
    Ok(ok(&IssuesView {
        issues: sighted
            .iter()
            .map(|sighted| IssueView::of(sighted, planning(&sighted.issue.team)))
            .collect(),
        in_progress_counts_by_team: app.sightings.in_progress(),
        stale: stale.keys().cloned().collect(),
        stale_since: stale,
    }))
}

fn is_planning(mapping: &Mapping, team: &TeamKey) -> bool {
    mapping.team_key == *team && mapping.planning_enabled
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IssuesView {
    issues: Vec<IssueView>,
    in_progress_counts_by_team: BTreeMap<TeamKey, u32>,
    /// Mappings whose issues the last poll could not read.
    stale: Vec<TeamKey>,
    /// How old what is shown of them is; null when they were never seen.
    stale_since: BTreeMap<TeamKey, Option<Timestamp>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IssueView {
    id: IssueId,
    identifier: IssueKey,
    title: String,
    url: String,
    team_key: TeamKey,
    state_name: String,
    state: Progress,
    /// Whether it asks for a run and no open issue stands in its way.
    ready: bool,
    planning_pending: bool,
    /// The label or the field value that shows its stage.
    marker: Option<&'static str>,
    decision: Decision,
}

impl IssueView {
    fn of(sighted: &Sighted, planning: bool) -> Self {
        let Sighted { issue, decision } = sighted;
        let needs = issue.stage.phase_needed(planning);
        Self {
            id: issue.issue.id.clone(),
            identifier: issue.issue.key.clone(),
            title: issue.issue.title.clone(),
            url: issue.issue.url.clone(),
            team_key: issue.team.clone(),
            state_name: issue.state_name.clone(),
            state: issue.progress,
            ready: needs.is_some() && issue.open_blockers.is_empty(),
            planning_pending: needs == Some(Phase::Planning),
            marker: marker(issue.issue.system, issue.stage),
            decision: decision.clone(),
        }
    }
}

fn marker(system: System, stage: Stage) -> Option<&'static str> {
    match system {
        System::A => stage.label(),
        System::B => Some(stage.status()),
    }
}
