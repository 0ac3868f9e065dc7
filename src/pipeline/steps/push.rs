//! Guards, commits, pushes, and opens or updates the pull request.
//!
//! What is pushed is the tree that the review read: nothing that ran since can have changed it. The
//! guard runs before any token is fetched. A second attempt finds the commit by its trailer and the
//! pull request by its branch, so there is never a second of either.

use serde_json::json;

use crate::domain::report::{FailureCode, RunPhase};
use crate::domain::sensitive::guard_message;
use crate::pipeline::git::GitError;
use crate::pipeline::git::changes::Change;
use crate::pipeline::git::remote::Pushed;
use crate::pipeline::guard;
use crate::pipeline::patience::{PATIENCE, persist};
use crate::pipeline::pull_request;
use crate::pipeline::run::{Failure, PullRef, Run, StepOutcome};
use crate::scm::{GitHub, NewPull, Pull};
use crate::wire::{ErrorKind, VendorError};

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    run.settle().await?;
    let commit = if run.found.already_pushed {
        run.found.start.clone()
    } else {
        commit(run).await?
    };
    let changes = run
        .git
        .changes(&run.found.fork_point, &commit)
        .await
        .map_err(Failure::other)?;
    let access = run.open_access().await?;
    if !run.found.already_pushed {
        let seen = run.found.seen.as_deref();
        let pushed = run
            .git
            .push(access.token.as_ref(), &run.config.branch, seen, &commit)
            .await
            .map_err(rejected)?;
        if let Pushed::Rejected(said) = pushed {
            let reason = format!("push of {} was rejected: {said}", run.config.branch);
            return Err(Failure::new(FailureCode::PushRejected, reason));
        }
        run.console
            .say(&format!("pushed {commit} to {}", run.config.branch));
    }
    let host = run.host(&access)?;
    let say = |line: &str| run.console.say(line);
    let published = persist(&say, PATIENCE, async || publish(run, &host, &changes).await).await;
    let pull = published.map_err(pull_failed)?;
    run.console.say(&format!("pull request: {}", pull.url));
    let outputs = json!({ "prUrl": pull.url, "prNumber": pull.number, "commit": commit });
    run.found.pull = Some(PullRef {
        number: pull.number,
        url: pull.url,
    });
    Ok(StepOutcome::Passed(outputs))
}

/// Makes the commit, unless the guard objects.
async fn commit(run: &mut Run) -> Result<String, Failure> {
    let staged = match run.found.staged.take() {
        Some(staged) => staged,
        None => run.import().await?,
    };
    let holds_own = |text: &[u8]| run.console.holds_secret(text);
    let hits = guard::inspect(&run.git, &run.found.fork_point, &staged, holds_own)
        .await
        .map_err(Failure::other)?;
    if !hits.is_empty() {
        return Err(Failure::new(
            FailureCode::SensitiveFilesBlocked,
            guard_message(&hits),
        ));
    }
    let unchanged = run
        .git
        .changes(&run.found.start, &staged.tree)
        .await
        .map_err(Failure::other)?
        .is_empty();
    if unchanged {
        return Err(Failure::new(
            FailureCode::NoChanges,
            "Nothing to commit: no file changes in the working tree",
        ));
    }
    run.git
        .commit(
            &staged.tree,
            &run.found.start,
            &pull_request::commit_message(run),
        )
        .await
        .map_err(Failure::other)
}

/// Opens the pull request, or brings the one that is open up to date. Twice is once: the host has
/// at most one open pull request of a branch, and one that is there is brought up to date.
async fn publish(run: &Run, host: &GitHub, changes: &[Change]) -> Result<Pull, VendorError> {
    let branch = &run.config.branch;
    if let Some(pull) = host.open_pull(&run.repo, branch).await? {
        return refresh(run, host, pull, changes).await;
    }
    let new = NewPull {
        title: pull_request::title(run),
        body: pull_request::body(run, changes),
        head: branch.clone(),
        base: run.base_branch.clone(),
        draft: !run.found.unresolved.is_empty(),
    };
    let refused = match host.create_pull(&run.repo, &new).await {
        Ok(pull) => return Ok(pull),
        Err(error) => error,
    };
    // It may be there: made by a try whose answer was lost, or by somebody else.
    if refused.is_ambiguous() || refused.status() == Some(422) {
        return host.open_pull(&run.repo, branch).await?.ok_or(refused);
    }
    Err(refused)
}

async fn refresh(
    run: &Run,
    host: &GitHub,
    pull: Pull,
    changes: &[Change],
) -> Result<Pull, VendorError> {
    if run.config.phase == RunPhase::GapAnalysis {
        // The body is the first run's, and people may have written in it.
        let (marker, body) = pull_request::follow_up(run, changes);
        host.upsert_comment(&run.repo, pull.number, &marker, &body)
            .await?;
    } else {
        let (title, body) = (pull_request::title(run), pull_request::body(run, changes));
        host.update_pull(&run.repo, pull.number, &title, &body)
            .await?;
    }
    let flagged = match (pull.draft, run.found.unresolved.is_empty()) {
        (false, false) => host.set_draft(&run.repo, &pull.node_id).await,
        (true, true) => host.set_ready(&run.repo, &pull.node_id).await,
        _ => Ok(()),
    };
    if let Err(error) = flagged {
        // Not every plan knows drafts; the findings stand in the result either way.
        run.console
            .say(&format!("the draft flag was not changed: {error}"));
    }
    Ok(pull)
}

fn rejected(error: GitError) -> Failure {
    Failure::new(FailureCode::PushRejected, error)
}

/// The spec's words for a host that refuses the pull request.
fn pull_failed(error: VendorError) -> Failure {
    let reason = match &error.kind {
        ErrorKind::Status {
            status, message, ..
        } => format!("PR creation failed with HTTP {status}: {message}"),
        _ => format!("PR creation failed: {error}"),
    };
    Failure::new(FailureCode::PushRejected, reason)
}
