//! Retrying and dropping of outbox entries by an operator.

use crate::app::{App, Core};
use domain::audit::{Action, Actor, AuditEvent};
use domain::effect::Effect;
use domain::job::Job;
use domain::time::Timestamp;
use domain::transition::FailureKind;
use store::outbox::{self, OutboxEntry, OutboxEntryState};
use store::template_syncs::{self, SyncRecord};
use store::{ReadableTx, StoreError, StoreResult, WriteTx, audit, jobs};

use crate::effects;
use crate::job_events::{self, BreakerPolicy};

/// Failure recorded for the job or project of a dropped entry.
const DROPPED: &str = "it was dropped by an operator";

/// Reason why an outbox entry cannot be retried or dropped.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// No entry has this number.
    #[error("no such outbox entry")]
    NotFound,
    /// A newer effect has replaced it.
    #[error("it is outdated")]
    Outdated,
    /// An attempt is in progress.
    #[error("an attempt is in progress")]
    InProgress,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes an entry due now. A dead entry is performed before all later entries of its queue key, and
/// a waiting entry without delay. An entry in progress does not change.
///
/// # Errors
/// Fails if the entry does not exist, or if a newer effect has replaced it.
pub async fn retry(core: &Core, actor: Actor, seq: u64) -> Result<(), OutboxError> {
    let now = core.now();
    let retried = core.store.write(move |tx| {
        let entry = match outbox::find(tx, seq)? {
            None => return Ok(Err(OutboxError::NotFound)),
            Some(OutboxEntryState::Pending(entry)) => {
                outbox::retry_now(tx, &entry, now)?;
                entry
            }
            Some(OutboxEntryState::Dead(entry)) if is_outdated(tx, &entry)? => {
                return Ok(Err(OutboxError::Outdated));
            }
            Some(OutboxEntryState::Dead(entry)) => {
                outbox::retry_dead(tx, &entry, now)?;
                entry
            }
        };
        audit::append(tx, &audit_event(&actor, Action::EffectRetried, &entry), now).map(Ok)
    });
    retried.await?
}

fn audit_event(actor: &Actor, action: Action, entry: &OutboxEntry) -> AuditEvent {
    let what = format!("{} in {}", entry.effect.name(), entry.queue_key);
    actor.audit_event(action, entry.seq).with_detail(what)
}

/// Drops an entry permanently. The job or project that waits for it is marked as failed.
///
/// # Errors
/// Fails if the entry does not exist, or if an attempt is in progress.
pub async fn drop_entry(app: &App, actor: Actor, seq: u64) -> Result<(), OutboxError> {
    let (now, policy) = (app.core.now(), BreakerPolicy::from_config(&app.core.config));
    let dropped = app.core.store.write(move |tx| {
        let entry = match outbox::find(tx, seq)? {
            None => return Ok(Err(OutboxError::NotFound)),
            Some(OutboxEntryState::Dead(entry)) => {
                outbox::remove_dead(tx, &entry)?;
                entry
            }
            Some(OutboxEntryState::Pending(entry)) if entry.is_in_flight() => {
                return Ok(Err(OutboxError::InProgress));
            }
            Some(OutboxEntryState::Pending(entry)) => {
                drop_pending(tx, policy, &entry, now)?;
                entry
            }
        };
        audit::append(tx, &audit_event(&actor, Action::EffectDropped, &entry), now).map(Ok)
    });
    let dropped = dropped.await?;
    app.live.notifiers.effect_settled.notify_waiters();
    dropped
}

fn drop_pending(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    entry: &OutboxEntry,
    now: Timestamp,
) -> StoreResult<()> {
    outbox::complete(tx, entry, now)?;
    match &entry.effect {
        Effect::StartRun { job, .. } => {
            let event = effects::start_refused_event(FailureKind::Permanent, None, DROPPED);
            job_events::apply(tx, policy, job, event, now).map(|_| ())
        }
        Effect::SyncWorkflows { team, .. } => {
            let outcome = Err(DROPPED.to_owned());
            template_syncs::put(tx, team, &SyncRecord { at: now, outcome })
        }
        _ => Ok(()),
    }
}

/// Whether a job changed after the entry was enqueued, so that a newer effect sets the same state.
fn is_outdated(tx: &impl ReadableTx, entry: &OutboxEntry) -> StoreResult<bool> {
    let changed_since = |job: &Job| {
        let moments = [Some(job.reserved_at), job.dispatched_at, job.finished_at];
        moments.into_iter().flatten().any(|at| at > entry.pushed_at)
    };
    Ok(match &entry.effect {
        Effect::SetMarker { issue, .. } => jobs::of_issue(tx, &issue.id)?
            .iter()
            .any(|job| job.kind.phase().is_some() && changed_since(job)),
        Effect::SetDraft { repo, number, .. } => {
            jobs::of_pull(tx, repo, *number)?.iter().any(changed_since)
        }
        _ => false,
    })
}
