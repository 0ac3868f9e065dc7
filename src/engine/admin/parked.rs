//! Release of issues that the dispatch breaker parked.

use crate::app::App;
use domain::audit::{Action, Actor};
use store::{StoreResult, audit, dispatch_breaker};

/// Releases a parked issue, given by id or key, and requests a poll, which decides about it again.
/// Returns whether the issue was parked.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn unpark(app: &App, actor: Actor, id_or_key: String) -> StoreResult<bool> {
    let now = app.core.now();
    let unparked = app.core.store.write(move |tx| {
        let mut all = dispatch_breaker::all(tx)?.into_iter();
        let Some(parked) = all.find(|parked| parked.issue.matches_id_or_key(&id_or_key)) else {
            return Ok(false);
        };
        let event = actor.audit_event(Action::Unparked, &parked.issue.key);
        audit::append(tx, &event, now)?;
        dispatch_breaker::unpark(tx, &parked.issue.id)
    });
    let unparked = unparked.await?;
    if unparked {
        app.live.notifiers.poll.notify_one();
    }
    Ok(unparked)
}
