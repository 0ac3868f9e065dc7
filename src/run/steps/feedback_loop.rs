//! Feedback loop: implement and review passes alternate until the review has no finding that can be
//! fixed, or the iterations are used up. Open findings go into the pull request. If a fix fails,
//! the previous version of the change is pushed.

use serde_json::json;

use super::base_merge;
use super::review::{implement, review};
use crate::blocking_finding::BlockingFinding;
use crate::context::{EarlierWork, RunContext, StepOutcome};
use crate::failure::RunFailure;
use domain::report::{FailureCode, RunPhase};

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    run.workspace.kill_orphan_processes().await?;
    fetch_plan(run).await;
    // Files created by install and setup are not part of the change.
    run.workspace
        .git
        .exclude_untracked()
        .await
        .map_err(RunFailure::other)?;
    let mut staged = run.workspace.stage_work_tree().await?;
    let original_tree = match run.ticket.earlier_work {
        // Work before a question counts as change.
        EarlierWork::Applied => {
            let git = &run.workspace.git;
            let start = git.resolve_tree(&run.checkout()?.head_commit).await;
            start.map_err(RunFailure::other)?
        }
        EarlierWork::None | EarlierWork::Dropped => staged.tree.clone(),
    };
    let max_iterations = run.dispatch.max_iterations();
    let mut findings: Vec<BlockingFinding> = Vec::new();
    let mut iterations = 0;
    for iteration in 1..=max_iterations {
        iterations = iteration;
        let previous_tree = staged.tree.clone();
        staged = match implement(run, &format!("implement.{iteration}"), &findings).await {
            Ok(staged) => staged,
            Err(failure) if iteration > 1 && !failure.is_question() => {
                run.workspace.kill_orphan_processes().await?;
                let restored = run.workspace.git.restore(&previous_tree).await;
                restored.map_err(RunFailure::other)?;
                findings.push(BlockingFinding::unfixable(
                    "Fixing stopped early",
                    &failure.reason,
                ));
                break;
            }
            Err(failure) => return Err(failure),
        };
        if let Some(finding) = base_merge::remaining_conflicts(run, &staged.tree).await? {
            findings = vec![finding];
            continue;
        }
        let checkout = run.checkout()?;
        let is_unchanged = staged.tree == original_tree && staged.blocked.is_empty();
        // A merge is a change, even if the agent leaves every file as it is.
        let has_other_work = checkout.has_unpublished_work || checkout.merge.is_some();
        if is_unchanged && !has_other_work {
            return Err(RunFailure::new(
                FailureCode::NoChanges,
                "Nothing to commit: no file changes in the working tree",
            ));
        }
        if iteration > 1 && staged.tree == previous_tree {
            run.reporting.log("The agent made no further changes");
            break;
        }
        findings = review(run, &format!("review.{iteration}"), &staged.tree).await?;
        if !findings.iter().any(BlockingFinding::is_fixable) {
            break;
        }
    }
    base_merge::require_resolved(run, &staged.tree).await?;
    run.review.unresolved = findings.iter().map(BlockingFinding::summary_line).collect();
    run.change.staged = Some(staged);
    Ok(StepOutcome::Passed(json!({
        "iterations": iterations,
        "approved": findings.is_empty(),
        "unresolved": run.review.unresolved,
        "summary": run.change.summary,
        "usage": run.reporting.usage(),
    })))
}

/// Reads the plan of the dispatch, else fetches the plan posted on the ticket. Follow-up work on a pull request does not use it.
async fn fetch_plan(run: &mut RunContext) {
    if run.dispatch.config.phase != RunPhase::Implementation {
        return;
    }
    if let Some(plan) = &run.dispatch.config.options.plan {
        run.change.plan = plan.clone();
        return;
    }
    match run.connections.orchestrator.fetch_plan().await {
        Ok(plan) => run.change.plan = plan,
        Err(error) => run
            .reporting
            .log(&format!("Continuing without the plan: {error}")),
    }
}
