//! Runs the repository's own verification script after the push.

use std::time::Duration;

use serde_json::json;

use super::own_script;
use crate::domain::report::FailureCode;
use crate::pipeline::run::{Failure, Run, StepOutcome};

/// How long may it take?
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    let Some(script) = run.found.repo_config.verify.clone() else {
        return Ok(StepOutcome::Skipped("WORKFLOW.md names no verify script"));
    };
    own_script(run, "verify script of WORKFLOW.md", &script, TIMEOUT)
        .await
        .map_err(|reason| Failure::new(FailureCode::VerifyFailed, reason))?;
    Ok(StepOutcome::Passed(json!({})))
}
