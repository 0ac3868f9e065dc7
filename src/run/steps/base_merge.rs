//! Merge of the base branch into the branch of a pull request that is in conflict with it.
//!
//! The clone step merges. Without conflicts nothing but the push remains. Otherwise the agent resolves the
//! conflicts in the feedback loop, and no marker may stay. The push step commits the result with both heads as
//! parents, so that no commit of the branch is replaced.

use crate::blocking_finding::BlockingFinding;
use crate::context::{BaseMerge, Checkout, Dispatch, PreflightOutcome, RunContext};
use crate::failure::{RunFailure, clone_failed};
use crate::git::{Git, GitError};
use domain::report::FailureCode;
use domain::sanitize;
use domain::secret::Secret;
use pipeline::StepKind;

/// Reason to skip all that follows if the branch contains the base branch.
pub(super) const UP_TO_DATE: &str = "The branch contains the base branch already";

/// Maximum number of times that more history is fetched, each 1000 commits.
const MAX_DEEPENINGS: usize = 10;

/// Maximum number of files whose commits are read.
const MAX_TITLE_PATHS: usize = 100;

/// Maximum number of files named in a failure.
const MAX_NAMED: usize = 20;

/// Merges the base into the head of the branch, unless an earlier attempt has pushed a merge.
pub(super) async fn merge(
    dispatch: &Dispatch,
    git: &Git,
    token: Option<&Secret>,
    checkout: &mut Checkout,
) -> Result<(), RunFailure> {
    if checkout.already_pushed {
        return Ok(());
    }
    let (head, base) = (checkout.head_commit.clone(), checkout.base_commit.clone());
    let ancestor = common_ancestor(dispatch, git, token, [&head, &base]).await;
    let Some(ancestor) = ancestor.map_err(clone_failed)? else {
        let (branch, base) = (dispatch.branch(), &dispatch.base_branch);
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("{base} cannot be merged into {branch}: they have no common commit"),
        ));
    };
    if ancestor == base {
        checkout.is_up_to_date = true;
        return Ok(());
    }
    let merged = git.merge(&head, &base).await.map_err(clone_failed)?;
    let paths = merged.conflicts.iter().take(MAX_TITLE_PATHS);
    let paths: Vec<&str> = paths.map(|conflict| conflict.path.as_str()).collect();
    let (mut branch_titles, mut base_titles) = (Vec::new(), Vec::new());
    if !paths.is_empty() {
        let of_branch = git.commit_titles(&ancestor, &head, &paths).await;
        let of_base = git.commit_titles(&ancestor, &base, &paths).await;
        branch_titles = of_branch.map_err(clone_failed)?;
        base_titles = of_base.map_err(clone_failed)?;
    }
    // What came from the base is not part of the pull request any more.
    checkout.fork_point.clone_from(&base);
    checkout.merge = Some(BaseMerge {
        head,
        base,
        merged,
        branch_titles,
        base_titles,
    });
    Ok(())
}

/// Returns the latest common ancestor of branch and base, and fetches the history that shows it.
async fn common_ancestor(
    dispatch: &Dispatch,
    git: &Git,
    token: Option<&Secret>,
    tips: [&str; 2],
) -> Result<Option<String>, GitError> {
    let branches = [dispatch.base_branch.as_str(), dispatch.branch()];
    for _ in 0..MAX_DEEPENINGS {
        let ancestor = git.merge_base(tips[0], tips[1]).await?;
        if let Some(ancestor) = ancestor
            && git.is_history_complete(&ancestor, tips).await?
        {
            return Ok(Some(ancestor));
        }
        if !git.is_shallow() {
            break;
        }
        git.deepen(token, &branches).await?;
    }
    git.merge_base(tips[0], tips[1]).await
}

/// Returns the reason why a step is not necessary in a run that merges the base branch.
pub(super) fn skip_reason(run: &RunContext, kind: StepKind) -> Option<&'static str> {
    if !run.dispatch.merges_base_branch() || matches!(kind, StepKind::Clone | StepKind::Push) {
        return None;
    }
    let checkout = run.checkout.as_ref()?;
    match &checkout.merge {
        _ if checkout.already_pushed => {
            Some("An earlier attempt of this dispatch pushed the merge")
        }
        _ if checkout.is_up_to_date => Some(UP_TO_DATE),
        Some(merge) if merge.is_clean() => Some("The base branch merges without conflicts"),
        _ => None,
    }
}

/// Returns a finding about the files of a tree that still hold conflict markers.
pub(super) async fn remaining_conflicts(
    run: &RunContext,
    tree: &str,
) -> Result<Option<BlockingFinding>, RunFailure> {
    let left = marked_files(run, tree).await?;
    Ok((!left.is_empty()).then(|| {
        let problem = format!("conflict markers are left in {}", list(&left));
        BlockingFinding::fixable("Unresolved conflicts", "", &problem)
    }))
}

/// Checks that a tree holds no conflict marker.
///
/// # Errors
/// Names the files with markers.
pub(super) async fn require_resolved(run: &RunContext, tree: &str) -> Result<(), RunFailure> {
    let left = marked_files(run, tree).await?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(RunFailure::other(format!(
            "the conflicts with {} are not resolved: conflict markers are left in {}",
            run.dispatch.base_branch,
            list(&left)
        ))),
    }
}

async fn marked_files(run: &RunContext, tree: &str) -> Result<Vec<String>, RunFailure> {
    let Some(merge) = run.checkout()?.pending_merge() else {
        return Ok(Vec::new());
    };
    let git = &run.workspace.git;
    let marked = git.marked_files(&merge.merged, merge.sides(), tree).await;
    marked.map_err(RunFailure::other)
}

fn list(paths: &[String]) -> String {
    let named: Vec<String> = { paths.iter().take(MAX_NAMED) }
        .map(|path| sanitize::single_line(path).into_owned())
        .collect();
    let more = match paths.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// Whether people must look at something, so that the pull request gets a comment about the merge.
pub(super) fn needs_comment(run: &RunContext) -> bool {
    let checks = run.change.preflight_checks.iter();
    let is_bad = |outcome| {
        matches!(
            outcome,
            PreflightOutcome::Failed | PreflightOutcome::TimedOut
        )
    };
    let has_bad_check = { checks }.any(|check| is_bad(check.outcome));
    has_bad_check || !run.change.guard_warnings.is_empty()
}
