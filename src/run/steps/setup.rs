//! Runs the repository's own setup script before the model starts.

use std::time::Duration;

use serde_json::json;

use super::own_script;
use crate::repo_config::settings_file;
use crate::run::{Failure, Run, StepOutcome};
use domain::report::FailureCode;

/// How long may it take?
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    let Some(script) = run.found.repo_config.setup.clone() else {
        return Ok(StepOutcome::Skipped("no setup script is named"));
    };
    let what = format!("setup script of {}", settings_file(run.config.phase));
    own_script(run, &what, &script, run.within(TIMEOUT))
        .await
        .map_err(|reason| Failure::new(FailureCode::SetupFailed, reason))?;
    Ok(StepOutcome::Passed(json!({})))
}
