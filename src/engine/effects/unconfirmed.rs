//! Effects whose response was lost, so that the vendor may have performed them. A CI run is found
//! by the dispatch ID in its name, a comment by its idempotency key.

use super::{EffectFailure, EffectOutcome, github, session_machine};
use crate::app::{App, Core};
use crate::run_monitor::CLOCK_SKEW;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::machine::HostKind;
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
    EffectOutcome::job_event(&job.id, JobEvent::Started { run })
}

/// Handles a start that is no longer needed, because the run was seen or its job has ended. If an
/// earlier attempt may have started the run of an ended job, an effect of its own looks it up and
/// stops it, unless it has reported: then it ends by itself.
pub(super) async fn adopt(
    app: &App,
    entry: &OutboxEntry,
    job: &Job,
) -> Result<EffectOutcome, EffectFailure> {
    if job.run.is_some() {
        return Ok(EffectOutcome::Done);
    }
    let is_abandoned = !job.is_active() && !job.result_accepted;
    let may_exist = match job.runner.host() {
        // A machine may exist after an attempt that failed, because it takes several requests.
        Some(_) => entry.attempts > 1,
        None => entry.outcome_unknown_since.is_some(),
    };
    match job.runner.host() {
        _ if is_abandoned && may_exist => {
            Ok(EffectOutcome::job_event(&job.id, JobEvent::StartUnknown))
        }
        Some(host) if !is_abandoned => session_machine::adopt(&app.vendors, job, host).await,
        _ => Ok(EffectOutcome::Done),
    }
}

/// Looks up the run of a job that ended before its run was found. A found run is stopped by the
/// event that it causes.
pub(super) async fn end_run(
    app: &App,
    entry: &OutboxEntry,
    job: &JobId,
) -> Result<EffectOutcome, EffectFailure> {
    let known = app.core.store.read(|tx| jobs::get(tx, job));
    match known.map_err(|error| EffectFailure::transient(&error.to_string()))? {
        Some(job) if job.run.is_none() => {
            let tried_at = job.dispatched_at.unwrap_or(entry.pushed_at);
            match job.runner.host() {
                Some(host) => find_and_adopt_machine(app, &job, host, tried_at).await,
                None => find_and_adopt(app, &job, tried_at).await,
            }
        }
        // The run was found meanwhile; that event cancels it.
        _ => Ok(EffectOutcome::Done),
    }
}

async fn find_and_adopt_machine(
    app: &App,
    job: &Job,
    host: HostKind,
    tried_at: Timestamp,
) -> Result<EffectOutcome, EffectFailure> {
    let found = session_machine::adopt(&app.vendors, job, host).await?;
    if let EffectOutcome::Done = found {
        check_settled(&app.core, tried_at, "have created the machine")?;
    }
    Ok(found)
}

async fn find_and_adopt(
    app: &App,
    job: &Job,
    tried_at: Timestamp,
) -> Result<EffectOutcome, EffectFailure> {
    let found = find_run(app, job, tried_at).await?;
    Ok(found.map_or(EffectOutcome::Done, |run| run_started(job, run)))
}
