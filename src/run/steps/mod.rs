//! Steps of a run, one module each. A step changes the run context and returns its outcome. The
//! executor reports it and handles failures.

mod clone;
mod custom_step;
mod feedback_loop;
mod install;
mod plan;
mod post_push_review;
mod preflight;
mod push;
mod review;
mod setup;
mod verify;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::agent::{AgentAnswer, AgentPass};
use super::context::{RunContext, StepOutcome};
use super::executor;
use super::failure::RunFailure;
use super::programs::system_program;
use pipeline::{StepDefinition, StepImplementation, StepKind};

pub(crate) use plan::FOLDER as PLAN_FOLDER;
pub(crate) use review::BlockingFinding;

/// Time reserved for checking and pushing the work.
const PUSH_RESERVE: Duration = Duration::from_secs(3 * 60);

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
        StepImplementation::Module(path) => custom_step::execute(run, step, path).await,
    }
}

/// Runs the repository's teardown script. Its result is reported and has no effect on the run.
pub(crate) async fn tear_down(run: &mut RunContext) {
    let Some(script) = run.state.repo_config.teardown.clone() else {
        return;
    };
    let step = executor::begin_step(run, "teardown", "teardown");
    let deadline = teardown_deadline(run.deadline, run.host_deadline, Instant::now());
    let result = run_repo_script(run, "teardown script", &script, deadline).await;
    match result {
        Ok(()) => executor::end_step(run, step, "passed", None),
        Err(reason) => {
            run.console.log(&reason);
            executor::end_step(run, step, "failed", Some(json!({ "reason": reason })));
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
    if run.state.already_pushed && creates_change(kind) {
        return Ok(StepOutcome::Skipped(
            "An earlier attempt of this dispatch pushed the change",
        ));
    }
    match kind {
        StepKind::Clone => clone::execute(run).await,
        StepKind::Install => install::execute(run).await,
        StepKind::Setup => setup::execute(run).await,
        StepKind::FeedbackLoop => feedback_loop::execute(run).await,
        StepKind::Preflight => preflight::execute(run).await,
        StepKind::Push => push::execute(run).await,
        StepKind::Verify => verify::execute(run).await,
        StepKind::PostPushReview => post_push_review::execute(run, inputs).await,
        StepKind::Plan => plan::execute(run).await,
    }
}

/// Runs an agent pass. It is stopped early enough to check and push the work.
async fn run_agent_pass(run: &mut RunContext, pass: &AgentPass) -> Result<AgentAnswer, RunFailure> {
    run.agent.model = run.model(pass.role);
    let latest = run
        .deadline
        .checked_sub(PUSH_RESERVE)
        .unwrap_or(run.deadline);
    let deadline = latest.max(Instant::now());
    let meter = run.progress.usage_meter();
    run.agent
        .run_pass_metered(pass, &run.folders, &run.console, deadline, meter)
        .await
}

/// Splits a command line at spaces, for programs started without a shell.
fn split_words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a script of the repository with `bash -euo pipefail`. The script is read from a file, so
/// that a command reading standard input does not consume it.
///
/// # Errors
/// A message with the script's name, its exit code and its last lines.
async fn run_repo_script(
    run: &RunContext,
    name: &str,
    script: &str,
    deadline: Instant,
) -> Result<(), String> {
    let file = run
        .folders
        .make("scripts")
        .map(|folder| folder.join("script.sh"))
        .and_then(|file| std::fs::write(&file, script).map(|()| file))
        .map_err(|error| format!("{name}: cannot write the script file: {error}"))?;
    let mut command = vec![system_program("bash").to_string_lossy().into_owned()];
    command.extend(split_words("-euo pipefail"));
    command.push(file.to_string_lossy().into_owned());
    let cause = match run.run_script(&command, deadline).await {
        Ok(exit) if exit.success() => return Ok(()),
        Ok(exit) => exit.to_string(),
        Err(error) => error.to_string(),
    };
    let message = format!("{name} failed: {cause}\n{}", run.console.tail());
    Err(message.trim_end().to_owned())
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
