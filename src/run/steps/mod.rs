//! The steps of a run, one file each. A step gets the run, changes what was found, and says how it
//! went; what it reports and what comes after a failure is the executor's.

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
use super::context::{RunContext, RunFailure, StepOutcome};
use super::executor;
use super::programs::system_program;
use pipeline::{StepDefinition, StepImplementation, StepKind};

pub use plan::FOLDER as PLAN_FOLDER;
pub use review::BlockingFinding;

/// What a spent run still needs to check and push its work.
const PUSH_RESERVE: Duration = Duration::from_secs(3 * 60);

/// How long may a run tidy up after itself?
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Whether a step has nothing to do once this dispatch's commit is on the branch.
fn makes_the_change(kind: StepKind) -> bool {
    matches!(kind, StepKind::FeedbackLoop | StepKind::Preflight)
}

/// Performs a step.
pub async fn execute_step(
    run: &mut RunContext,
    step: &StepDefinition,
) -> Result<StepOutcome, RunFailure> {
    match &step.implementation {
        StepImplementation::BuiltIn(kind) => built_in(run, *kind, &step.inputs).await,
        StepImplementation::Module(path) => custom_step::execute(run, step, path).await,
    }
}

/// The repository's script for the very end. What it says or breaks changes nothing any more.
pub async fn tear_down(run: &mut RunContext) {
    let Some(script) = run.state.repo_config.teardown.clone() else {
        return;
    };
    let step = executor::begin_step(run, "teardown", "teardown");
    let deadline = tidying(run.deadline, run.host_deadline, Instant::now());
    let told = run_repo_script(run, "teardown script", &script, deadline).await;
    match told {
        Ok(()) => executor::end_step(run, step, "passed", None),
        Err(reason) => {
            run.console.log(&reason);
            executor::end_step(run, step, "failed", Some(json!({ "reason": reason })));
        }
    }
}

/// Until when may a run tidy up? One whose time is used up has half of what is left until its host ends
/// it; the other half is for its report.
fn tidying(deadline: Instant, host_deadline: Instant, now: Instant) -> Instant {
    let spare = host_deadline.saturating_duration_since(deadline) / 2;
    (now + TEARDOWN_TIMEOUT).min(deadline + spare)
}

async fn built_in(
    run: &mut RunContext,
    kind: StepKind,
    inputs: &Map<String, Value>,
) -> Result<StepOutcome, RunFailure> {
    if run.state.already_pushed && makes_the_change(kind) {
        return Ok(StepOutcome::Skipped(
            "an earlier attempt of this dispatch had pushed the change",
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

/// Lets the agent make one pass and counts what it used. It is ended while the run still has the time
/// to check and push what it did.
async fn run_agent_pass(run: &mut RunContext, pass: &AgentPass) -> Result<AgentAnswer, RunFailure> {
    run.agent.model = run.model(pass.role);
    let latest = run
        .deadline
        .checked_sub(PUSH_RESERVE)
        .unwrap_or(run.deadline);
    let deadline = latest.max(Instant::now());
    let meter = run.progress.usage_meter();
    let answer = run
        .agent
        .run_pass_metered(pass, &run.folders, &run.console, deadline, meter)
        .await;
    answer.map_err(RunFailure::from)
}

/// Every word of a command line, for programs that take no shell.
fn split_words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a script of the repository in a shell that stops at the first thing that goes wrong. It
/// stands in a file, so that a command which reads its standard input does not eat the rest of it.
///
/// # Errors
/// What failed, how, and its last lines.
async fn run_repo_script(
    run: &RunContext,
    what: &str,
    script: &str,
    deadline: Instant,
) -> Result<(), String> {
    let file = run
        .folders
        .make("scripts")
        .map(|folder| folder.join("script.sh"))
        .and_then(|file| std::fs::write(&file, script).map(|()| file))
        .map_err(|error| format!("{what}: writing it down: {error}"))?;
    let mut command = vec![system_program("bash").to_string_lossy().into_owned()];
    command.extend(split_words("-euo pipefail"));
    command.push(file.to_string_lossy().into_owned());
    let how = match run.run_script(&command, deadline).await {
        Ok(exit) if exit.success() => return Ok(()),
        Ok(exit) => exit.to_string(),
        Err(error) => error.to_string(),
    };
    let said = format!("{what} failed: {how}\n{}", run.console.tail());
    Err(said.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_time_is_used_up_can_tidy_up_and_still_report() {
        let deadline = Instant::now() + Duration::from_secs(3600);
        let host_deadline = deadline + Duration::from_secs(180);
        let until = |now| tidying(deadline, host_deadline, now);
        let early = deadline - Duration::from_secs(1000);
        assert_eq!(until(early), early + TEARDOWN_TIMEOUT);
        for late in [deadline, deadline + Duration::from_secs(30)] {
            assert_eq!(until(late), deadline + Duration::from_secs(90));
        }
    }
}
