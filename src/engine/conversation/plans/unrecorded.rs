//! Tickets that show a complete plan without a stored gate: approvals became required after the plan was made.

use std::collections::HashSet;

use crate::app::App;
use crate::dispatch::non_shadow_jobs;
use domain::decision::WaitReason;
use domain::ids::IssueId;
use domain::issue::System;
use domain::job::{Job, JobKind};
use store::{StoreResult, mappings, plan_gates};

use super::open_gate;

/// Opens the gates of those of the issues that waited in the poll before, too: an index may lag behind a gate that has
/// ended. A ticket without a planning run waits for its marker.
pub(in crate::conversation) async fn open_unrecorded(
    app: &App,
    system: System,
    mut issues: Vec<IssueId>,
) -> StoreResult<()> {
    if !issues.is_empty() {
        let waited = waiting_in_latest_snapshot(app, system);
        issues.retain(|issue| waited.contains(issue));
    }
    if issues.is_empty() {
        return Ok(());
    }
    let now = app.core.now();
    let write = app.core.store.write(move |tx| {
        for id in &issues {
            let jobs = non_shadow_jobs(tx, id)?;
            let planned = jobs.iter().rev().find(|job| job.kind == JobKind::Planning);
            let is_active = jobs.iter().any(Job::is_active);
            let (Some(job), false, None) = (planned, is_active, plan_gates::get(tx, id)?) else {
                continue;
            };
            let mapping = mappings::get(tx, &job.team)?;
            if mapping.is_some_and(|mapping| mapping.awaits_approval()) {
                open_gate(tx, job, now)?;
            }
        }
        Ok(())
    });
    write.await
}

/// Issues that waited for an approval in the latest snapshot of a system.
fn waiting_in_latest_snapshot(app: &App, system: System) -> HashSet<IssueId> {
    let snapshot = app.live.poll_snapshots.all().remove(&system);
    let snapshot = snapshot.unwrap_or_default();
    let waiting = snapshot
        .issues
        .iter()
        .filter(|polled| polled.decision.reason == Some(WaitReason::Approval));
    waiting
        .map(|polled| polled.issue.issue.id.clone())
        .collect()
}
