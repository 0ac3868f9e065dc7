//! Keep-alive: keeps a session's machine for a person until its timeout.

use tokio::time::sleep_until;

use crate::context::{Dispatch, RunContext};
use crate::failure::RunFailure;
use domain::job::PullRequestRef;
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
    dispatch: &Dispatch,
    definition: PipelineDefinition,
) -> PipelineDefinition {
    if !is_interactive(dispatch) {
        return definition;
    }
    let mut part = definition;
    part.steps
        .retain(|planned| planned.implementation.is_preparation());
    part
}

/// Returns the reason to keep the session, if any. A run that was cancelled or asked questions is never kept.
pub(crate) fn reason(
    dispatch: &Dispatch,
    result: &Result<(), RunFailure>,
) -> Option<KeepAliveReason> {
    let code = result.as_ref().err().and_then(|failure| failure.code);
    let is_over = matches!(code, Some(FailureCode::Cancelled | FailureCode::NeedsInput));
    if is_over || dispatch.config.phase != RunPhase::Implementation {
        return None;
    }
    match dispatch.config.session_mode? {
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
    if let Err(failure) = &result {
        run.reporting.fail_open_steps(&failure.reason);
    }
    if reason == KeepAliveReason::Interactive {
        run.reporting
            .status_reporter
            .report(&SessionEvent::SetupComplete);
    }
    let step = run.reporting.begin_step("hold", "hold");
    run.reporting.log(&format!(
        "Session kept for a person until it times out. Work tree: {}",
        run.workspace.folders.work_tree().display()
    ));
    let is_stopped = tokio::select! {
        _ = run.limits.stop_signal.wait() => true,
        () = sleep_until(run.limits.deadline) => false,
    };
    run.reporting.end_step(step, "passed", None);
    if is_stopped {
        return Err(RunFailure::stopped());
    }
    match find_pull(run).await {
        Ok(Some(pull)) => {
            run.publication.pull = Some(pull);
            Ok(())
        }
        Ok(None) => result,
        Err(failure) => {
            run.reporting.log(&failure.reason);
            result
        }
    }
}

fn is_interactive(dispatch: &Dispatch) -> bool {
    dispatch.config.phase == RunPhase::Implementation
        && dispatch.config.session_mode == Some(SessionMode::Interactive)
}

async fn find_pull(run: &mut RunContext) -> Result<Option<PullRequestRef>, RunFailure> {
    let access = run.connections.fetch_repo_access(&run.workspace).await?;
    run.connections.find_open_pull(&access, &run.dispatch).await
}
