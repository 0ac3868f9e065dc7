//! Setup step: runs the repository's setup script before the model starts.

use std::time::Duration;

use serde_json::json;

use super::run_repo_script;
use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::repo_config::guidance_file;
use domain::report::FailureCode;

/// Maximum time of the script.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    let Some(script) = run.state.repo_config.setup.clone() else {
        return Ok(StepOutcome::Skipped("No setup script configured"));
    };
    let what = format!("setup script of {}", guidance_file(run.config.phase));
    run_repo_script(run, &what, &script, run.deadline_within(TIMEOUT))
        .await
        .map_err(|reason| RunFailure::new(FailureCode::SetupFailed, reason))?;
    Ok(StepOutcome::Passed(json!({})))
}
