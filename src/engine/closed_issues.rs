//! Cancellation of runs whose issue was closed.
//!
//! A poll returns only open, flagged issues. An issue with an active run that is missing was closed
//! or deleted, or has lost its labels; the ticketing system is asked which.

use std::collections::HashSet;

use crate::app::{App, Core};
use domain::audit::{Action, Actor};
use domain::ids::IssueId;
use domain::issue::System;
use domain::job::Job;
use domain::transition::JobEvent;
use store::{StoreResult, audit, jobs};

use super::dispatch;
use super::job_events::{self, BreakerPolicy, EventOutcome};

/// Cancels the runs of closed issues of a system. `flagged` contains the issues of the latest poll.
pub(super) async fn cancel_runs(
    app: &App,
    system: System,
    flagged: &HashSet<IssueId>,
) -> StoreResult<()> {
    let Some(account) = app.vendors.account(system) else {
        return Ok(());
    };
    let mut unseen = app.core.store.read(jobs::active)?;
    // Work on an open pull request outlives its ticket.
    unseen.retain(|job| {
        job.issue.system == system && job.kind.phase().is_some() && !flagged.contains(&job.issue.id)
    });
    if unseen.is_empty() {
        return Ok(());
    }
    let issues: Vec<_> = unseen.iter().map(|job| job.issue.clone()).collect();
    let closed = match account.closed_issues(&issues).await {
        Ok(closed) => closed,
        Err(error) => {
            tracing::warn!(account = account.name(), %error, "Failed to read the states of issues with active runs.");
            return Ok(());
        }
    };
    for job in unseen.iter().filter(|job| closed.contains(&job.issue.id)) {
        cancel_run(&app.core, job).await?;
    }
    Ok(())
}

async fn cancel_run(core: &Core, job: &Job) -> StoreResult<()> {
    tracing::info!(job_id = %job.id, issue = %job.issue.key, team = %job.team, "Cancelling the run of a closed issue.");
    let (id, policy, now) = (
        job.id.clone(),
        BreakerPolicy::from_config(&core.config),
        core.now(),
    );
    let event = Actor::service().audit_event(Action::RunCancelled, &job.issue.key);
    let event = event.with_detail(format!(
        "the issue was closed; {}",
        dispatch::audit_details(job)
    ));
    let ended = core.store.write(move |tx| {
        let outcome = job_events::apply(tx, policy, &id, JobEvent::IssueClosed, now)?;
        if let EventOutcome::Advanced(_) = outcome {
            audit::append(tx, &event, now)?;
        }
        Ok(outcome)
    });
    job_events::log_job_end(&ended.await?, now);
    Ok(())
}
