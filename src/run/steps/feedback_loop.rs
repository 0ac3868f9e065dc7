//! Implementing and reviewing, in turns, until the review has nothing to mend or the turns are used
//! up. What the last review left open goes with the pull request, and so does a change whose mending
//! failed: it is there, and must not be lost.

use serde_json::json;

use super::review::{BlockingFinding, implement, review};
use crate::context::{RunContext, RunFailure, StepOutcome};
use domain::report::{FailureCode, RunPhase};

pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    run.kill_orphan_processes().await?;
    fetch_plan(run).await;
    // What install and setup made is not the agent's work.
    run.git
        .exclude_untracked()
        .await
        .map_err(RunFailure::other)?;
    let mut staged = run.stage_work_tree().await?;
    let untouched = staged.tree.clone();
    let rounds = run.max_iterations();
    let mut findings: Vec<BlockingFinding> = Vec::new();
    for round in 1..=rounds {
        run.state.iterations = round;
        let before = staged.tree.clone();
        staged = match implement(run, &format!("implement.{round}"), &findings).await {
            Ok(made) => made,
            Err(failure) if round > 1 => {
                run.kill_orphan_processes().await?;
                let restored = run.git.restore(&before).await;
                restored.map_err(RunFailure::other)?;
                findings.push(BlockingFinding::unfixable(
                    "Mending ended early",
                    &failure.reason,
                ));
                break;
            }
            Err(failure) => return Err(failure),
        };
        let nothing_new = staged.tree == untouched && staged.blocked.is_empty();
        if nothing_new && !run.state.has_unpublished_work {
            return Err(RunFailure::new(
                FailureCode::NoChanges,
                "Nothing to commit: no file changes in the working tree",
            ));
        }
        if round > 1 && staged.tree == before {
            run.console.log("the agent mended nothing more");
            break;
        }
        findings = review(run, &format!("review.{round}"), &staged.tree).await?;
        if !findings.iter().any(BlockingFinding::is_fixable) {
            break;
        }
    }
    run.state.unresolved = findings.iter().map(BlockingFinding::summary_line).collect();
    run.state.staged = Some(staged);
    Ok(StepOutcome::Passed(json!({
        "iterations": run.state.iterations,
        "approved": findings.is_empty(),
        "unresolved": run.state.unresolved,
        "usage": run.progress.usage_meter().total(),
    })))
}

/// The plan that was posted on the ticket before. Work on an open pull request is past it.
async fn fetch_plan(run: &mut RunContext) {
    if run.config.phase != RunPhase::Implementation {
        return;
    }
    match run.orchestrator.fetch_plan().await {
        Ok(plan) => run.state.plan = plan,
        Err(error) => run
            .console
            .log(&format!("going on without the plan: {error}")),
    }
}
