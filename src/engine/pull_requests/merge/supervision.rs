//! Pull requests that GitHub may merge by itself: what was granted must hold until it does.

use crate::app::App;
use domain::effect::Effect;
use domain::feedback::PullRequestId;
use domain::merge_policy::{
    MergeDecision, MergeGrant, MergeMode, MergeProgress, MergeRefusal, MergeRule, decide, short_sha,
};
use domain::time::Timestamp;
use store::{ReadTx, StoreResult, WriteTx, outbox, pull_feedback};
use vendors::scm::PullRequestState;

use super::stored::StoredMerge;
use super::{facts, is_due, known_refusal, outcome};

/// What must happen to an armed or queued pull request.
enum Step {
    /// GitHub is asked not to merge.
    Disarm(MergeRefusal),
    /// Somebody, or GitHub, has stopped it already.
    Stopped(MergeRefusal),
}

/// Continues what no effect will report about any more, because an operator has dropped it or it was given up.
pub(super) async fn resume(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let disarm = disarm_effect(pull);
    let queue_key = disarm.queue_key();
    let is_lost = |tx: &ReadTx| Ok(!outbox::has_queue(tx, &queue_key)?);
    if !app.core.store.read(is_lost)? {
        return Ok(());
    }
    let (pull, now) = (pull.clone(), app.core.now());
    let write = app.core.store.write(move |tx| {
        let mut record = pull_feedback::get_pull(tx, &pull)?;
        if outbox::has_queue(tx, &disarm.queue_key())? {
            return Ok(());
        }
        match record.merge.progress {
            Some(MergeProgress::Requested(_)) => {
                record.merge.progress = None;
                pull_feedback::put_pull(tx, &pull, &record)
            }
            Some(MergeProgress::Disarming { .. }) => outbox::push(tx, &disarm, now).map(drop),
            _ => Ok(()),
        }
    });
    write.await
}

fn disarm_effect(pull: &PullRequestId) -> Effect {
    Effect::DisarmMerge {
        repo: pull.repo.clone(),
        number: pull.number,
    }
}

/// Checks an armed or queued pull request.
pub(super) async fn check(app: &App, pull: &PullRequestId, grant: &MergeGrant) -> StoreResult<()> {
    let now = app.core.now();
    let Some(stored) = app.core.store.read(|tx| StoredMerge::read(tx, pull))? else {
        return Ok(());
    };
    let step = match stored_step(&stored, grant) {
        Some(step) => Some(step),
        None if is_due(app, pull, &stored, now) => fetched_step(app, pull, &stored, grant).await,
        None => None,
    };
    let Some(step) = step else {
        return Ok(());
    };
    let (pull, grant) = (pull.clone(), grant.clone());
    let write = app
        .core
        .store
        .write(move |tx| commit(tx, &pull, &grant, &step, now));
    write.await
}

/// Returns the step that follows from the store alone.
fn stored_step(stored: &StoredMerge, grant: &MergeGrant) -> Option<Step> {
    if let Some(head) = stored.head().filter(|head| *head != grant.head) {
        return Some(Step::Disarm(pushed(head, grant)));
    }
    let is_changed = stored.policy.mode != grant.mode || stored.policy.method != grant.method;
    if is_changed && stored.policy.mode != MergeMode::Never {
        let what = "the policy of the project has changed";
        let refusal = MergeRefusal::new(&grant.head, MergeRule::Mode, what);
        return Some(Step::Disarm(refusal));
    }
    known_refusal(stored).map(Step::Disarm)
}

/// Returns the step that follows from the facts at GitHub. If they cannot be read, nothing changes.
async fn fetched_step(
    app: &App,
    pull: &PullRequestId,
    stored: &StoredMerge,
    grant: &MergeGrant,
) -> Option<Step> {
    let (github, mapping) = (app.vendors.github.as_ref()?, stored.mapping.as_ref()?);
    let read = match facts::read(app, github, pull, mapping).await {
        Ok(read) => read,
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Could not read the facts about a merge.");
            return None;
        }
    };
    let status = &read.status;
    if status.state != PullRequestState::Open {
        // The webhook or the next sweep reports the end.
        return None;
    }
    if !status.is_armed && !status.is_queued {
        let what = match grant.mode {
            MergeMode::Queue => "it left the merge queue without a merge",
            MergeMode::Auto | MergeMode::Never => "auto-merge was turned off",
        };
        let what = format!(
            "{what}; {} is not merged by policy again",
            short_sha(&grant.head)
        );
        let refusal = MergeRefusal::new(&grant.head, MergeRule::Stopped, &what);
        return Some(Step::Stopped(refusal));
    }
    if status.head != grant.head {
        return Some(Step::Disarm(pushed(&status.head, grant)));
    }
    let (policy, local) = (&stored.policy, &stored.local);
    match decide(policy, &stored.default_branch, local, &read.facts) {
        MergeDecision::Merge(_) => None,
        MergeDecision::Refused(refusal) => Some(Step::Disarm(refusal)),
    }
}

fn pushed(head: &str, grant: &MergeGrant) -> MergeRefusal {
    let what = format!(
        "{} was pushed after the approval of {}",
        short_sha(head),
        short_sha(&grant.head)
    );
    MergeRefusal::new(head, MergeRule::RequireApprovals, &what)
}

fn commit(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    grant: &MergeGrant,
    step: &Step,
    now: Timestamp,
) -> StoreResult<()> {
    let mut record = pull_feedback::get_pull(tx, pull)?;
    let is_same = record
        .merge
        .progress
        .as_ref()
        .is_some_and(|progress| progress.is_armed() && progress.open_grant() == Some(grant));
    if !is_same {
        return Ok(());
    }
    let reason = match step {
        Step::Disarm(reason) => reason.clone(),
        Step::Stopped(refusal) => {
            return outcome::store_refusal(tx, pull, record, refusal.clone(), now);
        }
    };
    record.merge.progress = Some(MergeProgress::Disarming {
        grant: grant.clone(),
        reason,
    });
    pull_feedback::put_pull(tx, pull, &record)?;
    outbox::push(tx, &disarm_effect(pull), now).map(drop)
}
