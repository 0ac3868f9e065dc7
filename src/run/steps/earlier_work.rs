//! Applies the work of the run that asked the last question.
//!
//! The patch is untrusted. It becomes a tree in the run's own repository, passes the guard, and is then checked out
//! by git. The work tree is not touched before.

use super::push;
use crate::context::{EarlierWork, RunContext};
use crate::failure::RunFailure;
use crate::git::staging::StagedTree;
use domain::limits::MAX_PATCH_BYTES;
use domain::report::RunPhase;

/// Applies the work to the checkout. If that is not possible, the run starts over.
///
/// # Errors
/// If the work tree cannot be changed.
pub(super) async fn apply(run: &mut RunContext) -> Result<(), RunFailure> {
    let context = &mut run.ticket.context;
    let patch = match (context.patch.take(), context.patch_left_out) {
        (Some(patch), _) => Ok(patch),
        (None, true) => Err("it is too large for the dispatch".to_owned()),
        (None, false) => return Ok(()),
    };
    if run.dispatch.config.phase != RunPhase::Implementation || run.already_pushed() {
        return Ok(());
    }
    let tree = match patch {
        Ok(patch) => tree(run, &patch).await,
        Err(reason) => Err(reason),
    };
    match tree {
        Ok(tree) => {
            let restored = run.workspace.git.restore(&tree).await;
            restored.map_err(RunFailure::other)?;
            run.ticket.earlier_work = EarlierWork::Applied;
            run.reporting
                .log("Continuing with the work of the run that asked the last question");
        }
        Err(reason) => {
            run.ticket.earlier_work = EarlierWork::Dropped;
            run.reporting.log(&format!(
                "Starting over, because the work of the run that asked the last question cannot be used: {reason}"
            ));
        }
    }
    Ok(())
}

/// Returns the tree with the work.
///
/// # Errors
/// The reason why it cannot be used.
async fn tree(run: &RunContext, patch: &str) -> Result<String, String> {
    if patch.len() > MAX_PATCH_BYTES {
        return Err(format!("its patch is larger than {MAX_PATCH_BYTES} bytes"));
    }
    let start = &run
        .checkout()
        .map_err(|error| error.to_string())?
        .head_commit;
    let git = &run.workspace.git;
    let tree = git.apply_to_tree(start, patch).await;
    let staged = StagedTree {
        tree: tree.map_err(|error| error.to_string())?,
        blocked: Vec::new(),
    };
    let report = push::check_tree(run, &staged).await;
    match report.map_err(|error| error.to_string())?.blocked.first() {
        Some(hit) => Err(format!("the guard blocks {hit}")),
        None => Ok(staged.tree),
    }
}
