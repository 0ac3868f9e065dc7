//! Push step: checks the change with the guard, commits and pushes it, and opens or updates the
//! pull request.
//!
//! The pushed tree is the tree that was reviewed; later processes cannot change it. The guard runs
//! before a token is fetched. A later attempt finds the commit by its trailer and the pull request
//! by its branch, so neither is created twice. The branch is only moved from the commit at which
//! the work started; commits pushed by others in the meantime stay.

use serde_json::json;

use super::base_merge;
use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::git::changes::TreeChange;
use crate::git::remote::PushOutcome;
use crate::git::staging::StagedTree;
use crate::guard::{self, GuardFinding, GuardReport};
use crate::orchestrator_client::RepoAccess;
use crate::patch;
use crate::pull_request;
use crate::retry::{RETRY_TIMEOUT, retry};
use crate::stopwatch::Stopwatch;
use domain::job::PullRequestRef;
use domain::report::{FailureCode, RunPhase};
use domain::sensitive_files::{AllowList, guard_message};
use domain::session_event::SessionEvent;
use vendors::http::{VendorError, VendorErrorKind};
use vendors::scm::{GitHub, NewPullRequest, PullRequest};

/// Maximum number of findings of the guard in the outputs of the step.
const MAX_GUARD_OUTPUTS: usize = 100;

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    if run.already_pushed() && run.publication.pull.is_some() {
        report_opened(run);
        return Ok(StepOutcome::Skipped(
            "An earlier attempt of this dispatch opened the pull request",
        ));
    }
    if run.checkout()?.is_up_to_date {
        return Ok(StepOutcome::Skipped(base_merge::UP_TO_DATE));
    }
    let mut watch = Stopwatch::start();
    run.workspace.kill_orphan_processes().await?;
    let commit = if run.already_pushed() {
        run.checkout()?.head_commit.clone()
    } else {
        commit(run).await?
    };
    let fork_point = &run.checkout()?.fork_point;
    let changes = run.workspace.git.changes(fork_point, &commit).await;
    let changes = changes.map_err(RunFailure::other)?;
    let missing_in_lfs = run.workspace.git.files_missing_in_lfs(&changes).await;
    run.change.missing_in_lfs = missing_in_lfs.map_err(RunFailure::other)?;
    watch.lap("guard");
    let access = run.connections.fetch_repo_access(&run.workspace).await?;
    move_branch(run, &access, &commit).await?;
    watch.lap("push");
    if run.dispatch.config.shadow {
        let repository = run.workspace.git.url.trim_end_matches(".git");
        let url = format!("{repository}/tree/{}", run.dispatch.branch());
        run.publication.shadow_url = Some(url);
        return Ok(StepOutcome::Passed(json!({ "commit": commit })));
    }
    let github = run.connections.github_client(&access)?;
    let log = |line: &str| run.reporting.log(line);
    let pull = retry(&log, RETRY_TIMEOUT, async || {
        publish(run, &github, &changes).await
    })
    .await;
    let pull = pull.map_err(pull_failed)?;
    run.reporting.log(&format!("Pull request: {}", pull.url));
    watch.lap("pullRequest");
    let outputs = json!({
        "prUrl": pull.url,
        "prNumber": pull.number,
        "commit": commit,
        "milliseconds": watch.milliseconds(),
    });
    run.publication.pull = Some(PullRequestRef {
        number: pull.number,
        url: pull.url,
    });
    report_opened(run);
    Ok(StepOutcome::Passed(outputs))
}

/// Reports the open pull request as a session event.
fn report_opened(run: &RunContext) {
    if let Some(pull) = run.publication.pull.clone() {
        let event = SessionEvent::ImplementationComplete { pull };
        run.reporting.status_reporter.report(&event);
    }
}

/// Commits the tree of the feedback loop.
async fn commit(run: &mut RunContext) -> Result<String, RunFailure> {
    let staged = match (run.change.staged.take(), run.checkout()?.pending_merge()) {
        (Some(staged), _) => staged,
        // No agent and no script has changed anything.
        (None, Some(merge)) if merge.is_clean() => StagedTree {
            tree: merge.merged.tree.clone(),
            blocked: Vec::new(),
        },
        (None, _) => run.workspace.stage_work_tree().await?,
    };
    let message = match run.checkout()?.pending_merge() {
        Some(_) => pull_request::merge_commit_message(&run.dispatch),
        None => pull_request::commit_message(&run.dispatch, &run.reporting.console),
    };
    match guarded_commit(run, &staged, &message).await? {
        Some(commit) => Ok(commit),
        None if run.checkout()?.has_unpublished_work => {
            run.reporting
                .log("No new changes. Opening a pull request for the commits pushed before.");
            Ok(run.checkout()?.head_commit.clone())
        }
        None => Err(RunFailure::new(
            FailureCode::NoChanges,
            "Nothing to commit: no file changes in the working tree",
        )),
    }
}

/// Creates a commit after the guard passed; `None` if nothing changed. A merge of the base branch is a commit
/// with two parents, whatever changed.
pub(super) async fn guarded_commit(
    run: &mut RunContext,
    staged: &StagedTree,
    message: &str,
) -> Result<Option<String>, RunFailure> {
    inspect(run, staged).await?;
    let (git, start) = (&run.workspace.git, &run.checkout()?.head_commit);
    if let Some(merge) = run.checkout()?.pending_merge() {
        let parents = merge.sides();
        let commit = git.commit_with_parents(&staged.tree, &parents, message);
        return commit.await.map(Some).map_err(RunFailure::other);
    }
    let changes = git.changes(start, &staged.tree).await;
    if changes.map_err(RunFailure::other)?.is_empty() {
        return Ok(None);
    }
    let commit = git.commit(&staged.tree, start, message).await;
    commit.map(Some).map_err(RunFailure::other)
}

/// Pushes a guarded commit, moving the remote branch from its known head. Work that cannot be
/// pushed is kept as a patch.
pub(super) async fn move_branch(
    run: &mut RunContext,
    access: &RepoAccess,
    commit: &str,
) -> Result<(), RunFailure> {
    let (git, branch) = (&run.workspace.git, run.dispatch.branch());
    if branch == run.dispatch.base_branch {
        let reason = format!("branch {branch} is the base branch; nothing was pushed");
        return Err(RunFailure::new(FailureCode::PushRejected, reason));
    }
    let checkout = run.checkout()?;
    let (token, expected_head) = (access.token.as_ref(), checkout.remote_head.as_deref());
    if expected_head == Some(commit) {
        return Ok(());
    }
    let push_error = match git.push(token, branch, expected_head, commit).await {
        Ok(PushOutcome::Done) => {
            run.reporting.log(&format!("Pushed {commit} to {branch}"));
            let checkout = run.checkout_mut()?;
            checkout.remote_head = Some(commit.to_owned());
            checkout.head_commit = commit.to_owned();
            return Ok(());
        }
        Ok(PushOutcome::Rejected(message)) => message,
        Err(error) => error.to_string(),
    };
    let cause = match git.remote_head(token, branch).await {
        Ok(Some(head)) if Some(head.as_str()) != expected_head => format!(
            "somebody pushed {head} to the branch during the run. Commits of others are never overwritten"
        ),
        Ok(None) if expected_head.is_some() => "the branch was deleted during the run".to_owned(),
        _ => push_error,
    };
    let mut reason = format!("push of {branch} was rejected: {cause}");
    match patch::create(git, branch, &checkout.head_commit, commit).await {
        Ok(patch) => {
            reason.push_str("\nThe change is stored with the job as a patch.");
            run.publication.patch = Some(patch);
        }
        Err(error) => run
            .reporting
            .log(&format!("Failed to store the change as a patch: {error}")),
    }
    Err(RunFailure::new(FailureCode::PushRejected, reason))
}

/// Runs the guard on a tree.
pub(super) async fn check_tree(
    run: &RunContext,
    staged: &StagedTree,
) -> Result<GuardReport, RunFailure> {
    let globs = &run.repo_config.settings.guard.allow;
    // The globs were validated when they were read. An invalid list allows nothing.
    let allow = AllowList::compile(globs).unwrap_or_default();
    let adds_own = |before: &[u8], after: &[u8]| run.reporting.console.adds_secret(before, after);
    let (git, fork_point) = (&run.workspace.git, &run.checkout()?.fork_point);
    guard::inspect(git, fork_point, staged, &allow, adds_own)
        .await
        .map_err(RunFailure::other)
}

/// Runs the guard on the staged tree. Stores its warnings; blocking findings fail the run.
async fn inspect(run: &mut RunContext, staged: &StagedTree) -> Result<(), RunFailure> {
    let report = check_tree(run, staged).await?;
    for hit in &report.warnings {
        run.reporting.log(&format!("Guard warning: {hit}"));
    }
    let findings = report.findings.iter().take(MAX_GUARD_OUTPUTS);
    let findings: Vec<_> = findings.map(GuardFinding::output).collect();
    run.reporting.add_output("guard", json!(findings));
    run.change.guard_warnings = report.warnings;
    if report.blocked.is_empty() {
        return Ok(());
    }
    let reason = guard_message(&report.blocked);
    Err(RunFailure::new(FailureCode::SensitiveFilesBlocked, reason))
}

/// Opens the pull request, or updates the open pull request of the branch. Idempotent: GitHub
/// allows one open pull request per branch.
async fn publish(
    run: &RunContext,
    github: &GitHub,
    changes: &[TreeChange],
) -> Result<PullRequest, VendorError> {
    // A pull request closed during the run is updated all the same; no second one is opened.
    if let Some(number) = run.dispatch.config.pr_number {
        let pull = github.pull(&run.dispatch.repo, number).await?;
        return refresh(run, github, pull, changes).await;
    }
    let branch = run.dispatch.branch();
    if let Some(pull) = github.find_open_pull(&run.dispatch.repo, branch).await? {
        return refresh(run, github, pull, changes).await;
    }
    let new = NewPullRequest {
        title: pull_request::title(&run.dispatch, &run.reporting.console),
        body: pull_request::body(run, changes),
        head: branch.to_owned(),
        base: run.dispatch.base_branch.clone(),
        draft: !run.review.unresolved.is_empty(),
    };
    let error = match github.create_pull(&run.dispatch.repo, &new).await {
        Ok(pull) => return Ok(pull),
        Err(error) => error,
    };
    let is_invalid = error.status() == Some(422);
    // It may exist: created by an attempt whose response was lost, or by somebody else.
    if error.is_ambiguous() || is_invalid {
        match github.find_open_pull(&run.dispatch.repo, branch).await? {
            Some(pull) => return Ok(pull),
            // Not every GitHub plan supports drafts. Open findings are part of the result either way.
            None if is_invalid && new.draft => {
                let ready = NewPullRequest {
                    draft: false,
                    ..new
                };
                return github.create_pull(&run.dispatch.repo, &ready).await;
            }
            None => {}
        }
    }
    Err(error)
}

/// Updates an open pull request.
async fn refresh(
    run: &RunContext,
    github: &GitHub,
    pull: PullRequest,
    changes: &[TreeChange],
) -> Result<PullRequest, VendorError> {
    if run.dispatch.merges_base_branch() && !base_merge::needs_comment(run) {
        // The message of the commit says what was done.
    } else if run.dispatch.config.phase == RunPhase::GapAnalysis {
        // The description belongs to the first run, and people may have edited it.
        let (marker, body) = pull_request::follow_up_comment(run, changes);
        github
            .upsert_comment(&run.dispatch.repo, pull.number, &marker, &body)
            .await?;
    } else {
        let title = pull_request::title(&run.dispatch, &run.reporting.console);
        let body = pull_request::body(run, changes);
        github
            .update_pull(&run.dispatch.repo, pull.number, &title, &body)
            .await?;
    }
    update_draft_state(run, github, &pull).await?;
    Ok(pull)
}

/// Makes the pull request a draft while findings are open, and ready for review otherwise. Not
/// every GitHub plan supports drafts, so a permanent error is only logged.
pub(super) async fn update_draft_state(
    run: &RunContext,
    github: &GitHub,
    pull: &PullRequest,
) -> Result<(), VendorError> {
    let is_approved = run.review.unresolved.is_empty();
    // A run that merges the base branch reviews the merge only: a draft stays one.
    let may_be_ready = !run.dispatch.merges_base_branch();
    let result = match (pull.draft, is_approved) {
        (false, false) => github.set_draft(&run.dispatch.repo, &pull.node_id).await,
        (true, true) if may_be_ready => github.set_ready(&run.dispatch.repo, &pull.node_id).await,
        _ => return Ok(()),
    };
    match result {
        Err(error) if error.is_permanent() => {
            run.reporting
                .log(&format!("Failed to change the draft state: {error}"));
            Ok(())
        }
        result => result,
    }
}

/// Formats the failure. See docs/behaviour.md#run-failures.
fn pull_failed(error: VendorError) -> RunFailure {
    let reason = match &error.kind {
        VendorErrorKind::Status {
            status, message, ..
        } => format!("PR creation failed with HTTP {status}: {message}"),
        _ => format!("PR creation failed: {error}"),
    };
    RunFailure::new(FailureCode::PushRejected, reason)
}
