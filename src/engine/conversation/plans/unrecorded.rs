//! Tickets that show a complete plan, or its approval, without a stored gate: approvals became required after the plan
//! was made, or a person set the marker.

use std::collections::{HashMap, HashSet};

use crate::app::App;
use crate::dispatch::non_shadow_jobs;
use domain::comments;
use domain::decision::WaitReason;
use domain::effect::Effect;
use domain::ids::{IssueId, TeamKey};
use domain::issue::{IssueRef, System};
use domain::job::{Job, JobKind, JobState};
use domain::stage::Stage;
use store::outbox::OutboxEntry;
use store::{ReadableTx, StoreResult, mappings, outbox, plan_gates};

use super::{comment, open_gate, push_all, set_marker};

/// Opens the gates of those of the issues whose latest plan is still to be implemented. The others are planned as soon
/// as their trigger is set. Only issues that waited in the poll before count: an index may lag behind a gate that has
/// ended.
pub(in crate::conversation) async fn settle_unrecorded(
    app: &App,
    system: System,
    issues: Vec<IssueRef>,
) -> StoreResult<()> {
    if issues.is_empty() {
        return Ok(());
    }
    let mut waited = waiting_in_latest_snapshot(app, system);
    let waited = issues.into_iter().filter_map(|issue| {
        let team = waited.remove(&issue.id)?;
        Some((issue, team))
    });
    let waited: Vec<(IssueRef, TeamKey)> = waited.collect();
    if waited.is_empty() {
        return Ok(());
    }
    let now = app.core.now();
    let write = app.core.store.write(move |tx| {
        let given_up = outbox::dead(tx)?;
        let given_up: HashSet<&IssueId> = given_up.iter().filter_map(marked_issue).collect();
        for (issue, team) in &waited {
            let jobs = non_shadow_jobs(tx, &issue.id)?;
            // A marker that could not be replaced is left as it is.
            if given_up.contains(&issue.id)
                || jobs.iter().any(Job::is_active)
                || !is_unrecorded(tx, issue, team)?
            {
                continue;
            }
            // The marker may have been set by anybody. The one that replaces it shows what people are asked for.
            let effects = match open_plan(&jobs, team) {
                Some(job) => {
                    open_gate(tx, job, now)?;
                    vec![set_marker(issue, Stage::PlanReady)]
                }
                None => {
                    plan_gates::remove(tx, &issue.id)?;
                    let note = comment(issue, comments::no_plan());
                    vec![set_marker(issue, Stage::Triggered), note]
                }
            };
            push_all(tx, effects, now)?;
        }
        Ok(())
    });
    write.await
}

/// Returns the issue whose marker an update moves.
fn marked_issue(entry: &OutboxEntry) -> Option<&IssueId> {
    match &entry.effect {
        Effect::SetMarker { issue, .. } => Some(&issue.id),
        _ => None,
    }
}

/// Returns whether plans of a project wait for an approval, and none of this issue does or has one.
fn is_unrecorded(tx: &impl ReadableTx, issue: &IssueRef, team: &TeamKey) -> StoreResult<bool> {
    let mapping = mappings::get(tx, team)?;
    let gate = plan_gates::get(tx, &issue.id)?;
    let is_recorded = gate.is_some_and(|gate| gate.is_waiting() || gate.is_approved_in(team));
    let awaits_approval = mapping.is_some_and(|mapping| mapping.awaits_approval());
    Ok(awaits_approval && !is_recorded)
}

/// Returns the job of a project that made the latest plan, unless a later planning run failed or the plan led to a pull
/// request.
fn open_plan<'j>(jobs: &'j [Job], team: &TeamKey) -> Option<&'j Job> {
    let mut latest_first = jobs.iter().rev();
    let latest =
        latest_first.find(|job| job.kind == JobKind::Planning || job.has_opened_pull_request())?;
    let is_plan = latest.kind == JobKind::Planning && latest.state == JobState::Completed;
    (is_plan && latest.team == *team).then_some(latest)
}

/// Issues that waited for an approval in the latest snapshot of a system, with their projects.
fn waiting_in_latest_snapshot(app: &App, system: System) -> HashMap<IssueId, TeamKey> {
    let snapshot = app.live.poll_snapshots.all().remove(&system);
    let snapshot = snapshot.unwrap_or_default();
    let waiting = snapshot
        .issues
        .iter()
        .filter(|polled| polled.decision.reason == Some(WaitReason::Approval));
    waiting
        .map(|polled| (polled.issue.issue.id.clone(), polled.issue.team.clone()))
        .collect()
}
