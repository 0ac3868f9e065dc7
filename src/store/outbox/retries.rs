//! Due times of outbox entries after failed attempts, after a request of an operator, and after a backward
//! clock step.

use domain::time::Timestamp;

use super::{OutboxEntry, remove_head};
use crate::StoreResult;
use crate::change_feed::StoreChange;
use crate::table::WriteTx;
use crate::tables::{OUTBOX, OUTBOX_HEADS};

/// Result of a failed attempt.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// End of the attempt.
    pub ended_at: Timestamp,
    /// Time of the next attempt.
    pub due_at: Timestamp,
    /// Whether the effect may have been performed despite the error.
    pub is_outcome_unknown: bool,
    /// Error message.
    pub error: String,
}

/// Records a failed attempt and schedules the next one. Later entries of the queue key wait for it.
pub fn schedule_retry(
    tx: &WriteTx<'_>,
    entry: &OutboxEntry,
    retry: &FailedAttempt,
) -> StoreResult<()> {
    tx.bypass_space_check();
    let rescheduled = OutboxEntry {
        due_at: retry.due_at,
        claimed_at: None,
        outcome_unknown_since: { retry.is_outcome_unknown.then_some(retry.ended_at) }
            .or(entry.outcome_unknown_since),
        last_error: Some(retry.error.clone()),
        ..entry.clone()
    };
    reschedule(tx, entry, &rescheduled)
}

/// Replaces an entry by a copy with another due time.
fn reschedule(tx: &WriteTx<'_>, entry: &OutboxEntry, rescheduled: &OutboxEntry) -> StoreResult<()> {
    let queue_key = rescheduled.queue_key.as_str();
    if remove_head(tx, entry)? {
        OUTBOX_HEADS.put(
            tx,
            (rescheduled.due_at.as_millis(), queue_key),
            &rescheduled.seq,
        )?;
    }
    OUTBOX.put(tx, (queue_key, rescheduled.seq), rescheduled)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Makes a waiting entry due now. Does nothing while an attempt is in progress.
pub fn retry_now(tx: &WriteTx<'_>, entry: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    if entry.is_in_flight() || entry.due_at <= now {
        return Ok(());
    }
    let sooner = OutboxEntry {
        due_at: now,
        ..entry.clone()
    };
    reschedule(tx, entry, &sooner)
}

/// Makes all entries due now whose due time is after `latest`; returns how many.
pub fn reschedule_beyond(
    tx: &WriteTx<'_>,
    latest: Timestamp,
    now: Timestamp,
) -> StoreResult<usize> {
    let waiting = OUTBOX_HEADS.collect(
        tx,
        (latest.as_millis() + 1, "")..,
        |(due, queue_key), seq| (due, queue_key.to_owned(), seq),
    )?;
    for (due, queue_key, seq) in &waiting {
        let queue_key = queue_key.as_str();
        OUTBOX_HEADS.remove(tx, (*due, queue_key))?;
        if let Some(entry) = OUTBOX.get(tx, (queue_key, *seq))? {
            let sooner = OutboxEntry {
                due_at: now,
                ..entry
            };
            OUTBOX_HEADS.put(tx, (now.as_millis(), queue_key), seq)?;
            OUTBOX.put(tx, (queue_key, *seq), &sooner)?;
        }
    }
    if !waiting.is_empty() {
        tx.notify_outbox();
        tx.publish(StoreChange::Outbox);
    }
    Ok(waiting.len())
}
