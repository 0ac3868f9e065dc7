//! Downloads of stored data. Each is recorded in the audit before it is sent.

use crate::app::Core;
use domain::audit::{Action, Actor, AuditEvent};
use domain::ids::JobId;
use store::{StoreError, StoreResult, audit, jobs, patches};

/// Reason why there is no patch to download.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// No job has this id.
    #[error("no such job")]
    UnknownJob,
    /// The job has no stored patch.
    #[error("the job has no patch")]
    NoPatch,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the patch with the unpushed changes of a job. A patch is unreviewed code.
///
/// # Errors
/// Fails if the job does not exist or has no patch.
pub async fn patch(core: &Core, actor: Actor, job: &JobId) -> Result<String, PatchError> {
    let found = core.store.read(|tx| {
        let stored = jobs::get(tx, job)?;
        Ok(stored.map(|stored| (stored.issue.key, patches::get(tx, job))))
    });
    let (issue, patch) = found?.ok_or(PatchError::UnknownJob)?;
    let patch = patch?.ok_or(PatchError::NoPatch)?;
    let event = actor.audit_event(Action::PatchDownloaded, job);
    record(core, event.with_detail(issue)).await?;
    Ok(patch)
}

/// Records that a backup is sent. A backup contains all data.
///
/// # Errors
/// Fails if the audit entry cannot be stored.
pub async fn record_backup(core: &Core, actor: Actor) -> StoreResult<()> {
    record(core, actor.audit_event(Action::BackupTaken, "store")).await
}

/// Records that the audit is exported. `selection` names the format and the filters.
///
/// # Errors
/// Fails if the audit entry cannot be stored.
pub async fn record_audit_export(core: &Core, actor: Actor, selection: &str) -> StoreResult<()> {
    let event = actor.audit_event(Action::AuditExported, "audit");
    record(core, event.with_detail(selection)).await
}

async fn record(core: &Core, event: AuditEvent) -> StoreResult<()> {
    let now = core.now();
    let recorded = core.store.write(move |tx| audit::append(tx, &event, now));
    recorded.await
}
