//! Implementing and reviewing, in turns, until the review has nothing to mend or the turns are used
//! up. What the last review left open goes with the pull request, and so does a change whose mending
//! failed: it is there, and must not be lost.

use serde_json::json;

use super::review::{Finding, implement, review};
use crate::run::{Failure, Run, StepOutcome};
use domain::report::{FailureCode, RunPhase};

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    run.settle().await?;
    fetch_plan(run).await;
    // What install and setup made is not the agent's work.
    run.git.ignore_present().await.map_err(Failure::other)?;
    let mut staged = run.import().await?;
    let untouched = staged.tree.clone();
    let rounds = run.max_iterations();
    let mut findings: Vec<Finding> = Vec::new();
    for round in 1..=rounds {
        run.found.iterations = round;
        let before = staged.tree.clone();
        staged = match implement(run, &format!("implement.{round}"), &findings).await {
            Ok(made) => made,
            Err(failure) if round > 1 => {
                run.settle().await?;
                let restored = run.git.restore(&before).await;
                restored.map_err(Failure::other)?;
                findings.push(Finding::closed("Mending ended early", &failure.reason));
                break;
            }
            Err(failure) => return Err(failure),
        };
        let nothing_new = staged.tree == untouched && staged.blocked.is_empty();
        if nothing_new && !run.found.unpublished {
            return Err(Failure::new(
                FailureCode::NoChanges,
                "Nothing to commit: no file changes in the working tree",
            ));
        }
        if round > 1 && staged.tree == before {
            run.console.say("the agent mended nothing more");
            break;
        }
        findings = review(run, &format!("review.{round}"), &staged.tree).await?;
        if !findings.iter().any(Finding::is_mendable) {
            break;
        }
    }
    run.found.unresolved = findings.iter().map(Finding::line).collect();
    run.found.staged = Some(staged);
    Ok(StepOutcome::Passed(json!({
        "iterations": run.found.iterations,
        "approved": findings.is_empty(),
        "unresolved": run.found.unresolved,
        "usage": run.progress.meter().total(),
    })))
}

/// The plan that was posted on the ticket before. Work on an open pull request is past it.
async fn fetch_plan(run: &mut Run) {
    if run.config.phase != RunPhase::Implementation {
        return;
    }
    match run.access.plan().await {
        Ok(plan) => run.found.plan = plan,
        Err(error) => run
            .console
            .say(&format!("going on without the plan: {error}")),
    }
}
