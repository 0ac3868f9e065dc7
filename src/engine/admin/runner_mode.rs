//! Stored runner mode.

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::runner_mode::RunnerMode;
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, audit, settings};

/// Stores the runner mode, even if the environment overrides it, and requests a poll: issues that
/// could not run in the previous mode may be eligible now.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn set(app: &App, actor: Actor, mode: RunnerMode) -> StoreResult<()> {
    let now = app.core.now();
    let put = app
        .core
        .store
        .write(move |tx| put_runner_mode(tx, &actor, mode, now));
    put.await?;
    app.live.notifiers.poll.notify_one();
    Ok(())
}

/// Stores the runner mode and records it in the audit log.
pub(super) fn put_runner_mode(
    tx: &WriteTx<'_>,
    actor: &Actor,
    mode: RunnerMode,
    now: Timestamp,
) -> StoreResult<()> {
    settings::put_runner_mode(tx, mode)?;
    let event = actor.audit_event(Action::RunnerModeSet, mode.as_str());
    audit::append(tx, &event, now)
}
