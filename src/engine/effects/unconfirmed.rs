//! Effects whose response was lost, so that the vendor may have performed them. A CI run is found
//! by the dispatch ID in its name, a comment by its idempotency key.

use super::{EffectFailure, EffectOutcome, github, session_machine};
use crate::app::{App, Core};
use crate::run_monitor::CLOCK_SKEW;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::time::Timestamp;
use domain::transition::JobEvent;
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::scm::WorkflowRun;
use vendors::session_hosts::ci;

/// Finds the run of a job whose dispatch was requested at `tried_at`.
///
/// # Errors
/// Fails if GitHub cannot be reached, and while the run may still appear in its list.
pub(super) async fn find_run(
    app: &App,
    job: &Job,
    tried_at: Timestamp,
) -> Result<Option<WorkflowRun>, EffectFailure> {
    let since = job.reserved_at - CLOCK_SKEW;
    let found = ci::find(github(&app.vendors)?, &job.repo, &job.id, since).await?;
    if found.is_none() {
        check_settled(&app.core, tried_at, "have started the run")?;
    }
    Ok(found)
}

/// Delays the repetition of an effect that does not appear at its vendor.
///
/// # Errors
/// Fails while the attempt that ended at `tried_at` may still take effect.
pub(super) fn check_settled(
    core: &Core,
    tried_at: Timestamp,
    what: &str,
) -> Result<(), EffectFailure> {
    if core.now().since(tried_at) >= core.timings.max_visibility_delay {
        return Ok(());
    }
    let settling = format!("the previous attempt may {what}; waiting for it to appear");
    Err(EffectFailure::transient(&settling))
}

/// Outcome of a started run. If its job has ended meanwhile, the event causes its cancellation.
pub(super) fn run_started(job: &Job, run: WorkflowRun) -> EffectOutcome {
    let run = Some(RunHandle::Ci {
        id: run.id,
        url: run.url,
    });
    EffectOutcome::JobEvent(job.id.clone(), JobEvent::Started { run })
}

/// Handles a start that is no longer needed, because the run was seen or its job has ended. A run
/// that an earlier attempt may have started is cancelled, unless it has reported: then it ends by
/// itself.
pub(super) async fn adopt(
    app: &App,
    entry: &OutboxEntry,
    job: &Job,
) -> Result<EffectOutcome, EffectFailure> {
    if job.run.is_some() {
        return Ok(EffectOutcome::Done);
    }
    if let Some(host) = job.runner.host() {
        return session_machine::adopt(&app.vendors, job, host).await;
    }
    match entry.outcome_unknown_since {
        Some(tried_at) if !job.is_active() && !job.result_accepted => {
            find_and_adopt(app, job, tried_at).await
        }
        _ => Ok(EffectOutcome::Done),
    }
}

/// Cancels the run of a job that ended before its run was found.
pub(super) async fn end_run(
    app: &App,
    entry: &OutboxEntry,
    job: &JobId,
) -> Result<EffectOutcome, EffectFailure> {
    let known = app.core.store.read(|tx| jobs::get(tx, job));
    match known.map_err(|error| EffectFailure::transient(&error.to_string()))? {
        Some(job) if job.run.is_none() => {
            let tried_at = job.dispatched_at.unwrap_or(entry.pushed_at);
            find_and_adopt(app, &job, tried_at).await
        }
        // The run was found meanwhile; that event cancels it.
        _ => Ok(EffectOutcome::Done),
    }
}

async fn find_and_adopt(
    app: &App,
    job: &Job,
    tried_at: Timestamp,
) -> Result<EffectOutcome, EffectFailure> {
    let found = find_run(app, job, tried_at).await?;
    Ok(found.map_or(EffectOutcome::Done, |run| run_started(job, run)))
}
