//! Polls requested by an operator.

use crate::app::App;
use domain::audit::{Action, Actor};
use store::{StoreResult, audit};

/// Starts a poll of the ticketing systems at once.
///
/// # Errors
/// Fails if the audit entry cannot be stored.
pub async fn request(app: &App, actor: Actor) -> StoreResult<()> {
    let (event, now) = (actor.audit_event(Action::PollRequested, ""), app.core.now());
    let recorded = app
        .core
        .store
        .write(move |tx| audit::append(tx, &event, now));
    recorded.await?;
    app.live.notifiers.poll.notify_one();
    Ok(())
}
