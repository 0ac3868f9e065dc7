//! Runs the repository's own verification script after the push.

use std::time::Duration;

use serde_json::json;

use super::run_repo_script;
use crate::context::{OpenedPullRequest, RunContext, RunFailure, StepOutcome};
use crate::executor::{begin_step, end_step, sanitize};
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::report::FailureCode;
use domain::session_event::SessionEvent;

/// How long may it take?
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    let Some(script) = run.state.repo_config.verify.clone() else {
        return Ok(StepOutcome::Skipped("WORKFLOW.md names no verify script"));
    };
    verify(run, &script).await?;
    Ok(StepOutcome::Passed(json!({})))
}

/// Verifies what was pushed since, if the repository says how.
pub(super) async fn rerun(run: &mut RunContext, id: &str) -> Result<(), RunFailure> {
    let Some(script) = run.state.repo_config.verify.clone() else {
        return Ok(());
    };
    let step = begin_step(run, id, "verify");
    let verified = verify(run, &script).await;
    match &verified {
        Ok(()) => end_step(run, step, "passed", None),
        Err(failure) => {
            let outputs = json!({ "reason": failure.reason });
            end_step(run, step, "failed", Some(outputs));
        }
    }
    verified
}

async fn verify(run: &mut RunContext, script: &str) -> Result<(), RunFailure> {
    run.status_reporter
        .report_recurring(&SessionEvent::VerifyRunning);
    let verified = run_repo_script(
        run,
        "verify script of WORKFLOW.md",
        script,
        run.deadline_within(TIMEOUT),
    )
    .await;
    run.status_reporter.report_recurring(&match &verified {
        Ok(()) => SessionEvent::VerifyPassed,
        Err(reason) => SessionEvent::VerifyFailed {
            summary: sanitize(run, reason.lines().next().unwrap_or_default()),
        },
    });
    match verified {
        Ok(()) => Ok(()),
        Err(reason) => {
            let reason = held_back(run, &reason).await;
            Err(RunFailure::new(FailureCode::VerifyFailed, reason))
        }
    }
}

/// Makes the pull request a draft, and names it in the reason below the script that failed.
async fn held_back(run: &mut RunContext, reason: &str) -> String {
    let Some(pull) = run.state.pull.clone() else {
        return reason.to_owned();
    };
    let state = match make_draft(run, &pull).await {
        Ok(()) => "is a draft until that passes",
        Err(failure) => {
            let why = format!("the pull request could not be made a draft: {failure}");
            run.console.log(&why);
            "is open all the same"
        }
    };
    let (what, said) = reason.split_once('\n').unwrap_or((reason, ""));
    let told = format!("{what}\nPull request {} {state}.\n{said}", pull.url);
    told.trim_end().to_owned()
}

async fn make_draft(run: &mut RunContext, pull: &OpenedPullRequest) -> Result<(), RunFailure> {
    let access = run.fetch_repo_access().await?;
    let host = run.github_client(&access)?;
    let say = |line: &str| run.console.log(line);
    let made = retry(&say, RETRY_TIMEOUT, async || {
        let found = host.pull(&run.repo, pull.number).await?;
        match found.draft {
            true => Ok(()),
            false => host.set_draft(&run.repo, &found.node_id).await,
        }
    });
    made.await.map_err(RunFailure::other)
}
