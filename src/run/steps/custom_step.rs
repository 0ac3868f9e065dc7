//! A step of the operator's own: an executable that reads JSON and answers JSON.
//!
//! It gets the step, the ticket's names and what earlier steps answered on its standard input, and
//! works in the work tree like any script of the repository: without a credential. The last line of
//! its output is its answer, if it is a JSON object; everything else goes to the log. A step that
//! ends badly fails the run.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::context::{RunContext, RunFailure, StepOutcome};
use pipeline::StepDefinition;

/// How long may it take?
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn execute(
    run: &RunContext,
    step: &StepDefinition,
    module: &Path,
) -> Result<StepOutcome, RunFailure> {
    let command = [module.to_string_lossy().into_owned()];
    let input = context(run, step).to_string();
    let deadline = run.deadline_within(TIMEOUT);
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let how = match run
        .run_program(&command, input.into_bytes(), deadline)
        .await
    {
        Ok(ended) if ended.exit.success() => {
            return Ok(StepOutcome::Passed(answer(&ended.last_line)));
        }
        Ok(ended) => ended.exit.to_string(),
        Err(error) => error.to_string(),
    };
    let said = format!(
        "step {}: {name} failed: {how}\n{}",
        step.id,
        run.console.tail()
    );
    Err(RunFailure::other(said.trim_end()))
}

fn context(run: &RunContext, step: &StepDefinition) -> Value {
    let config = &run.config;
    json!({
        "step": {"id": step.id, "type": step.kind, "inputs": step.inputs},
        "phase": config.phase.as_str(),
        "issue": {"identifier": config.issue_key, "title": config.issue_title},
        "repository": run.repo.to_string(),
        "branch": config.branch,
        "baseBranch": run.base_branch,
        "prNumber": config.pr_number,
        "tree": run.folders.work_tree(),
        "outputs": run.state.outputs,
    })
}

/// What the last line answers; nothing when it is something else.
fn answer(line: &str) -> Value {
    let object: Option<Map<String, Value>> = serde_json::from_str(line.trim()).ok();
    Value::Object(object.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_is_an_answer() {
        assert_eq!(answer(" {\"a\": 1} "), json!({"a": 1}));
        for other in ["", "done", "[1]", "7"] {
            assert_eq!(answer(other), json!({}), "{other}");
        }
    }
}
