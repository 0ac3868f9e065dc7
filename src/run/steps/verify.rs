//! Verify step: runs the repository's verify script after the push.

use std::time::Duration;

use serde_json::json;

use super::run_repo_script;
use crate::context::{OpenedPullRequest, RunContext, StepOutcome};
use crate::executor::{begin_step, end_step, sanitize};
use crate::failure::RunFailure;
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::report::FailureCode;
use domain::session_event::SessionEvent;

/// Maximum time of the script.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    let Some(script) = run.state.repo_config.verify.clone() else {
        return Ok(StepOutcome::Skipped(
            "No verify script configured in WORKFLOW.md",
        ));
    };
    verify(run, &script).await?;
    Ok(StepOutcome::Passed(json!({})))
}

/// Verifies a fix commit, if a verify script is configured.
pub(super) async fn rerun(run: &mut RunContext, id: &str) -> Result<(), RunFailure> {
    let Some(script) = run.state.repo_config.verify.clone() else {
        return Ok(());
    };
    let step = begin_step(run, id, "verify");
    let result = verify(run, &script).await;
    match &result {
        Ok(()) => end_step(run, step, "passed", None),
        Err(failure) => {
            let outputs = json!({ "reason": failure.reason });
            end_step(run, step, "failed", Some(outputs));
        }
    }
    result
}

async fn verify(run: &mut RunContext, script: &str) -> Result<(), RunFailure> {
    run.status_reporter
        .report_recurring(&SessionEvent::VerifyRunning);
    let result = run_repo_script(
        run,
        "verify script of WORKFLOW.md",
        script,
        run.deadline_within(TIMEOUT),
    )
    .await;
    run.status_reporter.report_recurring(&match &result {
        Ok(()) => SessionEvent::VerifyPassed,
        Err(reason) => SessionEvent::VerifyFailed {
            summary: sanitize(run, reason.lines().next().unwrap_or_default()),
        },
    });
    match result {
        Ok(()) => Ok(()),
        Err(reason) => {
            let reason = convert_to_draft(run, &reason).await;
            Err(RunFailure::new(FailureCode::VerifyFailed, reason))
        }
    }
}

/// Converts the pull request to a draft and adds its URL to the failure reason.
async fn convert_to_draft(run: &mut RunContext, reason: &str) -> String {
    let Some(pull) = run.state.pull.clone() else {
        return reason.to_owned();
    };
    let state = match set_draft(run, &pull).await {
        Ok(()) => "is a draft until the script passes",
        Err(failure) => {
            let message = format!("Failed to convert the pull request to a draft: {failure}");
            run.console.log(&message);
            "is not a draft, because converting it failed"
        }
    };
    let (headline, output) = reason.split_once('\n').unwrap_or((reason, ""));
    let message = format!("{headline}\nPull request {} {state}.\n{output}", pull.url);
    message.trim_end().to_owned()
}

async fn set_draft(run: &mut RunContext, pull: &OpenedPullRequest) -> Result<(), RunFailure> {
    let access = run.fetch_repo_access().await?;
    let github = run.github_client(&access)?;
    let log = |line: &str| run.console.log(line);
    let result = retry(&log, RETRY_TIMEOUT, async || {
        let found = github.pull(&run.repo, pull.number).await?;
        match found.draft {
            true => Ok(()),
            false => github.set_draft(&run.repo, &found.node_id).await,
        }
    });
    result.await.map_err(RunFailure::other)
}
