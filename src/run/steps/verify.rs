//! Verify step: runs the repository's verify script after the push.

use std::time::Duration;

use serde_json::json;

use crate::context::{RunContext, StepOutcome};
use crate::evidence;
use crate::failure::RunFailure;
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::evidence::VARIABLE;
use domain::job::PullRequestRef;
use domain::report::FailureCode;
use domain::session_event::SessionEvent;

/// Maximum time of the script.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time reserved for converting the pull request to a draft.
const RESERVE: Duration = Duration::from_secs(60);

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    let Some(script) = run.repo_config.verify.clone() else {
        return Ok(StepOutcome::Skipped(
            "No verify script configured in WORKFLOW.md",
        ));
    };
    verify(run, &script).await?;
    Ok(StepOutcome::Passed(json!({})))
}

/// Verifies a fix commit, if a verify script is configured.
pub(super) async fn rerun(run: &mut RunContext, id: &str) -> Result<(), RunFailure> {
    let Some(script) = run.repo_config.verify.clone() else {
        return Ok(());
    };
    let step = run.reporting.begin_step(id, "verify");
    let result = verify(run, &script).await;
    match &result {
        Ok(()) => run.reporting.end_step(step, "passed", None),
        Err(failure) => run.reporting.fail_step(step, &failure.reason),
    }
    result
}

async fn verify(run: &mut RunContext, script: &str) -> Result<(), RunFailure> {
    let status_reporter = &run.reporting.status_reporter;
    status_reporter.report_recurring(&SessionEvent::VerifyRunning);
    let name = "verify script of WORKFLOW.md";
    let latest = run.limits.deadline_before(RESERVE);
    let deadline = latest.min(run.limits.deadline_within(TIMEOUT));
    let folder = evidence::make_folder(&run.workspace.folders).map_err(|error| {
        RunFailure::other(format!("cannot create a folder for evidence: {error}"))
    })?;
    let variables = [(VARIABLE, folder.as_path())];
    let result = run
        .workspace
        .run_script_with(&run.reporting.console, name, script, &variables, deadline)
        .await;
    status_reporter.report_recurring(&match &result {
        Ok(()) => SessionEvent::VerifyPassed,
        Err(reason) => SessionEvent::VerifyFailed {
            summary: run
                .reporting
                .sanitize(reason.lines().next().unwrap_or_default()),
        },
    });
    super::evidence::publish(run, &folder).await;
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
    let Some(pull) = run.publication.pull.clone() else {
        return reason.to_owned();
    };
    let state = match set_draft(run, &pull).await {
        Ok(()) => "is a draft until the script passes",
        Err(failure) => {
            let message = format!("Failed to convert the pull request to a draft: {failure}");
            run.reporting.log(&message);
            "is not a draft, because converting it failed"
        }
    };
    let (headline, output) = reason.split_once('\n').unwrap_or((reason, ""));
    let message = format!("{headline}\nPull request {} {state}.\n{output}", pull.url);
    message.trim_end().to_owned()
}

async fn set_draft(run: &mut RunContext, pull: &PullRequestRef) -> Result<(), RunFailure> {
    let access = run.connections.fetch_repo_access(&run.workspace).await?;
    let github = run.connections.github_client(&access)?;
    let log = |line: &str| run.reporting.log(line);
    let result = retry(&log, RETRY_TIMEOUT, async || {
        let found = github.pull(&run.dispatch.repo, pull.number).await?;
        match found.draft {
            true => Ok(()),
            false => github.set_draft(&run.dispatch.repo, &found.node_id).await,
        }
    });
    result.await.map_err(RunFailure::other)
}
