//! Outbox: effects that are to be performed at vendors, in order per queue key.
//!
//! An entry is pushed in the commit that causes its effect, claimed before an attempt (so that a crash during
//! the attempt is visible), and completed or rescheduled after it. Only the first entry of a queue key can be
//! claimed. `OUTBOX_HEADS` has one row per queue key, sorted by the due time of its first entry.

mod dead_entries;
mod retries;
mod views;

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::json;

use domain::effect::Effect;
use domain::time::Timestamp;

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{META, OUTBOX, OUTBOX_HEADS};

pub use dead_entries::{dead, mark_dead, remove_dead, retry_dead};
pub use retries::{FailedAttempt, reschedule_beyond, retry_now, schedule_retry};
pub use views::{OutboxDepth, OutboxEntryState, depth, find, pending};

/// Stored effect with its attempts and due time.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEntry {
    #[serde(rename = "lane")]
    /// Key within which entries are performed strictly in order.
    pub queue_key: String,
    /// Sequence number, unique in the outbox.
    pub seq: u64,
    /// Effect to perform.
    pub effect: Effect,
    /// Time of the push.
    pub pushed_at: Timestamp,
    /// Time of the next attempt.
    pub due_at: Timestamp,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Start of the attempt in progress. If it is set after a crash, the outcome of that attempt is unknown.
    #[serde(default)]
    pub claimed_at: Option<Timestamp>,
    /// Latest possible end of the last attempt whose outcome is unknown because its response was lost.
    #[serde(rename = "unsureSince", default)]
    pub outcome_unknown_since: Option<Timestamp>,
    /// Error of the last failed attempt.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Time at which an operator retried the entry after it was dead.
    #[serde(rename = "revivedAt", default)]
    pub manual_retry_at: Option<Timestamp>,
}

impl OutboxEntry {
    /// Value by which vendors recognize repeated attempts: the same for all attempts of the entry.
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.pushed_at.as_millis(), self.seq)
    }

    /// Start of the period after which the entry becomes dead.
    pub fn retry_window_start(&self) -> Timestamp {
        self.manual_retry_at.unwrap_or(self.pushed_at)
    }

    /// Whether an attempt is in progress. After a crash this is true until the next attempt ends.
    pub fn is_in_flight(&self) -> bool {
        self.claimed_at.is_some()
    }
}

/// Appends an effect to its queue key and returns the idempotency key.
pub fn push(tx: &WriteTx<'_>, effect: &Effect, now: Timestamp) -> StoreResult<String> {
    let seq = next_seq(tx)?;
    let queue_key = effect.queue_key();
    let entry = OutboxEntry {
        queue_key: queue_key.clone(),
        seq,
        effect: effect.clone(),
        pushed_at: now,
        due_at: now,
        attempts: 0,
        claimed_at: None,
        outcome_unknown_since: None,
        last_error: None,
        manual_retry_at: None,
    };
    if first_of(tx, &queue_key)?.is_none() {
        OUTBOX_HEADS.put(tx, (now.as_millis(), queue_key.as_str()), &seq)?;
    }
    OUTBOX.put(tx, (queue_key.as_str(), seq), &entry)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(entry.idempotency_key())
}

/// Sequence number of the entry that was pushed last.
pub fn last_seq(tx: &impl ReadableTx) -> StoreResult<u64> {
    let seq = META.get(tx, "outbox-seq")?;
    Ok(seq.and_then(|seq| seq.as_u64()).unwrap_or(0))
}

fn next_seq(tx: &WriteTx<'_>) -> StoreResult<u64> {
    let seq = last_seq(tx)? + 1;
    META.put(tx, "outbox-seq", &json!(seq))?;
    Ok(seq)
}

fn first_of(tx: &impl ReadableTx, queue_key: &str) -> StoreResult<Option<OutboxEntry>> {
    let mut first = None;
    OUTBOX.scan(
        tx,
        (queue_key, 0)..=(queue_key, u64::MAX),
        ScanDirection::Ascending,
        |_, entry| {
            first = Some(entry);
            ControlFlow::Break(())
        },
    )?;
    Ok(first)
}

/// Queue keys whose first entry is due, with the sequence number of that entry: longest due first, at most
/// `limit`. Skips keys for which `is_busy` returns true, and entries that wait for another queue key.
pub fn due(
    tx: &impl ReadableTx,
    now: Timestamp,
    limit: usize,
    is_busy: impl Fn(&str) -> bool,
) -> StoreResult<Vec<(String, u64)>> {
    let mut heads = Vec::new();
    if limit == 0 {
        return Ok(heads);
    }
    let mut read = Ok(());
    OUTBOX_HEADS.scan(
        tx,
        ..(now.as_millis() + 1, ""),
        ScanDirection::Ascending,
        |(_, queue_key), seq| {
            if !is_busy(queue_key) {
                match waits_for_predecessor(tx, queue_key, seq) {
                    Ok(false) => heads.push((queue_key.to_owned(), seq)),
                    Ok(true) => {}
                    Err(error) => read = Err(error),
                }
            }
            if heads.len() < limit && read.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    )?;
    read.map(|()| heads)
}

/// Whether an earlier entry of another queue key must be performed first.
fn waits_for_predecessor(tx: &impl ReadableTx, queue_key: &str, seq: u64) -> StoreResult<bool> {
    let entry = OUTBOX.get(tx, (queue_key, seq))?;
    let Some(predecessor) = entry.and_then(|entry| entry.effect.predecessor_queue_key()) else {
        return Ok(false);
    };
    let first = first_of(tx, &predecessor)?;
    Ok(first.is_some_and(|first| first.seq < seq))
}

/// Earliest due time after `now`.
pub fn next_due(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<Option<Timestamp>> {
    let mut next = None;
    OUTBOX_HEADS.scan(
        tx,
        (now.as_millis() + 1, "")..,
        ScanDirection::Ascending,
        |(due, _), _| {
            next = Some(Timestamp::from_millis(due));
            ControlFlow::Break(())
        },
    )?;
    Ok(next)
}

/// All queue keys with entries.
pub fn queue_keys(tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
    OUTBOX_HEADS.collect(tx, .., |(_, queue_key), _| queue_key.to_owned())
}

/// Whether a queue has entries.
pub fn has_queue(tx: &impl ReadableTx, queue_key: &str) -> StoreResult<bool> {
    let mut is_found = false;
    let of_queue = (queue_key, 0)..=(queue_key, u64::MAX);
    OUTBOX.scan(
        tx,
        of_queue,
        ScanDirection::Ascending,
        |_, _: OutboxEntry| {
            is_found = true;
            ControlFlow::Break(())
        },
    )?;
    Ok(is_found)
}

/// Records the start of an attempt. Returns `None` if the entry no longer exists.
pub fn claim(
    tx: &WriteTx<'_>,
    queue_key: &str,
    seq: u64,
    now: Timestamp,
) -> StoreResult<Option<OutboxEntry>> {
    let Some(mut entry) = OUTBOX.get(tx, (queue_key, seq))? else {
        return Ok(None);
    };
    // The previous attempt ended with the process, so its outcome is unknown.
    if entry.claimed_at.replace(now).is_some() {
        entry.outcome_unknown_since = Some(now);
    }
    entry.attempts += 1;
    OUTBOX.put(tx, (queue_key, seq), &entry)?;
    Ok(Some(entry))
}

/// All entries of a queue key, in order.
pub fn of_queue_key(tx: &impl ReadableTx, queue_key: &str) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, (queue_key, 0)..=(queue_key, u64::MAX), |_, entry| entry)
}

/// Removes an entry whose effect was performed or is obsolete. The next entry of the queue key becomes due.
pub fn complete(tx: &WriteTx<'_>, entry: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    tx.bypass_space_check();
    let was_first = remove_head(tx, entry)?;
    OUTBOX.remove(tx, (entry.queue_key.as_str(), entry.seq))?;
    tx.publish(StoreChange::Outbox);
    // The next entry of this queue key may be due, or one that waits for it.
    tx.notify_outbox();
    if !was_first {
        return Ok(());
    }
    if let Some(next) = first_of(tx, &entry.queue_key)? {
        // It waited for this entry, so it is not due before now. One that was never attempted has no other reason to wait:
        // a later time is of a clock that was ahead.
        let earliest = match next.attempts {
            0 => now,
            _ => next.due_at.max(now),
        };
        let due = OutboxEntry {
            due_at: earliest,
            ..next
        };
        OUTBOX_HEADS.put(
            tx,
            (due.due_at.as_millis(), due.queue_key.as_str()),
            &due.seq,
        )?;
        OUTBOX.put(tx, (due.queue_key.as_str(), due.seq), &due)?;
    }
    Ok(())
}

/// Removes the head of a queue key, if it leads to this entry. Returns whether the entry is the first one: a retried dead
/// entry may have been put before it.
fn remove_head(tx: &WriteTx<'_>, entry: &OutboxEntry) -> StoreResult<bool> {
    let Some(first) = first_of(tx, &entry.queue_key)? else {
        return Ok(true);
    };
    if first.seq != entry.seq {
        return Ok(false);
    }
    // The due time as it is stored: an attempt has a copy from its beginning, and an entry that was put before it may have
    // come and gone since.
    OUTBOX_HEADS.remove(tx, (first.due_at.as_millis(), first.queue_key.as_str()))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
