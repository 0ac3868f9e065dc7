//! Telling people on a pull request, in one comment each, why something waits.

use crate::app::App;
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullId, PullRow};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, findings, outbox};

/// Names of the comments in which people are told why something waits.
pub(super) const FOLLOW_UP_BUDGET: &str = "follow-up-budget";
pub(super) const BUDGET: &str = "budget";
const MODEL_LIMIT: &str = "model-limit";

/// Whether people have been told that something waits until then.
pub(super) fn is_told(app: &App, pull: &PullId, until: Timestamp) -> StoreResult<bool> {
    let known = app.store.read(|tx| findings::pull(tx, pull))?;
    Ok(known.told_until == Some(until))
}

/// Tells people, once for each time, that nothing more comes by itself for a while.
pub(super) async fn tell(
    app: &App,
    pull: &PullId,
    until: Timestamp,
    name: &'static str,
    body: String,
) -> StoreResult<()> {
    if is_told(app, pull, until)? {
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
    pull: &PullId,
    until: Timestamp,
    name: &str,
    body: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let known = findings::pull(tx, pull)?;
    if known.told_until == Some(until) {
        return Ok(());
    }
    let row = PullRow {
        told_until: Some(until),
        ..known
    };
    findings::put_pull(tx, pull, &row)?;
    pin(tx, pull, name, body, now)
}

/// Tells people that a run they asked for starts when the provider's limit is lifted.
pub(super) fn tell_of_limit(
    tx: &WriteTx<'_>,
    pull: &PullId,
    until: Timestamp,
    now: Timestamp,
) -> StoreResult<()> {
    let body = comments::command_waits(until);
    tell_once(tx, pull, until, MODEL_LIMIT, &body, now)
}

/// Tells people that a run they asked for is not started, because the budget does not allow it.
pub(super) fn refuse_command(
    tx: &WriteTx<'_>,
    pull: &PullId,
    told: &str,
    now: Timestamp,
) -> StoreResult<()> {
    pin(tx, pull, BUDGET, &comments::command_refused(told), now)
}

fn pin(tx: &WriteTx<'_>, pull: &PullId, name: &str, body: &str, now: Timestamp) -> StoreResult<()> {
    let comment = Effect::PullComment {
        repo: pull.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::Pinned {
            name: name.to_owned(),
        },
        body: body.to_owned(),
    };
    outbox::push(tx, &comment, now).map(drop)
}
