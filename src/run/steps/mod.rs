//! Steps of a run, one module each. A step takes the run context, or the parts of it that it uses,
//! and returns its outcome. The executor reports it and handles failures.

mod agent_pass;
mod base_merge;
mod clone;
mod custom_step;
mod earlier_work;
mod evidence;
mod feedback_loop;
mod install;
mod plan;
mod post_push_review;
mod preflight;
mod push;
mod question;
mod review;
mod setup;
mod ticket_material;
mod verify;

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use pipeline::{StepDefinition, StepImplementation, StepKind};

/// Maximum time of the teardown script.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Whether a step only serves to create the change, which already exists if it was pushed before.
fn creates_change(kind: StepKind) -> bool {
    matches!(kind, StepKind::FeedbackLoop | StepKind::Preflight)
}

/// Executes a step.
pub(crate) async fn execute_step(
    run: &mut RunContext,
    step: &StepDefinition,
) -> Result<StepOutcome, RunFailure> {
    match &step.implementation {
        StepImplementation::BuiltIn(kind) => built_in(run, *kind, &step.inputs).await,
        // Clone and push need the repository token, which no executable gets.
        StepImplementation::Module { path, kind } => match kind {
            Some(StepKind::Clone) => {
                let cloned = built_in(run, StepKind::Clone, &step.inputs).await?;
                let module = custom_step::execute(run, step, path).await?;
                Ok(cloned.with_outputs_of(module))
            }
            Some(StepKind::Push) => {
                let module = custom_step::execute(run, step, path).await?;
                let pushed = built_in(run, StepKind::Push, &step.inputs).await?;
                Ok(pushed.with_outputs_of(module))
            }
            _ => custom_step::execute(run, step, path).await,
        },
    }
}

/// Runs the repository's teardown script. Its result is reported and has no effect on the run.
pub(crate) async fn tear_down(run: &mut RunContext) {
    let Some(script) = &run.repo_config.teardown else {
        return;
    };
    let step = run.reporting.begin_step("teardown", "teardown");
    let limits = &run.limits;
    let deadline = teardown_deadline(limits.deadline, limits.host_deadline, Instant::now());
    let console = &run.reporting.console;
    let script = run
        .workspace
        .run_script(console, "teardown script", script, deadline);
    match script.await {
        Ok(()) => run.reporting.end_step(step, "passed", None),
        Err(reason) => {
            run.reporting.log(&reason);
            run.reporting.fail_step(step, &reason);
        }
    }
}

/// Returns the deadline of the teardown script. After the run's deadline it gets half of the time
/// until the host's deadline; the other half is reserved for the report.
fn teardown_deadline(deadline: Instant, host_deadline: Instant, now: Instant) -> Instant {
    let spare = host_deadline.saturating_duration_since(deadline) / 2;
    (now + TEARDOWN_TIMEOUT).min(deadline + spare)
}

async fn built_in(
    run: &mut RunContext,
    kind: StepKind,
    inputs: &Map<String, Value>,
) -> Result<StepOutcome, RunFailure> {
    if run.already_pushed() && creates_change(kind) {
        return Ok(StepOutcome::Skipped(
            "An earlier attempt of this dispatch pushed the change",
        ));
    }
    if let Some(reason) = base_merge::skip_reason(run, kind) {
        return Ok(StepOutcome::Skipped(reason));
    }
    match kind {
        StepKind::Clone => clone::execute(run).await,
        StepKind::Install => {
            let manager = run.repo_config.settings.package_manager.as_deref();
            install::execute(&run.workspace, &run.reporting, &run.limits, manager).await
        }
        StepKind::Setup => {
            let (phase, script) = (run.dispatch.config.phase, run.repo_config.setup.as_deref());
            let console = &run.reporting.console;
            setup::execute(&run.workspace, console, &run.limits, phase, script).await
        }
        StepKind::FeedbackLoop => feedback_loop::execute(run).await,
        StepKind::Preflight => {
            let checks = &mut run.change.preflight_checks;
            preflight::execute(&run.workspace, &run.reporting, &run.limits, checks).await
        }
        StepKind::Push => push::execute(run).await,
        StepKind::Verify => verify::execute(run).await,
        StepKind::PostPushReview => post_push_review::execute(run, inputs).await,
        StepKind::Plan => plan::execute(run).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_time_for_teardown_and_report_after_the_deadline() {
        let deadline = Instant::now() + Duration::from_secs(3600);
        let host_deadline = deadline + Duration::from_secs(180);
        let until = |now| teardown_deadline(deadline, host_deadline, now);
        let early = deadline - Duration::from_secs(1000);
        assert_eq!(until(early), early + TEARDOWN_TIMEOUT);
        for late in [deadline, deadline + Duration::from_secs(30)] {
            assert_eq!(until(late), deadline + Duration::from_secs(90));
        }
    }
}
