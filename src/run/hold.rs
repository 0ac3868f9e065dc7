//! Keeping a session for a person, who works in its machine until its time is over.

use tokio::time::sleep_until;

use super::executor;
use super::run::{Failure, PullRef, Run};
use domain::mapping::SessionMode;
use domain::report::{FailureCode, RunPhase};
use domain::session_event::SessionEvent;
use pipeline::Definition;

/// Why a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A person is to do the work.
    ForWork,
    /// A person is to see what went wrong.
    AfterFailure,
}

/// What of a pipeline is left to the run: all of it, or only what prepares the work of a person.
pub fn part_of(run: &Run, definition: Definition) -> Definition {
    if !is_interactive(run) {
        return definition;
    }
    let mut part = definition;
    part.steps.retain(|planned| planned.work.prepares());
    part
}

/// Whether a run that ended like this is kept. Whoever stops one does not want it kept.
pub fn why(run: &Run, ended: &Result<(), Failure>) -> Option<Kept> {
    let code = ended.as_ref().err().and_then(|failure| failure.code);
    if code == Some(FailureCode::Cancelled) || run.config.phase != RunPhase::Implementation {
        return None;
    }
    match run.config.session_mode? {
        SessionMode::Interactive => Some(Kept::ForWork),
        SessionMode::Hybrid if ended.is_err() => Some(Kept::AfterFailure),
        SessionMode::Hybrid | SessionMode::Autonomous => None,
    }
}

/// Waits until the time is over. The session has succeeded when there is a pull request then, whoever
/// opened it.
///
/// # Errors
/// How the run had ended before, or that it was stopped.
pub async fn keep(run: &mut Run, kept: Kept, ended: Result<(), Failure>) -> Result<(), Failure> {
    match &ended {
        Ok(()) => {}
        Err(failure) => executor::end_open(run, "failed", &failure.reason),
    }
    if kept == Kept::ForWork {
        run.herald.tell(&SessionEvent::SetupComplete);
    }
    let step = executor::begin(run, "hold", "hold");
    run.console.say(&format!(
        "the session is kept for a person until its time is over; the work is in {}",
        run.folders.tree().display()
    ));
    let is_stopped = tokio::select! {
        _ = run.stop.given() => true,
        () = sleep_until(run.deadline) => false,
    };
    executor::end(run, step, "passed", None);
    if is_stopped {
        return Err(Failure::stopped());
    }
    match opened(run).await {
        Ok(Some(pull)) => {
            run.found.pull = Some(pull);
            Ok(())
        }
        Ok(None) => ended,
        Err(failure) => {
            run.console.say(&failure.reason);
            ended
        }
    }
}

fn is_interactive(run: &Run) -> bool {
    run.config.phase == RunPhase::Implementation
        && run.config.session_mode == Some(SessionMode::Interactive)
}

/// The pull request of the run's branch.
async fn opened(run: &mut Run) -> Result<Option<PullRef>, Failure> {
    let access = run.open_access().await?;
    let host = run.host(&access)?;
    let pull = host.open_pull(&run.repo, &run.config.branch).await;
    let pull = pull.map_err(Failure::other)?;
    Ok(pull.map(|pull| PullRef {
        number: pull.number,
        url: pull.url,
    }))
}
