//! Deletion of dedup entries.

use crate::app::Core;
use domain::audit::{Action, Actor};
use store::{StoreResult, audit, dedup};

/// Deletes the active dedup entry of an issue, given by id or key. Returns whether there was one.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn remove(core: &Core, actor: Actor, id_or_key: String) -> StoreResult<bool> {
    let (window, now) = (core.config.dedup_window, core.now());
    let removed = core.store.write(move |tx| {
        let entry = dedup::all(tx)?.into_iter().find(|entry| {
            entry.issue.matches_id_or_key(&id_or_key) && entry.is_active(window, now)
        });
        let Some(entry) = entry else {
            return Ok(false);
        };
        let event = actor.audit_event(Action::DedupDeleted, &entry.issue.key);
        audit::append(tx, &event, now)?;
        dedup::remove(tx, &entry.issue.id)
    });
    removed.await
}
