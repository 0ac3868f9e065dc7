//! Stored runner mode.

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::runner_mode::RunnerMode;
use store::{StoreResult, audit, settings};

/// Stores the runner mode, even if the environment overrides it, and requests a poll: issues that
/// could not run in the previous mode may be eligible now.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn set(app: &App, actor: Actor, mode: RunnerMode) -> StoreResult<()> {
    let event = actor.audit_event(Action::RunnerModeSet, mode.as_str());
    let now = app.core.now();
    let put = app.core.store.write(move |tx| {
        settings::put_runner_mode(tx, mode)?;
        audit::append(tx, &event, now)
    });
    put.await?;
    app.live.notifiers.poll.notify_one();
    Ok(())
}
