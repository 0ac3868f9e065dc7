//! Keep-alive: keeps a session's machine for a person until its timeout.

use tokio::time::sleep_until;

use super::context::{OpenedPullRequest, RunContext};
use super::executor;
use super::failure::RunFailure;
use domain::mapping::SessionMode;
use domain::report::{FailureCode, RunPhase};
use domain::session_event::SessionEvent;
use pipeline::PipelineDefinition;

/// Reason for keeping a session alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepAliveReason {
    /// A person does the work (interactive session).
    Interactive,
    /// A person examines the failure (hybrid session).
    Failure,
}

/// Returns the steps that the run executes: all, or only the preparation in an interactive session.
pub(crate) fn effective_pipeline(
    run: &RunContext,
    definition: PipelineDefinition,
) -> PipelineDefinition {
    if !is_interactive(run) {
        return definition;
    }
    let mut part = definition;
    part.steps
        .retain(|planned| planned.implementation.is_preparation());
    part
}

/// Returns the reason to keep the session, if any. A cancelled run is never kept.
pub(crate) fn reason(run: &RunContext, result: &Result<(), RunFailure>) -> Option<KeepAliveReason> {
    let code = result.as_ref().err().and_then(|failure| failure.code);
    if code == Some(FailureCode::Cancelled) || run.config.phase != RunPhase::Implementation {
        return None;
    }
    match run.config.session_mode? {
        SessionMode::Interactive => Some(KeepAliveReason::Interactive),
        SessionMode::Hybrid if result.is_err() => Some(KeepAliveReason::Failure),
        SessionMode::Hybrid | SessionMode::Autonomous => None,
    }
}

/// Waits until the deadline. The session succeeds if a pull request exists for its branch then, regardless
/// of who opened it.
///
/// # Errors
/// The failure of the run itself, or cancellation.
pub(crate) async fn keep_session(
    run: &mut RunContext,
    reason: KeepAliveReason,
    result: Result<(), RunFailure>,
) -> Result<(), RunFailure> {
    match &result {
        Ok(()) => {}
        Err(failure) => executor::end_open_steps(run, "failed", &failure.reason),
    }
    if reason == KeepAliveReason::Interactive {
        run.status_reporter.report(&SessionEvent::SetupComplete);
    }
    let step = executor::begin_step(run, "hold", "hold");
    run.console.log(&format!(
        "Session kept for a person until it times out. Work tree: {}",
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
    match find_pull(run).await {
        Ok(Some(pull)) => {
            run.state.pull = Some(pull);
            Ok(())
        }
        Ok(None) => result,
        Err(failure) => {
            run.console.log(&failure.reason);
            result
        }
    }
}

fn is_interactive(run: &RunContext) -> bool {
    run.config.phase == RunPhase::Implementation
        && run.config.session_mode == Some(SessionMode::Interactive)
}

/// Returns the open pull request of the run's branch.
async fn find_pull(run: &mut RunContext) -> Result<Option<OpenedPullRequest>, RunFailure> {
    let access = run.fetch_repo_access().await?;
    let github = run.github_client(&access)?;
    let pull = github.find_open_pull(&run.repo, &run.config.branch).await;
    let pull = pull.map_err(RunFailure::other)?;
    Ok(pull.map(|pull| OpenedPullRequest {
        number: pull.number,
        url: pull.url,
    }))
}
