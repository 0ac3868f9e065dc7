//! Runs the repository's own verification script after the push.

use std::time::Duration;

use serde_json::json;

use super::own_script;
use crate::domain::report::FailureCode;
use crate::domain::session_event::SessionEvent;
use crate::pipeline::executor::{begin, end, shown};
use crate::pipeline::run::{Failure, Run, StepOutcome};

/// How long may it take?
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    let Some(script) = run.found.repo_config.verify.clone() else {
        return Ok(StepOutcome::Skipped("WORKFLOW.md names no verify script"));
    };
    verify(run, &script).await?;
    Ok(StepOutcome::Passed(json!({})))
}

/// Verifies what was pushed since, if the repository says how.
pub(super) async fn again(run: &mut Run, id: &str) -> Result<(), Failure> {
    let Some(script) = run.found.repo_config.verify.clone() else {
        return Ok(());
    };
    let step = begin(run, id, "verify");
    let verified = verify(run, &script).await;
    match &verified {
        Ok(()) => end(run, step, "passed", None),
        Err(failure) => {
            let outputs = json!({ "reason": failure.reason });
            end(run, step, "failed", Some(outputs));
        }
    }
    verified
}

async fn verify(run: &Run, script: &str) -> Result<(), Failure> {
    run.herald.tell_again(&SessionEvent::VerifyRunning);
    let verified = own_script(
        run,
        "verify script of WORKFLOW.md",
        script,
        run.within(TIMEOUT),
    )
    .await;
    run.herald.tell_again(&match &verified {
        Ok(()) => SessionEvent::VerifyPassed,
        Err(reason) => SessionEvent::VerifyFailed {
            summary: shown(run, reason.lines().next().unwrap_or_default()),
        },
    });
    verified.map_err(|reason| Failure::new(FailureCode::VerifyFailed, reason))
}
