//! Effects that a host may have taken without our hearing of it. A CI run is found by the dispatch id in
//! its name, a comment by the effect's.

use super::{EffectFailure, EffectOutcome, github, session_machine};
use crate::app::App;
use crate::run_monitor::CLOCK_SKEW;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::time::Timestamp;
use domain::transition::JobEvent;
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::scm::WorkflowRun;
use vendors::session_hosts::ci;

/// The run of a job that the host was asked for at `tried_at`.
///
/// # Errors
/// When the host cannot be asked, and while the run may still appear in its list.
pub(super) async fn find_run(
    app: &App,
    job: &Job,
    tried_at: Timestamp,
) -> Result<Option<WorkflowRun>, EffectFailure> {
    let since = job.reserved_at - CLOCK_SKEW;
    let found = ci::find(github(app)?, &job.repo, &job.id, since).await?;
    if found.is_none() {
        check_settled(app, tried_at, "have started the run")?;
    }
    Ok(found)
}

/// Puts off the repeat of an effect that its host does not show yet.
///
/// # Errors
/// While the try that ended at `tried_at` may still reach the host.
pub(super) fn check_settled(
    app: &App,
    tried_at: Timestamp,
    what: &str,
) -> Result<(), EffectFailure> {
    if app.now().since(tried_at) >= app.timings.max_visibility_delay {
        return Ok(());
    }
    let settling = format!("its first try may {what}; waiting for it to appear");
    Err(EffectFailure::transient(&settling))
}

/// The run has started; if its job has ended meanwhile, it is owed its end.
pub(super) fn run_started(job: &Job, run: WorkflowRun) -> EffectOutcome {
    let run = Some(RunHandle::Ci {
        id: run.id,
        url: run.url,
    });
    EffectOutcome::JobEvent(job.id.clone(), JobEvent::Started { run })
}

/// A start that nobody waits for any more: the run was seen, or its job has ended. What an earlier try
/// may have started would go on for nobody, unless it has reported: then it ends by itself.
pub(super) async fn adopt(
    app: &App,
    errand: &OutboxEntry,
    job: &Job,
) -> Result<EffectOutcome, EffectFailure> {
    if job.run.is_some() {
        return Ok(EffectOutcome::Done);
    }
    if let Some(host) = job.runner.host() {
        return session_machine::adopt(app, job, host).await;
    }
    match errand.outcome_unknown_since {
        Some(tried_at) if !job.is_active() && !job.result_accepted => {
            sought(app, job, tried_at).await
        }
        _ => Ok(EffectOutcome::Done),
    }
}

/// Ends the run of a job that has ended without having seen it.
pub(super) async fn end_run(
    app: &App,
    errand: &OutboxEntry,
    job: &JobId,
) -> Result<EffectOutcome, EffectFailure> {
    let known = app.store.read(|tx| jobs::get(tx, job));
    match known.map_err(|error| EffectFailure::transient(&error.to_string()))? {
        Some(job) if job.run.is_none() => {
            let tried_at = job.dispatched_at.unwrap_or(errand.pushed_at);
            sought(app, &job, tried_at).await
        }
        // It was seen meanwhile and is owed its end by that.
        _ => Ok(EffectOutcome::Done),
    }
}

async fn sought(app: &App, job: &Job, tried_at: Timestamp) -> Result<EffectOutcome, EffectFailure> {
    let found = find_run(app, job, tried_at).await?;
    Ok(found.map_or(EffectOutcome::Done, |run| run_started(job, run)))
}
