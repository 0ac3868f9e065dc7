//! Runs of issues that people have closed meanwhile.
//!
//! A poll shows open, flagged issues only. One that has a run and is not among them was closed,
//! deleted, or has just lost its labels; only its system can tell which.

use std::collections::HashSet;

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::ids::IssueId;
use domain::issue::System;
use domain::job::Job;
use domain::transition::JobEvent;
use store::{StoreResult, audit, jobs};

use super::dispatch;
use super::job_events::{self, BreakerPolicy, EventOutcome};

/// Ends the runs that work for closed issues of a system. `flagged` is what it has just shown.
pub(super) async fn cancel_runs(
    app: &App,
    system: System,
    flagged: &HashSet<IssueId>,
) -> StoreResult<()> {
    let Some(account) = app.account(system) else {
        return Ok(());
    };
    let mut unseen = app.store.read(jobs::active)?;
    // Work on an open pull request outlives its ticket.
    unseen.retain(|job| {
        job.issue.system == system && job.kind.phase().is_some() && !flagged.contains(&job.issue.id)
    });
    if unseen.is_empty() {
        return Ok(());
    }
    let asked: Vec<_> = unseen.iter().map(|job| job.issue.clone()).collect();
    let closed = match account.closed_issues(&asked).await {
        Ok(closed) => closed,
        Err(error) => {
            tracing::warn!(account = account.name(), %error, "The states of issues with a run could not be read.");
            return Ok(());
        }
    };
    for job in unseen.iter().filter(|job| closed.contains(&job.issue.id)) {
        end_run(app, job).await?;
    }
    Ok(())
}

async fn end_run(app: &App, job: &Job) -> StoreResult<()> {
    tracing::info!(job_id = %job.id, issue = %job.issue.key, team = %job.team, "The issue was closed; its run is ended.");
    let (id, policy, now) = (
        job.id.clone(),
        BreakerPolicy::from_config(&app.config),
        app.now(),
    );
    let deed = Actor::service().audit_event(Action::RunCancelled, &job.issue.key);
    let deed = deed.with_detail(format!(
        "the issue was closed; {}",
        dispatch::audit_details(job)
    ));
    let ended = app.store.write(move |tx| {
        let happened = job_events::apply(tx, policy, &id, JobEvent::IssueClosed, now)?;
        if let EventOutcome::Advanced(_) = happened {
            audit::append(tx, &deed, now)?;
        }
        Ok(happened)
    });
    job_events::log_job_end(&ended.await?, now);
    Ok(())
}
