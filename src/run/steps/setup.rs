//! Setup step: runs the repository's setup script before the model starts.

use std::time::Duration;

use serde_json::json;

use crate::console::Console;
use crate::context::{StepOutcome, TimeLimits, Workspace};
use crate::failure::RunFailure;
use crate::repo_config::guidance_file;
use domain::report::{FailureCode, RunPhase};

/// Maximum time of the script.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Executes the step.
pub(super) async fn execute(
    workspace: &Workspace,
    console: &Console,
    limits: &TimeLimits,
    phase: RunPhase,
    script: Option<&str>,
) -> Result<StepOutcome, RunFailure> {
    let Some(script) = script else {
        return Ok(StepOutcome::Skipped("No setup script configured"));
    };
    let name = format!("setup script of {}", guidance_file(phase));
    workspace
        .run_script(console, &name, script, limits.deadline_within(TIMEOUT))
        .await
        .map_err(|reason| RunFailure::new(FailureCode::SetupFailed, reason))?;
    Ok(StepOutcome::Passed(json!({})))
}
