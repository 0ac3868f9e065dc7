//! `/api/issues`: flagged issues of the last poll and issues whose last run failed, with their decisions.

use std::collections::{BTreeMap, HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::decision::{Decision, DecisionOutcome, FAILURE_VALIDITY};
use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::issue::{Phase, StatusCategory, System};
use domain::job::Job;
use domain::job_filter::StateClass;
use domain::mapping::Mapping;
use domain::stage::Stage;
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};
use store::{ReadableTx, StoreResult, decisions, failed_runs, jobs, mappings};

use super::poll_snapshot::{MergedPollSnapshot, load_poll_snapshot};
use super::why;

/// Maximum number of failed runs that are considered. More in [`FAILURE_VALIDITY`] mean that nothing works.
const MAX_FAILURES: usize = 5_000;

/// Routes of `/api/issues`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/issues", "listIssues", list).returns::<IssuesView<'_>>()]
}

async fn list(app: App) -> ApiResult {
    let snapshot = load_poll_snapshot(&app)?;
    let in_progress = app.live.poll_snapshots.in_progress();
    // There may be thousands of issues, so serializing them must not block the threads that serve requests.
    let now = app.core.now();
    let response = app.core.store().read_long(move |tx| {
        let mappings = mappings::all(tx)?;
        let failures = failures(tx, now)?;
        let view = IssuesView::of(&snapshot, &failures, &mappings, in_progress);
        Ok(ok(&view))
    });
    Ok(response.await?)
}

/// Issue whose last run failed, with the decision that follows from it.
struct FailedIssue {
    job: Job,
    decision: Decision,
}

/// Loads the issues whose last run failed and about which no poll has decided anew, latest failure first. A
/// run that was cancelled is not waiting for anybody.
fn failures(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<Vec<FailedIssue>> {
    let (mut seen, mut failed) = (HashSet::new(), Vec::new());
    for id in failed_runs::since(tx, now - FAILURE_VALIDITY, MAX_FAILURES)? {
        let Some(job) = jobs::get(tx, &id)? else {
            continue;
        };
        let is_latest = seen.insert(job.issue.id.clone());
        if !is_latest || StateClass::of(&job.state) == StateClass::Cancelled {
            continue;
        }
        let of_issue = jobs::of_issue(tx, &job.issue.id)?;
        let history = decisions::get(tx, &job.issue.key)?;
        let history = history.filter(|row| row.issue.id == job.issue.id);
        let decision = why::current_decision(tx, history.as_ref(), &of_issue, now)?;
        if let Some(decision) = decision
            && decision.outcome == DecisionOutcome::Failed
        {
            failed.push(FailedIssue { job, decision });
        }
    }
    Ok(failed)
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
        failures: &'a [FailedIssue],
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
        let mut failed: HashMap<&IssueId, &FailedIssue> = failures
            .iter()
            .map(|failed| (&failed.job.issue.id, failed))
            .collect();
        let polled = snapshot.issues().map(|polled| {
            let view = IssueView::of(polled, planning.contains(&polled.issue.team));
            match failed.remove(&polled.issue.issue.id) {
                Some(failed) => view.with_failure(failed),
                None => view,
            }
        });
        let mut issues: Vec<IssueView<'_>> = polled.collect();
        let unlabelled = failures
            .iter()
            .filter(|one| failed.contains_key(&one.job.issue.id));
        issues.extend(unlabelled.map(IssueView::of_failed));
        Self {
            issues,
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
    /// Name of the workflow state in the ticketing system. `None` for an issue that is no longer flagged.
    state_name: Option<&'a str>,
    /// `None` for an issue that is no longer flagged.
    state: Option<StatusCategory>,
    /// Whether the issue is flagged for a run and not blocked by an open issue.
    ready: bool,
    planning_pending: bool,
    /// Label or field value that marks the stage.
    marker: Option<&'static str>,
    decision: &'a Decision,
    /// Id of the last run, if it failed.
    failed_job_id: Option<&'a JobId>,
}

impl<'a> IssueView<'a> {
    /// Builds the view of an issue that lost its trigger when its run failed.
    fn of_failed(failed: &'a FailedIssue) -> Self {
        let FailedIssue { job, decision } = failed;
        Self {
            id: &job.issue.id,
            identifier: &job.issue.key,
            title: &job.issue.title,
            url: &job.issue.url,
            team_key: &job.team,
            state_name: None,
            state: None,
            ready: false,
            planning_pending: false,
            marker: None,
            decision,
            failed_job_id: Some(&job.id),
        }
    }

    fn with_failure(self, failed: &'a FailedIssue) -> Self {
        Self {
            decision: &failed.decision,
            failed_job_id: Some(&failed.job.id),
            ..self
        }
    }

    fn of(polled: &'a PolledIssue, planning: bool) -> Self {
        let PolledIssue { issue, decision } = polled;
        let required = issue.stage.required_phase(planning);
        Self {
            id: &issue.issue.id,
            identifier: &issue.issue.key,
            title: &issue.issue.title,
            url: &issue.issue.url,
            team_key: &issue.team,
            state_name: Some(&issue.state_name),
            state: Some(issue.status_category),
            ready: required.is_some() && issue.open_blockers.is_empty(),
            planning_pending: required == Some(Phase::Planning),
            marker: marker(issue.issue.system, issue.stage),
            decision,
            failed_job_id: None,
        }
    }
}

fn marker(system: System, stage: Stage) -> Option<&'static str> {
    match system {
        System::Linear | System::GitHub => stage.label(),
        System::Jira => stage.jira_status(),
    }
}
