//! Effects on the merge of a pull request: merge, disarm, delete the branch.
//!
//! Each reads the pull request first, so that what an earlier attempt did is found. A refusal of GitHub is an outcome
//! for the rules, not a failure of the effect.

use super::{EffectFailure, EffectOutcome, github};
use crate::app::App;
use crate::pull_requests::merge;
use domain::feedback::PullRequestId;
use domain::merge_policy::{MergeEvent, MergeGrant, MergeMode};
use domain::sanitize;
use domain::transition::FailureKind;
use store::outbox::OutboxEntry;
use store::{StoreError, jobs};
use vendors::http::VendorError;
use vendors::scm::{GitHub, MergeStatus, PullRequest, PullRequestState};

/// Maximum length of GitHub's reason, in characters.
const MAX_REASON: usize = 300;

/// Number of attempts at a merge that GitHub refuses although nothing has changed, such as while another pull request
/// is being merged.
const MAX_REFUSED_ATTEMPTS: u32 = 3;

/// Event about a pull request that an effect causes.
#[derive(Debug)]
pub(crate) enum PullEvent {
    /// Answer to a request to merge, or not to merge.
    Merge(MergeEvent),
    /// The branch with this name was deleted.
    BranchDeleted(String),
}

/// Merges a pull request, arms its merge, or finds what an earlier attempt did.
pub(super) async fn merge(
    app: &App,
    entry: &OutboxEntry,
    pull: &PullRequestId,
    grant: &MergeGrant,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(&app.vendors)?;
    let status = github.merge_status(pull).await?;
    if let Some(event) = known_event(&status, grant) {
        return Ok(outcome(pull, event));
    }
    let is_wanted = merge::is_wanted(app, github, pull, grant).await;
    if !is_wanted.map_err(|reason| EffectFailure::transient(&reason))? {
        return Ok(outcome(pull, MergeEvent::NotWanted));
    }
    let requested = match request(github, pull, grant, &status).await {
        Ok(event) => return Ok(outcome(pull, event)),
        Err(error) => error,
    };
    if !requested.is_permanent() || requested.is_unauthorized() {
        return Err(requested.into());
    }
    let status = github.merge_status(pull).await?;
    if let Some(event) = known_event(&status, grant) {
        return Ok(outcome(pull, event));
    }
    let may_pass = matches!(requested.status(), Some(405 | 409)) && status.is_mergeable_now();
    if may_pass && entry.attempts < MAX_REFUSED_ATTEMPTS {
        return Err(EffectFailure::transient(&requested.to_string()));
    }
    let reason = requested.sentence("GitHub");
    let reason = sanitize::single_line(reason.trim_end_matches('.'));
    let reason = sanitize::truncate_chars(reason, MAX_REASON, sanitize::ELLIPSIS);
    Ok(outcome(pull, MergeEvent::Refused(reason.into_owned())))
}

fn outcome(pull: &PullRequestId, event: MergeEvent) -> EffectOutcome {
    EffectOutcome::PullEvent(pull.clone(), PullEvent::Merge(event))
}

fn store_failure(error: StoreError) -> EffectFailure {
    EffectFailure::transient(&error.to_string())
}

/// Returns what has happened already, or what makes the grant pointless.
fn known_event(status: &MergeStatus, grant: &MergeGrant) -> Option<MergeEvent> {
    match status.state {
        PullRequestState::Merged => Some(merged(status)),
        PullRequestState::Closed => Some(MergeEvent::Outdated),
        PullRequestState::Open if status.is_queued => Some(MergeEvent::Queued),
        PullRequestState::Open if status.is_armed => Some(MergeEvent::Armed),
        PullRequestState::Open if status.head != grant.head => Some(MergeEvent::Outdated),
        PullRequestState::Open => None,
    }
}

fn merged(status: &MergeStatus) -> MergeEvent {
    MergeEvent::Merged {
        commit: status.merge_commit.clone().unwrap_or_default(),
        head: status.head.clone(),
        is_ours: status.is_merged_by_us_or_app,
    }
}

/// Asks GitHub to merge: at once if nothing is missing, otherwise by auto-merge.
async fn request(
    github: &GitHub,
    pull: &PullRequestId,
    grant: &MergeGrant,
    status: &MergeStatus,
) -> Result<MergeEvent, VendorError> {
    if grant.mode == MergeMode::Queue {
        let queued = github.enqueue_pull(&pull.repo, &status.node_id, &grant.head);
        return queued.await.map(|()| MergeEvent::Queued);
    }
    if status.is_auto_merge_allowed && !status.is_mergeable_now() {
        let armed =
            github.enable_auto_merge(&pull.repo, &status.node_id, &grant.head, grant.method);
        match armed.await {
            Ok(()) => return Ok(MergeEvent::Armed),
            // GitHub does not arm what it can merge at once: what was missing has come meanwhile.
            Err(error) if is_ready(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let commit = github.merge_pull(pull, &grant.head, grant.method).await?;
    Ok(MergeEvent::Merged {
        commit,
        head: grant.head.clone(),
        is_ours: true,
    })
}

/// Returns whether GitHub refused to arm a pull request because it can be merged at once.
fn is_ready(error: &VendorError) -> bool {
    let text = error.to_string();
    text.contains("is in clean status") || text.contains("is in unstable status")
}

/// Stops auto-merge that this service armed, and removes the pull request from the merge queue.
pub(super) async fn disarm(
    app: &App,
    pull: &PullRequestId,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(&app.vendors)?;
    let status = github.merge_status(pull).await?;
    let stopped = match status.state {
        PullRequestState::Merged => return Ok(outcome(pull, merged(&status))),
        PullRequestState::Open if status.is_queued => {
            github.dequeue_pull(&pull.repo, &status.node_id).await
        }
        // What a person has armed stays armed.
        PullRequestState::Open if status.is_armed_by_us => {
            github.disable_auto_merge(&pull.repo, &status.node_id).await
        }
        PullRequestState::Open | PullRequestState::Closed => Ok(()),
    };
    let Err(error) = stopped else {
        return Ok(outcome(pull, MergeEvent::Disarmed));
    };
    let status = github.merge_status(pull).await?;
    match status.state {
        PullRequestState::Merged => Ok(outcome(pull, merged(&status))),
        PullRequestState::Open if status.is_queued || status.is_armed_by_us => Err(EffectFailure {
            // Nothing may be merged that the rules do not grant: an operator must know if this fails for long.
            cause: FailureKind::Transient,
            ..error.into()
        }),
        PullRequestState::Open | PullRequestState::Closed => {
            Ok(outcome(pull, MergeEvent::Disarmed))
        }
    }
}

/// Deletes the branch of a merged pull request, if nobody needs it.
pub(super) async fn delete_branch(
    app: &App,
    pull: &PullRequestId,
) -> Result<EffectOutcome, EffectFailure> {
    let (github, repo) = (github(&app.vendors)?, &pull.repo);
    let merged = match github.pull(repo, pull.number).await {
        Ok(merged) => merged,
        Err(error) => return super::treat_not_found_as_gone(Err(error)),
    };
    let branch = merged.head_branch.as_str();
    let active = app.core.store.read(jobs::active).map_err(store_failure)?;
    if active
        .iter()
        .any(|job| job.repo == *repo && job.branch == branch)
    {
        return Ok(EffectOutcome::Postponed("a run works on the branch"));
    }
    if let Some(reason) = reason_to_keep(github, pull, &merged).await? {
        return Ok(EffectOutcome::Gone(reason.to_owned()));
    }
    match github.delete_branch(repo, branch).await {
        Ok(()) => Ok(EffectOutcome::PullEvent(
            pull.clone(),
            PullEvent::BranchDeleted(merged.head_branch),
        )),
        // Somebody else, or an earlier attempt, has deleted it.
        Err(error) if matches!(error.status(), Some(404 | 422)) => Ok(EffectOutcome::Done),
        Err(error) => Err(error.into()),
    }
}

/// Returns why the branch of a merged pull request is kept.
async fn reason_to_keep(
    github: &GitHub,
    pull: &PullRequestId,
    merged: &PullRequest,
) -> Result<Option<&'static str>, VendorError> {
    let (repo, branch) = (&pull.repo, merged.head_branch.as_str());
    if merged.state != PullRequestState::Merged {
        return Ok(Some("the pull request is not merged"));
    }
    if !merged.is_from_own_repo {
        return Ok(Some("the branch is in another repository"));
    }
    if branch == merged.base_branch || branch == github.default_branch(repo).await? {
        return Ok(Some("the branch is the base or the default branch"));
    }
    if github.find_open_pull(repo, branch).await?.is_some() {
        return Ok(Some("another pull request of the branch is open"));
    }
    if github.is_base_of_open_pull(repo, branch).await? {
        return Ok(Some("the branch is the base of another open pull request"));
    }
    match github.branch_sha(repo, branch).await? {
        None => Ok(Some("the branch does not exist any more")),
        Some(head) if head != merged.head_sha => {
            Ok(Some("commits were pushed to the branch after the merge"))
        }
        Some(_) => Ok(None),
    }
}
