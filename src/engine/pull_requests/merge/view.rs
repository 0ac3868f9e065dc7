//! Merge by policy as operators see it.

use domain::comments;
use domain::feedback::{PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::job::Job;
use domain::merge_policy::{
    MergeGrant, MergeMode, MergeProgress, MergeRefusal, MergeRule, expected_event,
};
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult};

use super::known_refusal;
use super::stored::StoredMerge;

/// Merge of a pull request by policy. All fields are empty if people merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergeView {
    /// `refused`, `armed`, `queued` or `merged`. `None` if nothing is decided.
    pub state: Option<&'static str>,
    /// Rule that refuses, or that has granted, the merge.
    pub rule: Option<&'static str>,
    /// Sentence.
    pub message: Option<String>,
    /// SHA of the head that the decision is about.
    pub head: Option<String>,
    /// Logins of the people who approved that head.
    pub approved_by: Vec<String>,
}

/// Returns the merge of a pull request with this latest job and record, as of now.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn view(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    job: &Job,
    record: PullRequestRecord,
    now: Timestamp,
) -> StoreResult<MergeView> {
    let is_merged = matches!(record.merge.progress, Some(MergeProgress::Merged(_)));
    if record.status != PullRequestStatus::Open && !is_merged {
        return Ok(MergeView::default());
    }
    Ok(match &record.merge.progress {
        Some(MergeProgress::Merged(grant)) => granted("merged", grant),
        Some(MergeProgress::Armed(grant)) => granted("armed", grant),
        Some(MergeProgress::Queued(grant)) => granted("queued", grant),
        Some(MergeProgress::Disarming { reason, .. }) => refused(reason),
        Some(MergeProgress::Requested(grant)) => MergeView {
            state: None,
            ..granted("", grant)
        },
        Some(MergeProgress::Refused(_)) | None => {
            let stored = StoredMerge::of(tx, pull, job, record)?;
            undecided(&stored, now).map_or_else(MergeView::default, |refusal| refused(&refusal))
        }
    })
}

/// Returns why an undecided pull request is not merged. `None` if people merge, or if nothing speaks against it.
fn undecided(stored: &StoredMerge, now: Timestamp) -> Option<MergeRefusal> {
    if stored.policy.mode == MergeMode::Never {
        return None;
    }
    if let Some(MergeProgress::Refused(refusal)) = &stored.record.merge.progress
        && is_current(stored, refusal, now)
    {
        return Some(refusal.clone());
    }
    match expected_event(&stored.record.readiness, stored.head_age(now)) {
        Some((rule, what)) => {
            let head = stored.head().unwrap_or_default();
            Some(MergeRefusal::new(head, rule, &what))
        }
        None => known_refusal(stored),
    }
}

/// Returns whether a refusal is about the current head, and nothing that it waited for has come since.
fn is_current(stored: &StoredMerge, refusal: &MergeRefusal, now: Timestamp) -> bool {
    let is_transient = matches!(
        refusal.rule,
        MergeRule::Paused
            | MergeRule::TakenOver
            | MergeRule::ActiveRun
            | MergeRule::OpenFeedback
            | MergeRule::Draft
            | MergeRule::Conflict
    );
    let known = known_refusal(stored);
    stored.head() == Some(refusal.head.as_str())
        && expected_event(&stored.record.readiness, stored.head_age(now)).is_none()
        && known.is_none_or(|known| known == *refusal)
        && (!is_transient || known_refusal(stored).is_some())
}

fn refused(refusal: &MergeRefusal) -> MergeView {
    MergeView {
        state: Some("refused"),
        rule: Some(refusal.rule.name()),
        message: Some(refusal.message.clone()),
        head: Some(refusal.head.clone()),
        approved_by: Vec::new(),
    }
}

fn granted(state: &'static str, grant: &MergeGrant) -> MergeView {
    MergeView {
        state: Some(state),
        rule: Some(MergeRule::RequireApprovals.name()),
        message: Some(comments::merge_reasons(grant)),
        head: Some(grant.head.clone()),
        approved_by: grant.approvers.clone(),
    }
}
