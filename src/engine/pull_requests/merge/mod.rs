//! Merges of pull requests by the policy of their project.
//!
//! Rules: [`domain::merge_policy`]. [`process`] reads the facts about a pull request that people have approved,
//! decides, and commits the decision with its effect. [`outcome`] records what GitHub answered. While GitHub may
//! merge by itself, [`supervision`] checks that what was granted still holds.

mod facts;
mod outcome;
mod stored;
mod supervision;
mod view;

use super::landing;
use crate::app::App;
use domain::audit::{Action, Actor};
use domain::crypto::sha256_hex;
use domain::effect::Effect;
use domain::feedback::{ChecksState, PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::merge_policy::{
    MergeDecision, MergeGrant, MergeMode, MergeProgress, MergeRefusal, MergeRule, decide,
    expected_event, local_refusal, reported_refusal,
};
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, audit, outbox, pull_feedback};
use vendors::scm::{GitHub, PullRequestState};

pub(crate) use outcome::{end_with_pull, record as record_outcome, record_deletion};
use stored::StoredMerge;
pub use view::{MergeView, view};

/// Returns whether a pull request has been approved, or a merge of it was granted and has not ended.
pub(super) fn may_be_due(record: &PullRequestRecord) -> bool {
    record.status == PullRequestStatus::Open
        && match &record.merge.progress {
            Some(MergeProgress::Refused(_) | MergeProgress::Merged(_)) | None => {
                record.readiness.approvals > 0
            }
            Some(_) => true,
        }
}

/// Merges a pull request if the policy of its project permits it, or checks what was granted before.
pub(super) async fn process(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let record = app
        .core
        .store
        .read(|tx| pull_feedback::get_pull(tx, pull))?;
    if !may_be_due(&record) {
        return Ok(());
    }
    match &record.merge.progress {
        Some(MergeProgress::Requested(_) | MergeProgress::Disarming { .. }) => {
            supervision::resume(app, pull).await
        }
        Some(MergeProgress::Armed(grant) | MergeProgress::Queued(grant)) => {
            supervision::check(app, pull, grant).await
        }
        Some(MergeProgress::Refused(_) | MergeProgress::Merged(_)) | None => {
            consider(app, pull).await
        }
    }
}

/// Decides about the head of a pull request that somebody has approved.
async fn consider(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let now = app.core.now();
    let stored = app.core.store.read(|tx| StoredMerge::read(tx, pull))?;
    let (Some(stored), Some(github)) = (stored, &app.vendors.github) else {
        return Ok(());
    };
    if !is_open_to_decision(&stored, now) {
        return Ok(());
    }
    if let Some(refusal) = known_refusal(&stored) {
        return refuse(app, pull, refusal).await;
    }
    if !is_due(app, pull, &stored, now) {
        return Ok(());
    }
    let Some(mapping) = &stored.mapping else {
        return Ok(());
    };
    let read = match facts::read(app, github, pull, mapping).await {
        Ok(read) => read,
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Could not read the facts about a merge.");
            return Ok(());
        }
    };
    if read.status.state != PullRequestState::Open {
        return Ok(());
    }
    match decide(
        &stored.policy,
        &stored.default_branch,
        &stored.local,
        &read.facts,
    ) {
        MergeDecision::Refused(refusal) => refuse(app, pull, refusal).await,
        MergeDecision::Merge(grant) => request(app, pull, grant).await,
    }
}

/// Returns whether a decision about the current head is open.
fn is_open_to_decision(stored: &StoredMerge, now: Timestamp) -> bool {
    let progress = stored.record.merge.progress.as_ref();
    let is_stopped = matches!(progress, Some(MergeProgress::Refused(refusal))
        if refusal.rule == MergeRule::Stopped && Some(refusal.head.as_str()) == stored.head());
    stored.policy.mode != MergeMode::Never
        && stored.head().is_some()
        && !is_stopped
        && expected_event(&stored.record.readiness, stored.head_age(now)).is_none()
}

/// Returns the refusal that follows from the store alone.
fn known_refusal(stored: &StoredMerge) -> Option<MergeRefusal> {
    let is_draft = stored.record.draft.unwrap_or_default();
    let refused = local_refusal(&stored.policy, &stored.local)
        .or_else(|| reported_refusal(is_draft, &stored.record.readiness));
    let (rule, what) = refused?;
    Some(MergeRefusal::new(
        stored.head().unwrap_or_default(),
        rule,
        &what,
    ))
}

/// Returns whether the facts must be read, and records that they are. While checks fail or run, a change of their
/// number is no reason: only the last one decides.
fn is_due(app: &App, pull: &PullRequestId, stored: &StoredMerge, now: Timestamp) -> bool {
    let readiness = &stored.record.readiness;
    let checks = readiness.checks.map(|checks| checks.state);
    let is_undecided = matches!(checks, Some(ChecksState::Failure | ChecksState::Pending));
    let inputs = format!(
        "{:?}",
        (
            readiness,
            stored.record.draft,
            &stored.policy,
            &stored.default_branch,
            &stored.local
        )
    );
    let inputs = sha256_hex(&inputs);
    let compared = (!is_undecided).then_some(inputs.as_str());
    let is_due = app.live.merge_checks.is_due(pull, compared, now);
    if is_due {
        app.live.merge_checks.record(pull, inputs, now);
    }
    is_due
}

/// Records a refusal. Each rule of a head enters the audit once.
async fn refuse(app: &App, pull: &PullRequestId, refusal: MergeRefusal) -> StoreResult<()> {
    let record = app
        .core
        .store
        .read(|tx| pull_feedback::get_pull(tx, pull))?;
    if record.merge.progress == Some(MergeProgress::Refused(refusal.clone())) {
        return Ok(());
    }
    tracing::info!(repo = %pull.repo, pull = pull.number, reason = refusal.message, "Refused the merge of a pull request.");
    let (pull, now) = (pull.clone(), app.core.now());
    let write = app.core.store.write(move |tx| {
        let record = pull_feedback::get_pull(tx, &pull)?;
        let progress = record.merge.progress.as_ref();
        match progress.is_some_and(|progress| progress.open_grant().is_some()) {
            true => Ok(()),
            false => outcome::store_refusal(tx, &pull, record, refusal.clone(), now),
        }
    });
    write.await
}

/// Commits a grant with the effect that merges. What may have changed in the store is checked again.
async fn request(app: &App, pull: &PullRequestId, grant: MergeGrant) -> StoreResult<()> {
    let (pull_id, now) = (pull.clone(), app.core.now());
    let requested = app.core.store.write(move |tx| {
        if !is_grantable(tx, &pull_id, &grant)? {
            return Ok(false);
        }
        request_in(tx, &pull_id, &grant, now)?;
        Ok(true)
    });
    if requested.await? {
        landing::crash_if_planned(app);
        tracing::info!(repo = %pull.repo, pull = pull.number, "Granted the merge of a pull request by policy.");
    }
    Ok(())
}

/// Returns whether nothing in the store speaks against a grant.
fn is_grantable(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    grant: &MergeGrant,
) -> StoreResult<bool> {
    let Some(stored) = StoredMerge::read(tx, pull)? else {
        return Ok(false);
    };
    let progress = stored.record.merge.progress.as_ref();
    let is_idle = progress.is_none_or(|progress| progress.open_grant().is_none());
    Ok(is_idle && holds(&stored, grant))
}

/// Returns whether a grant still holds, as far as the store knows.
fn holds(stored: &StoredMerge, grant: &MergeGrant) -> bool {
    stored.record.status == PullRequestStatus::Open
        && stored.head() == Some(grant.head.as_str())
        && stored.policy.mode == grant.mode
        && stored.policy.method == grant.method
        && known_refusal(stored).is_none()
}

/// Returns whether a grant that was requested still holds, in the store and at GitHub. Checked right before GitHub is
/// asked to merge, which may be long after the decision: a request that fails is repeated.
///
/// # Errors
/// Fails with the reason if the store or the facts cannot be read.
pub(crate) async fn is_wanted(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    grant: &MergeGrant,
) -> Result<bool, String> {
    let stored = app.core.store.read(|tx| StoredMerge::read(tx, pull));
    let stored = stored.map_err(|error| error.to_string())?;
    let requested = Some(MergeProgress::Requested(grant.clone()));
    let is_requested = |stored: &StoredMerge| stored.record.merge.progress == requested;
    let Some(stored) = stored.filter(|stored| is_requested(stored) && holds(stored, grant)) else {
        return Ok(false);
    };
    let Some(mapping) = &stored.mapping else {
        return Ok(false);
    };
    let read = facts::read(app, github, pull, mapping).await?;
    let (branch, local) = (&stored.default_branch, &stored.local);
    let decision = decide(&stored.policy, branch, local, &read.facts);
    Ok(matches!(decision, MergeDecision::Merge(current) if current.head == grant.head))
}

fn request_in(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    grant: &MergeGrant,
    now: Timestamp,
) -> StoreResult<()> {
    let mut record = pull_feedback::get_pull(tx, pull)?;
    record.merge.progress = Some(MergeProgress::Requested(grant.clone()));
    pull_feedback::put_pull(tx, pull, &record)?;
    let effect = Effect::MergePull {
        repo: pull.repo.clone(),
        number: pull.number,
        grant: Box::new(grant.clone()),
    };
    outbox::push(tx, &effect, now).map(drop)
}

/// Appends an entry about a merge to the audit.
fn append_audit(
    tx: &WriteTx<'_>,
    action: Action,
    pull: &PullRequestId,
    detail: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let target = format!("{}#{}", pull.repo, pull.number);
    let event = Actor::service()
        .audit_event(action, target)
        .with_detail(detail);
    audit::append(tx, &event, now)
}
