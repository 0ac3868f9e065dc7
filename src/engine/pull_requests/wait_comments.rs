//! Comments on a pull request about why work on it waits: one comment per reason.

use crate::app::Core;
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, outbox, pull_feedback};

/// Name of the comment about the limit of automatic follow-ups.
pub(super) const FOLLOW_UP_BUDGET_COMMENT: &str = "follow-up-budget";
/// Name of the comment about the budget of the mapping.
pub(super) const BUDGET_COMMENT: &str = "budget";
/// Name of the comment about the limit of the model provider.
const MODEL_LIMIT_COMMENT: &str = "model-limit";

/// Whether a comment about a wait until this time has been posted.
pub(super) fn is_posted(core: &Core, pull: &PullRequestId, until: Timestamp) -> StoreResult<bool> {
    let known = core.store.read(|tx| pull_feedback::get_pull(tx, pull))?;
    Ok(known.pause_notified_until == Some(until))
}

/// Posts a comment about a wait, once for each end time.
pub(super) async fn post_once(
    core: &Core,
    pull: &PullRequestId,
    until: Timestamp,
    name: &'static str,
    body: String,
) -> StoreResult<()> {
    if is_posted(core, pull, until)? {
        return Ok(());
    }
    let (pull_id, now) = (pull.clone(), core.now());
    let posted = core
        .store
        .write(move |tx| enqueue_once(tx, &pull_id, until, name, &body, now));
    posted.await
}

fn enqueue_once(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    until: Timestamp,
    name: &str,
    body: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let record = pull_feedback::get_pull(tx, pull)?;
    if record.pause_notified_until == Some(until) {
        return Ok(());
    }
    let row = PullRequestRecord {
        pause_notified_until: Some(until),
        ..record
    };
    pull_feedback::put_pull(tx, pull, &row)?;
    enqueue_sticky(tx, pull, name, body, now)
}

/// Posts that a requested run starts when the provider's limit ends.
pub(super) fn post_limit_wait(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    until: Timestamp,
    now: Timestamp,
) -> StoreResult<()> {
    let body = comments::command_delayed(until);
    enqueue_once(tx, pull, until, MODEL_LIMIT_COMMENT, &body, now)
}

/// Posts that a requested run was rejected because the budget is exhausted.
pub(super) fn post_command_refused(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    reason: &str,
    now: Timestamp,
) -> StoreResult<()> {
    enqueue_sticky(
        tx,
        pull,
        BUDGET_COMMENT,
        &comments::command_refused(reason),
        now,
    )
}

fn enqueue_sticky(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    name: &str,
    body: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let comment = Effect::PullComment {
        repo: pull.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::Sticky {
            name: name.to_owned(),
        },
        body: body.to_owned(),
    };
    outbox::push(tx, &comment, now).map(drop)
}
