//! What an operator does about errands that are stuck: have one tried again, or drop it.

use crate::app::App;
use domain::audit::{Action, Actor, AuditEvent};
use domain::effect::Effect;
use domain::job::Job;
use domain::time::Timestamp;
use domain::transition::FailureKind;
use store::outbox::{self, OutboxEntry, OutboxEntryState};
use store::template_syncs::{self, SyncRecord};
use store::{ReadableTx, StoreError, StoreResult, WriteTx, audit, jobs};

use super::effects;
use super::job_events::{self, BreakerPolicy};

/// What a job or a project is told of an errand that somebody dropped.
const DROPPED: &str = "it was dropped by an operator";

/// Why an errand is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("no such errand")]
    NotFound,
    /// What it would set has been set anew since.
    #[error("it is outdated")]
    Outdated,
    #[error("it is being tried")]
    InProgress,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Has an errand tried now. One that was given up comes before all that its lane was given after it;
/// one that waits for its time no longer does, and one that is being tried needs nothing.
///
/// # Errors
/// When there is none of this number, or doing it now would undo what was done since.
pub async fn retry(app: &App, by: Actor, seq: u64) -> Result<(), OutboxError> {
    let now = app.now();
    let retried = app.store.write(move |tx| {
        let errand = match outbox::find(tx, seq)? {
            None => return Ok(Err(OutboxError::NotFound)),
            Some(OutboxEntryState::Pending(errand)) => {
                outbox::retry_now(tx, &errand, now)?;
                errand
            }
            Some(OutboxEntryState::Dead(errand)) if is_outdated(tx, &errand)? => {
                return Ok(Err(OutboxError::Outdated));
            }
            Some(OutboxEntryState::Dead(errand)) => {
                outbox::retry_dead(tx, &errand, now)?;
                errand
            }
        };
        audit::append(tx, &deed(&by, Action::EffectRetried, &errand), now).map(Ok)
    });
    retried.await?
}

fn deed(by: &Actor, action: Action, errand: &OutboxEntry) -> AuditEvent {
    let what = format!("{} in {}", errand.effect.name(), errand.queue_key);
    by.audit_event(action, errand.seq).with_detail(what)
}

/// Gives an errand up for good; whoever waits for what it would have done is told.
///
/// # Errors
/// When there is none of this number, or it is being tried.
pub async fn drop_entry(app: &App, by: Actor, seq: u64) -> Result<(), OutboxError> {
    let (now, policy) = (app.now(), BreakerPolicy::from_config(&app.config));
    let dropped = app.store.write(move |tx| {
        let errand = match outbox::find(tx, seq)? {
            None => return Ok(Err(OutboxError::NotFound)),
            Some(OutboxEntryState::Dead(errand)) => {
                outbox::remove_dead(tx, &errand)?;
                errand
            }
            Some(OutboxEntryState::Pending(errand)) if errand.is_in_flight() => {
                return Ok(Err(OutboxError::InProgress));
            }
            Some(OutboxEntryState::Pending(errand)) => {
                drop_owed(tx, policy, &errand, now)?;
                errand
            }
        };
        audit::append(tx, &deed(&by, Action::EffectDropped, &errand), now).map(Ok)
    });
    let dropped = dropped.await?;
    app.notifiers.effect_settled.notify_waiters();
    dropped
}

fn drop_owed(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    errand: &OutboxEntry,
    now: Timestamp,
) -> StoreResult<()> {
    outbox::complete(tx, errand, now)?;
    match &errand.effect {
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

/// Whether a run has set since what the errand would set.
fn is_outdated(tx: &impl ReadableTx, errand: &OutboxEntry) -> StoreResult<bool> {
    let since = |job: &Job| {
        let moments = [Some(job.reserved_at), job.dispatched_at, job.finished_at];
        moments
            .into_iter()
            .flatten()
            .any(|at| at > errand.pushed_at)
    };
    Ok(match &errand.effect {
        Effect::SetMarker { issue, .. } => jobs::of_issue(tx, &issue.id)?
            .iter()
            .any(|job| job.kind.phase().is_some() && since(job)),
        Effect::SetDraft { repo, number, .. } => {
            jobs::of_pull(tx, repo, *number)?.iter().any(since)
        }
        _ => false,
    })
}
