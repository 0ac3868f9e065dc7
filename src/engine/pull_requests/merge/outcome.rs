//! What GitHub answered to the effects of a merge, and the end of a pull request.

use domain::audit::Action;
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::mapping::Mapping;
use domain::merge_policy::{
    MergeEvent, MergeGrant, MergeMode, MergeProgress, MergeRefusal, MergeRule,
};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, jobs, mappings, outbox, pull_feedback};

use super::{append_audit, request_in};
use crate::pull_requests::ledger::close_pull;

/// Records an answer of GitHub, with what follows from it.
pub(crate) fn record(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    event: &MergeEvent,
    now: Timestamp,
) -> StoreResult<()> {
    let mut record = pull_feedback::get_pull(tx, pull)?;
    let Some(progress) = record.merge.progress.clone() else {
        return Ok(());
    };
    match (progress, event) {
        (
            MergeProgress::Requested(grant) | MergeProgress::Disarming { grant, .. },
            MergeEvent::Merged {
                commit,
                head,
                is_ours,
            },
        ) => {
            let merged_head = is_ours.then_some(head.as_str());
            record_merge(tx, pull, record, &grant, merged_head, now)?;
            let status = PullRequestStatus::Merged {
                commit: commit.clone(),
                at: now,
            };
            close_pull(tx, pull, status, now).map(drop)
        }
        (MergeProgress::Requested(grant), MergeEvent::Armed | MergeEvent::Queued) => {
            let detail = grant_detail(&grant);
            record.readiness.is_auto_merge_armed = *event == MergeEvent::Armed;
            record.merge.progress = Some(match event {
                MergeEvent::Queued => MergeProgress::Queued(grant),
                _ => MergeProgress::Armed(grant),
            });
            pull_feedback::put_pull(tx, pull, &record)?;
            append_audit(tx, Action::MergeArmed, pull, &detail, now)
        }
        (MergeProgress::Requested(grant), MergeEvent::Refused(reason)) => {
            let refusal = MergeRefusal::new(&grant.head, MergeRule::GitHub, reason);
            store_refusal(tx, pull, record, refusal, now)
        }
        (MergeProgress::Requested(_), _) => {
            record.merge.progress = None;
            pull_feedback::put_pull(tx, pull, &record)
        }
        (MergeProgress::Disarming { reason, .. }, _) => {
            record.readiness.is_auto_merge_armed = false;
            append_audit(tx, Action::MergeDisarmed, pull, &reason.message, now)?;
            store_refusal(tx, pull, record, reason, now)
        }
        (
            MergeProgress::Refused(_)
            | MergeProgress::Armed(_)
            | MergeProgress::Queued(_)
            | MergeProgress::Merged(_),
            _,
        ) => Ok(()),
    }
}

/// Stores a refusal. Each rule of a head enters the audit once.
pub(super) fn store_refusal(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    mut record: PullRequestRecord,
    refusal: MergeRefusal,
    now: Timestamp,
) -> StoreResult<()> {
    let message = refusal.message.clone();
    if record.merge.refuse(refusal) {
        append_audit(tx, Action::MergeRefused, pull, &message, now)?;
    }
    pull_feedback::put_pull(tx, pull, &record)
}

/// Records a merge. `merged_head` is the head that was merged for the policy; `None` if a person merged.
fn record_merge(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    mut record: PullRequestRecord,
    grant: &MergeGrant,
    merged_head: Option<&str>,
    now: Timestamp,
) -> StoreResult<()> {
    let is_granted = merged_head == Some(grant.head.as_str());
    record.merge.progress = is_granted.then(|| MergeProgress::Merged(grant.clone()));
    pull_feedback::put_pull(tx, pull, &record)?;
    let Some(merged_head) = merged_head else {
        return Ok(());
    };
    let (note, detail) = match is_granted {
        true => (comments::merged_by_policy(grant), grant_detail(grant)),
        false => {
            let note = comments::merged_after_push(grant, merged_head);
            (note.clone(), note)
        }
    };
    append_audit(tx, Action::PullMerged, pull, &detail, now)?;
    let on_pull = Effect::PullComment {
        repo: pull.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::New,
        body: note.clone(),
    };
    outbox::push(tx, &on_pull, now)?;
    if let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop() {
        let on_ticket = Effect::TicketComment {
            issue: job.issue,
            body: note,
        };
        outbox::push(tx, &on_ticket, now)?;
    }
    Ok(())
}

/// Returns rule, approvals and head of a grant, for the audit.
fn grant_detail(grant: &MergeGrant) -> String {
    let mode = match grant.mode {
        MergeMode::Queue => "queue",
        MergeMode::Auto | MergeMode::Never => "auto",
    };
    format!(
        "merge.mode {mode}, merge.requireApprovals {}: {}",
        grant.required_approvals,
        comments::merge_reasons(grant)
    )
}

/// Ends what concerns the merge of a pull request that is closed. If GitHub may have merged it for the policy, an
/// effect looks up who did. If the project asks for it, the branch of a merged one is deleted.
pub(crate) fn end_with_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    status: &PullRequestStatus,
    now: Timestamp,
) -> StoreResult<()> {
    let mut record = pull_feedback::get_pull(tx, pull)?;
    let is_merged = matches!(status, PullRequestStatus::Merged { .. });
    match record.merge.progress.clone() {
        Some(MergeProgress::Armed(grant) | MergeProgress::Queued(grant)) if is_merged => {
            request_in(tx, pull, &grant, now)?;
        }
        // An effect is about to find the merge.
        Some(MergeProgress::Requested(_) | MergeProgress::Disarming { .. }) if is_merged => {}
        Some(MergeProgress::Merged(_)) | None => {}
        Some(_) => {
            record.merge.progress = None;
            pull_feedback::put_pull(tx, pull, &record)?;
        }
    }
    let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop() else {
        return Ok(());
    };
    let mapping = mappings::get(tx, &job.team)?;
    let deletes = |mapping: &Mapping| mapping.delete_branch && mapping.target_repo() == pull.repo;
    if is_merged && mapping.as_ref().is_some_and(deletes) {
        let effect = Effect::DeleteBranch {
            repo: pull.repo.clone(),
            number: pull.number,
        };
        outbox::push(tx, &effect, now)?;
    }
    Ok(())
}

/// Records that the branch of a merged pull request was deleted.
pub(crate) fn record_deletion(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    branch: &str,
    now: Timestamp,
) -> StoreResult<()> {
    append_audit(tx, Action::BranchDeleted, pull, branch, now)
}
