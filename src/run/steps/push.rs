//! Guards, commits, pushes, and opens or updates the pull request.
//!
//! What is pushed is the tree that the review read: nothing that ran since can have changed it. The
//! guard runs before any token is fetched. A second attempt finds the commit by its trailer and the
//! pull request by its branch, so there is never a second of either. A branch is moved only from
//! the commit that the work began at: what somebody else has pushed since stays.

use serde_json::json;

use crate::context::{OpenedPullRequest, RunContext, RunFailure, StepOutcome};
use crate::git::changes::TreeChange;
use crate::git::remote::PushOutcome;
use crate::git::staging::StagedTree;
use crate::guard;
use crate::orchestrator_client::RepoAccess;
use crate::patch;
use crate::pull_request;
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::job;
use domain::report::{FailureCode, RunPhase};
use domain::sensitive_files::{AllowList, guard_message};
use domain::session_event::SessionEvent;
use vendors::http::{VendorError, VendorErrorKind};
use vendors::scm::{GitHub, NewPullRequest, PullRequest};

pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    if run.state.already_pushed && run.state.pull.is_some() {
        tell_opened(run);
        return Ok(StepOutcome::Skipped(
            "an earlier attempt of this dispatch had opened the pull request",
        ));
    }
    run.kill_orphan_processes().await?;
    let commit = if run.state.already_pushed {
        run.state.head_commit.clone()
    } else {
        commit(run).await?
    };
    let changes = run
        .git
        .changes(&run.state.fork_point, &commit)
        .await
        .map_err(RunFailure::other)?;
    let access = run.fetch_repo_access().await?;
    move_branch(run, &access, &commit).await?;
    if run.config.shadow {
        let repository = run.git.url.trim_end_matches(".git");
        run.state.shadow_url = Some(format!("{repository}/tree/{}", run.config.branch));
        return Ok(StepOutcome::Passed(json!({ "commit": commit })));
    }
    let host = run.github_client(&access)?;
    let say = |line: &str| run.console.log(line);
    let published = retry(&say, RETRY_TIMEOUT, async || {
        publish(run, &host, &changes).await
    })
    .await;
    let pull = published.map_err(pull_failed)?;
    run.console.log(&format!("pull request: {}", pull.url));
    let outputs = json!({ "prUrl": pull.url, "prNumber": pull.number, "commit": commit });
    run.state.pull = Some(OpenedPullRequest {
        number: pull.number,
        url: pull.url,
    });
    tell_opened(run);
    Ok(StepOutcome::Passed(outputs))
}

fn tell_opened(run: &RunContext) {
    if let Some(OpenedPullRequest { number, url }) = run.state.pull.clone() {
        let pull = job::PullRequestRef { number, url };
        run.status_reporter
            .report(&SessionEvent::ImplementationComplete { pull });
    }
}

/// Makes the commit of what the feedback loop left.
async fn commit(run: &mut RunContext) -> Result<String, RunFailure> {
    let staged = match run.state.staged.take() {
        Some(staged) => staged,
        None => run.stage_work_tree().await?,
    };
    let message = pull_request::commit_message(run);
    match guarded_commit(run, &staged, &message).await? {
        Some(commit) => Ok(commit),
        None if run.state.has_unpublished_work => {
            run.console
                .log("nothing new; what was pushed before gets its pull request");
            Ok(run.state.head_commit.clone())
        }
        None => Err(RunFailure::new(
            FailureCode::NoChanges,
            "Nothing to commit: no file changes in the working tree",
        )),
    }
}

/// Makes a commit, unless the guard objects; none when nothing has changed.
pub(super) async fn guarded_commit(
    run: &mut RunContext,
    staged: &StagedTree,
    message: &str,
) -> Result<Option<String>, RunFailure> {
    inspect(run, staged).await?;
    let start = &run.state.head_commit;
    let changes = run.git.changes(start, &staged.tree).await;
    if changes.map_err(RunFailure::other)?.is_empty() {
        return Ok(None);
    }
    let made = run.git.commit(&staged.tree, start, message).await;
    made.map(Some).map_err(RunFailure::other)
}

/// Moves the branch of the host from where it was seen to a commit that was guarded, and goes on
/// from there. What cannot be pushed is kept as a patch.
pub(super) async fn move_branch(
    run: &mut RunContext,
    access: &RepoAccess,
    commit: &str,
) -> Result<(), RunFailure> {
    let branch = run.config.branch.as_str();
    if branch == run.base_branch {
        let reason = format!("nothing is pushed to the base branch {branch}");
        return Err(RunFailure::new(FailureCode::PushRejected, reason));
    }
    let (token, seen) = (access.token.as_ref(), run.state.remote_head.as_deref());
    if seen == Some(commit) {
        return Ok(());
    }
    let said = match run.git.push(token, branch, seen, commit).await {
        Ok(PushOutcome::Done) => {
            run.console.log(&format!("pushed {commit} to {branch}"));
            run.state.remote_head = Some(commit.to_owned());
            run.state.head_commit = commit.to_owned();
            return Ok(());
        }
        Ok(PushOutcome::Rejected(said)) => said,
        Err(error) => error.to_string(),
    };
    let why = match run.git.remote_head(token, branch).await {
        Ok(Some(theirs)) if Some(theirs.as_str()) != seen => format!(
            "somebody pushed {theirs} to it while this run was at work, and nobody's commits are overwritten"
        ),
        Ok(None) if seen.is_some() => "it was deleted while this run was at work".to_owned(),
        _ => said,
    };
    let mut reason = format!("push of {branch} was rejected: {why}");
    match patch::create(&run.git, branch, &run.state.head_commit, commit).await {
        Ok(patch) => {
            reason.push_str("\nThe work is kept with the job, as a patch.");
            run.state.patch = Some(patch);
        }
        Err(error) => run
            .console
            .log(&format!("the work could not be kept: {error}")),
    }
    Err(RunFailure::new(FailureCode::PushRejected, reason))
}

/// The guard's word on what would be pushed.
async fn inspect(run: &mut RunContext, staged: &StagedTree) -> Result<(), RunFailure> {
    let globs = &run.state.repo_config.settings.guard.allow;
    // They were judged when they were read; nothing is permitted by what does not hold.
    let allow = AllowList::compile(globs).unwrap_or_default();
    let holds_own = |text: &[u8]| run.console.contains_secret(text);
    let found = guard::inspect(&run.git, &run.state.fork_point, staged, &allow, holds_own)
        .await
        .map_err(RunFailure::other)?;
    for hit in &found.warnings {
        run.console.log(&format!("look closely: {hit}"));
    }
    run.state.guard_warnings = found.warnings;
    if found.blocked.is_empty() {
        return Ok(());
    }
    let reason = guard_message(&found.blocked);
    Err(RunFailure::new(FailureCode::SensitiveFilesBlocked, reason))
}

/// Opens the pull request, or brings the one that is open up to date. Twice is once: the host has
/// at most one open pull request of a branch, and one that is there is brought up to date.
async fn publish(
    run: &RunContext,
    host: &GitHub,
    changes: &[TreeChange],
) -> Result<PullRequest, VendorError> {
    // One that was closed since the run began gets the work all the same, never a second one.
    if let Some(number) = run.config.pr_number {
        let pull = host.pull(&run.repo, number).await?;
        return refresh(run, host, pull, changes).await;
    }
    let branch = &run.config.branch;
    if let Some(pull) = host.find_open_pull(&run.repo, branch).await? {
        return refresh(run, host, pull, changes).await;
    }
    let new = NewPullRequest {
        title: pull_request::title(run),
        body: pull_request::body(run, changes),
        head: branch.clone(),
        base: run.base_branch.clone(),
        draft: !run.state.unresolved.is_empty(),
    };
    let refused = match host.create_pull(&run.repo, &new).await {
        Ok(pull) => return Ok(pull),
        Err(error) => error,
    };
    let is_invalid = refused.status() == Some(422);
    // It may be there: made by a try whose answer was lost, or by somebody else.
    if refused.is_ambiguous() || is_invalid {
        match host.find_open_pull(&run.repo, branch).await? {
            Some(pull) => return Ok(pull),
            // Not every plan knows drafts; what is left open stands in the result either way.
            None if is_invalid && new.draft => {
                let plain = NewPullRequest {
                    draft: false,
                    ..new
                };
                return host.create_pull(&run.repo, &plain).await;
            }
            None => {}
        }
    }
    Err(refused)
}

async fn refresh(
    run: &RunContext,
    host: &GitHub,
    pull: PullRequest,
    changes: &[TreeChange],
) -> Result<PullRequest, VendorError> {
    if run.config.phase == RunPhase::GapAnalysis {
        // The body is the first run's, and people may have written in it.
        let (marker, body) = pull_request::follow_up_comment(run, changes);
        host.upsert_comment(&run.repo, pull.number, &marker, &body)
            .await?;
    } else {
        let (title, body) = (pull_request::title(run), pull_request::body(run, changes));
        host.update_pull(&run.repo, pull.number, &title, &body)
            .await?;
    }
    update_draft_state(run, host, &pull).await?;
    Ok(pull)
}

/// Makes the pull request a draft while anything is left open, and takes it out of draft when
/// nothing is. Not every plan knows drafts; what is left open stands in the result either way.
pub(super) async fn update_draft_state(
    run: &RunContext,
    host: &GitHub,
    pull: &PullRequest,
) -> Result<(), VendorError> {
    let is_approved = run.state.unresolved.is_empty();
    let flagged = match (pull.draft, is_approved) {
        (false, false) => host.set_draft(&run.repo, &pull.node_id).await,
        (true, true) => host.set_ready(&run.repo, &pull.node_id).await,
        _ => return Ok(()),
    };
    match flagged {
        Err(error) if error.is_permanent() => {
            run.console
                .log(&format!("the draft flag was not changed: {error}"));
            Ok(())
        }
        flagged => flagged,
    }
}

/// The spec's words for a host that refuses the pull request.
fn pull_failed(error: VendorError) -> RunFailure {
    let reason = match &error.kind {
        VendorErrorKind::Status {
            status, message, ..
        } => format!("PR creation failed with HTTP {status}: {message}"),
        _ => format!("PR creation failed: {error}"),
    };
    RunFailure::new(FailureCode::PushRejected, reason)
}
