//! Keeping a session for a person, who works in its machine until its time is over.

use tokio::time::sleep_until;

use super::context::{OpenedPullRequest, RunContext, RunFailure};
use super::executor;
use domain::mapping::SessionMode;
use domain::report::{FailureCode, RunPhase};
use domain::session_event::SessionEvent;
use pipeline::PipelineDefinition;

/// Why a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAliveReason {
    /// A person is to do the work.
    Interactive,
    /// A person is to see what went wrong.
    Failure,
}

/// What of a pipeline is left to the run: all of it, or only what prepares the work of a person.
pub fn effective_pipeline(run: &RunContext, definition: PipelineDefinition) -> PipelineDefinition {
    if !is_interactive(run) {
        return definition;
    }
    let mut part = definition;
    part.steps
        .retain(|planned| planned.implementation.is_preparation());
    part
}

/// Whether a run that ended like this is kept. Whoever stops one does not want it kept.
pub fn reason(run: &RunContext, ended: &Result<(), RunFailure>) -> Option<KeepAliveReason> {
    let code = ended.as_ref().err().and_then(|failure| failure.code);
    if code == Some(FailureCode::Cancelled) || run.config.phase != RunPhase::Implementation {
        return None;
    }
    match run.config.session_mode? {
        SessionMode::Interactive => Some(KeepAliveReason::Interactive),
        SessionMode::Hybrid if ended.is_err() => Some(KeepAliveReason::Failure),
        SessionMode::Hybrid | SessionMode::Autonomous => None,
    }
}

/// Waits until the time is over. The session has succeeded when there is a pull request then, whoever
/// opened it.
///
/// # Errors
/// How the run had ended before, or that it was stopped.
pub async fn keep_session(
    run: &mut RunContext,
    kept: KeepAliveReason,
    ended: Result<(), RunFailure>,
) -> Result<(), RunFailure> {
    match &ended {
        Ok(()) => {}
        Err(failure) => executor::end_open_steps(run, "failed", &failure.reason),
    }
    if kept == KeepAliveReason::Interactive {
        run.status_reporter.report(&SessionEvent::SetupComplete);
    }
    let step = executor::begin_step(run, "hold", "hold");
    run.console.log(&format!(
        "the session is kept for a person until its time is over; the work is in {}",
        run.folders.work_tree().display()
    ));
    let is_stopped = tokio::select! {
        _ = run.stop_signal.wait() => true,
        () = sleep_until(run.deadline) => false,
    };
    executor::end_step(run, step, "passed", None);
    if is_stopped {
        return Err(RunFailure::stopped());
    }
    match opened(run).await {
        Ok(Some(pull)) => {
            run.state.pull = Some(pull);
            Ok(())
        }
        Ok(None) => ended,
        Err(failure) => {
            run.console.log(&failure.reason);
            ended
        }
    }
}

fn is_interactive(run: &RunContext) -> bool {
    run.config.phase == RunPhase::Implementation
        && run.config.session_mode == Some(SessionMode::Interactive)
}

/// The pull request of the run's branch.
async fn opened(run: &mut RunContext) -> Result<Option<OpenedPullRequest>, RunFailure> {
    let access = run.fetch_repo_access().await?;
    let host = run.github_client(&access)?;
    let pull = host.find_open_pull(&run.repo, &run.config.branch).await;
    let pull = pull.map_err(RunFailure::other)?;
    Ok(pull.map(|pull| OpenedPullRequest {
        number: pull.number,
        url: pull.url,
    }))
}
