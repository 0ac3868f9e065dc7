//! Effects that a host may have taken without our hearing of it. A CI run is found by the dispatch id in
//! its name, a comment by the effect's.

use super::{Acted, Failure, github, session};
use crate::app::App;
use crate::watch::CLOCK_SKEW;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::time::Timestamp;
use domain::transition::Event;
use store::jobs;
use store::outbox::Errand;
use vendors::scm::WorkflowRun;
use vendors::session_hosts::ci;

/// The run of a job that the host was asked for at `tried_at`.
///
/// # Errors
/// When the host cannot be asked, and while the run may still appear in its list.
pub(super) async fn find(
    app: &App,
    job: &Job,
    tried_at: Timestamp,
) -> Result<Option<WorkflowRun>, Failure> {
    let since = job.reserved_at - CLOCK_SKEW;
    let found = ci::find(github(app)?, &job.repo, &job.id, since).await?;
    if found.is_none() {
        wait(app, tried_at, "have started the run")?;
    }
    Ok(found)
}

/// Puts off the repeat of an effect that its host does not show yet.
///
/// # Errors
/// While the try that ended at `tried_at` may still reach the host.
pub(super) fn wait(app: &App, tried_at: Timestamp, what: &str) -> Result<(), Failure> {
    if app.now().since(tried_at) >= app.pace.appears_within {
        return Ok(());
    }
    let settling = format!("its first try may {what}; waiting for it to appear");
    Err(Failure::passing(&settling))
}

/// The run has started; if its job has ended meanwhile, it is owed its end.
pub(super) fn started(job: &Job, run: WorkflowRun) -> Acted {
    let run = Some(RunHandle::Ci {
        id: run.id,
        url: run.url,
    });
    Acted::Told(job.id.clone(), Event::Started { run })
}

/// A start that nobody waits for any more: the run was seen, or its job has ended. What an earlier try
/// may have started would go on for nobody, unless it has reported: then it ends by itself.
pub(super) async fn adopt(app: &App, errand: &Errand, job: &Job) -> Result<Acted, Failure> {
    if job.run.is_some() {
        return Ok(Acted::Done);
    }
    if let Some(host) = job.runner.host() {
        return session::adopt(app, job, host).await;
    }
    match errand.unsure_since {
        Some(tried_at) if !job.is_active() && !job.reported => sought(app, job, tried_at).await,
        _ => Ok(Acted::Done),
    }
}

/// Ends the run of a job that has ended without having seen it.
pub(super) async fn end(app: &App, errand: &Errand, job: &JobId) -> Result<Acted, Failure> {
    let known = app.store.read(|tx| jobs::get(tx, job));
    match known.map_err(|error| Failure::passing(&error.to_string()))? {
        Some(job) if job.run.is_none() => {
            let tried_at = job.dispatched_at.unwrap_or(errand.pushed_at);
            sought(app, &job, tried_at).await
        }
        // It was seen meanwhile and is owed its end by that.
        _ => Ok(Acted::Done),
    }
}

async fn sought(app: &App, job: &Job, tried_at: Timestamp) -> Result<Acted, Failure> {
    let found = find(app, job, tried_at).await?;
    Ok(found.map_or(Acted::Done, |run| started(job, run)))
}
