//! Custom step: an executable of the operator that reads JSON from standard input and prints JSON.
//!
//! The input holds the step, the issue's key and title, and outputs of earlier steps. The program
//! runs in the work tree without credentials, like a repository script. If the last line of its
//! output is a JSON object, it becomes the step's outputs. All other lines are only logged. A
//! non-zero exit code fails the run.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use pipeline::StepDefinition;

/// Maximum time of the program.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Executes the step.
pub(super) async fn execute(
    run: &RunContext,
    step: &StepDefinition,
    module: &Path,
) -> Result<StepOutcome, RunFailure> {
    let command = [module.to_string_lossy().into_owned()];
    let input = step_input(run, step).to_string();
    let deadline = run.limits.deadline_within(TIMEOUT);
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let console = &run.reporting.console;
    let ended = run
        .workspace
        .run_program(console, &command, input.into_bytes(), deadline);
    let cause = match ended.await {
        Ok(result) if result.exit.success() => {
            return Ok(StepOutcome::Passed(outputs(&result.last_line)));
        }
        Ok(result) => result.exit.to_string(),
        Err(error) => error.to_string(),
    };
    let tail = console.tail();
    let message = format!("step {}: {name} failed: {cause}\n{tail}", step.id);
    Err(RunFailure::other(message.trim_end()))
}

fn step_input(run: &RunContext, step: &StepDefinition) -> Value {
    let config = &run.dispatch.config;
    json!({
        "step": {"id": step.id, "type": step.kind, "inputs": step.inputs},
        "phase": config.phase.as_str(),
        "issue": {"identifier": config.issue_key, "title": config.issue_title},
        "repository": run.dispatch.repo.to_string(),
        "branch": config.branch,
        "baseBranch": run.dispatch.base_branch,
        "prNumber": config.pr_number,
        "tree": run.workspace.folders.work_tree(),
        "outputs": run.outputs,
    })
}

/// Parses the last line as outputs; empty if it is not a JSON object.
fn outputs(line: &str) -> Value {
    let object: Option<Map<String, Value>> = serde_json::from_slice(line.trim().as_bytes()).ok();
    Value::Object(object.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_a_json_object_as_outputs() {
        assert_eq!(outputs(" {\"a\": 1} "), json!({"a": 1}));
        for other in ["", "done", "[1]", "7"] {
            assert_eq!(outputs(other), json!({}), "{other}");
        }
    }
}
