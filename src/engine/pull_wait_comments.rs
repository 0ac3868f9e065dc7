//! Telling people on a pull request, in one comment each, why something waits.

use crate::app::App;
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, outbox, pull_feedback};

/// Names of the comments in which people are told why something waits.
pub(super) const FOLLOW_UP_BUDGET_COMMENT: &str = "follow-up-budget";
pub(super) const BUDGET_COMMENT: &str = "budget";
const MODEL_LIMIT: &str = "model-limit";

/// Whether people have been told that something waits until then.
pub(super) fn is_posted(app: &App, pull: &PullRequestId, until: Timestamp) -> StoreResult<bool> {
    let known = app.store.read(|tx| pull_feedback::get_pull(tx, pull))?;
    Ok(known.pause_notified_until == Some(until))
}

/// Tells people, once for each time, that nothing more comes by itself for a while.
pub(super) async fn post_once(
    app: &App,
    pull: &PullRequestId,
    until: Timestamp,
    name: &'static str,
    body: String,
) -> StoreResult<()> {
    if is_posted(app, pull, until)? {
        return Ok(());
    }
    let (place, now) = (pull.clone(), app.now());
    let told = app
        .store
        .write(move |tx| tell_once(tx, &place, until, name, &body, now));
    told.await
}

fn tell_once(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    until: Timestamp,
    name: &str,
    body: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let known = pull_feedback::get_pull(tx, pull)?;
    if known.pause_notified_until == Some(until) {
        return Ok(());
    }
    let row = PullRequestRecord {
        pause_notified_until: Some(until),
        ..known
    };
    pull_feedback::put_pull(tx, pull, &row)?;
    pin(tx, pull, name, body, now)
}

/// Tells people that a run they asked for starts when the provider's limit is lifted.
pub(super) fn post_limit_wait(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    until: Timestamp,
    now: Timestamp,
) -> StoreResult<()> {
    let body = comments::command_delayed(until);
    tell_once(tx, pull, until, MODEL_LIMIT, &body, now)
}

/// Tells people that a run they asked for is not started, because the budget does not allow it.
pub(super) fn post_command_refused(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    told: &str,
    now: Timestamp,
) -> StoreResult<()> {
    pin(
        tx,
        pull,
        BUDGET_COMMENT,
        &comments::command_refused(told),
        now,
    )
}

fn pin(
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
