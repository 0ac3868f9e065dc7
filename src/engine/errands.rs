//! What an operator does about errands that are stuck: have one tried again, or drop it.

use crate::app::App;
use domain::audit::{Action, Actor, Deed};
use domain::effect::Effect;
use domain::job::Job;
use domain::time::Timestamp;
use domain::transition::Cause;
use store::outbox::{self, Errand, Found};
use store::syncs::{self, Synced};
use store::{Rows, StoreError, StoreResult, WriteTx, audit, jobs};

use super::act;
use super::commit::{self, Policy};

/// What a job or a project is told of an errand that somebody dropped.
const DROPPED: &str = "it was dropped by an operator";

/// Why an errand is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum ErrandError {
    #[error("no such errand")]
    Unknown,
    /// What it would set has been set anew since.
    #[error("it is outdated")]
    Outdated,
    #[error("it is being tried")]
    UnderWay,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Has an errand tried now. One that was given up comes before all that its lane was given after it;
/// one that waits for its time no longer does, and one that is being tried needs nothing.
///
/// # Errors
/// When there is none of this number, or doing it now would undo what was done since.
pub async fn retry(app: &App, by: Actor, seq: u64) -> Result<(), ErrandError> {
    let now = app.now();
    let retried = app.store.write(move |tx| {
        let errand = match outbox::find(tx, seq)? {
            None => return Ok(Err(ErrandError::Unknown)),
            Some(Found::Pending(errand)) => {
                outbox::hasten(tx, &errand, now)?;
                errand
            }
            Some(Found::Dead(errand)) if is_outdated(tx, &errand)? => {
                return Ok(Err(ErrandError::Outdated));
            }
            Some(Found::Dead(errand)) => {
                outbox::revive(tx, &errand, now)?;
                errand
            }
        };
        audit::append(tx, &deed(&by, Action::EffectRetried, &errand), now).map(Ok)
    });
    retried.await?
}

fn deed(by: &Actor, action: Action, errand: &Errand) -> Deed {
    let what = format!("{} in {}", errand.effect.name(), errand.lane);
    by.did(action, errand.seq).told(what)
}

/// Gives an errand up for good; whoever waits for what it would have done is told.
///
/// # Errors
/// When there is none of this number, or it is being tried.
pub async fn drop(app: &App, by: Actor, seq: u64) -> Result<(), ErrandError> {
    let (now, policy) = (app.now(), Policy::of(&app.config));
    let dropped = app.store.write(move |tx| {
        let errand = match outbox::find(tx, seq)? {
            None => return Ok(Err(ErrandError::Unknown)),
            Some(Found::Dead(errand)) => {
                outbox::forget(tx, &errand)?;
                errand
            }
            Some(Found::Pending(errand)) if errand.is_under_way() => {
                return Ok(Err(ErrandError::UnderWay));
            }
            Some(Found::Pending(errand)) => {
                drop_owed(tx, policy, &errand, now)?;
                errand
            }
        };
        audit::append(tx, &deed(&by, Action::EffectDropped, &errand), now).map(Ok)
    });
    let dropped = dropped.await?;
    app.bells.settled.notify_waiters();
    dropped
}

fn drop_owed(tx: &WriteTx<'_>, policy: Policy, errand: &Errand, now: Timestamp) -> StoreResult<()> {
    outbox::settle(tx, errand, now)?;
    match &errand.effect {
        Effect::StartRun { job, .. } => {
            let event = act::refusal(Cause::Lasting, None, DROPPED);
            commit::happen(tx, policy, job, event, now).map(|_| ())
        }
        Effect::SyncWorkflows { team, .. } => {
            let outcome = Err(DROPPED.to_owned());
            syncs::put(tx, team, &Synced { at: now, outcome })
        }
        _ => Ok(()),
    }
}

/// Whether a run has set since what the errand would set.
fn is_outdated(tx: &impl Rows, errand: &Errand) -> StoreResult<bool> {
    let since = |job: &Job| {
        let moments = [Some(job.reserved_at), job.dispatched_at, job.finished_at];
        moments
            .into_iter()
            .flatten()
            .any(|at| at > errand.pushed_at)
    };
    Ok(match &errand.effect {
        Effect::MoveMarker { issue, .. } => jobs::of_issue(tx, &issue.id)?
            .iter()
            .any(|job| job.kind.phase().is_some() && since(job)),
        Effect::SetDraft { repo, number, .. } => {
            jobs::of_pull(tx, repo, *number)?.iter().any(since)
        }
        _ => false,
    })
}
