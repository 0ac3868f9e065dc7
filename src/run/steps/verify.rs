//! Runs the repository's own verification script after the push.

use std::time::Duration;

use serde_json::json;

use super::own_script;
use crate::executor::{begin, end, shown};
use crate::patience::{PATIENCE, persist};
use crate::run::{Failure, PullRef, Run, StepOutcome};
use domain::report::FailureCode;
use domain::session_event::SessionEvent;

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

async fn verify(run: &mut Run, script: &str) -> Result<(), Failure> {
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
    match verified {
        Ok(()) => Ok(()),
        Err(reason) => {
            let reason = held_back(run, &reason).await;
            Err(Failure::new(FailureCode::VerifyFailed, reason))
        }
    }
}

/// Makes the pull request a draft, and names it in the reason below the script that failed.
async fn held_back(run: &mut Run, reason: &str) -> String {
    let Some(pull) = run.found.pull.clone() else {
        return reason.to_owned();
    };
    let state = match make_draft(run, &pull).await {
        Ok(()) => "is a draft until that passes",
        Err(failure) => {
            let why = format!("the pull request could not be made a draft: {failure}");
            run.console.say(&why);
            "is open all the same"
        }
    };
    let (what, said) = reason.split_once('\n').unwrap_or((reason, ""));
    let told = format!("{what}\nPull request {} {state}.\n{said}", pull.url);
    told.trim_end().to_owned()
}

async fn make_draft(run: &mut Run, pull: &PullRef) -> Result<(), Failure> {
    let access = run.open_access().await?;
    let host = run.host(&access)?;
    let say = |line: &str| run.console.say(line);
    let made = persist(&say, PATIENCE, async || {
        let found = host.pull(&run.repo, pull.number).await?;
        match found.draft {
            true => Ok(()),
            false => host.set_draft(&run.repo, &found.node_id).await,
        }
    });
    made.await.map_err(Failure::other)
}
