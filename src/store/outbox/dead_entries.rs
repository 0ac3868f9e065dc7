//! Outbox entries that are not retried any more, until an operator retries or deletes them.

use std::ops::ControlFlow;

use domain::effect::Effect;
use domain::time::Timestamp;

use super::{OutboxEntry, complete, first_of};
use crate::StoreResult;
use crate::change_feed::StoreChange;
use crate::table::{ReadableTx, ScanDirection, WriteTx};
use crate::tables::{OUTBOX, OUTBOX_DEAD, OUTBOX_HEADS};

/// Number of dead chat messages that are kept. Nothing else depends on them, and a webhook that is wrong for months adds
/// one with every event.
const MAX_DEAD_CHAT_MESSAGES: usize = 100;

/// Moves an entry to the dead entries, which operators see. The next entry of the queue key becomes due.
pub fn mark_dead(
    tx: &WriteTx<'_>,
    entry: &OutboxEntry,
    error: &str,
    now: Timestamp,
) -> StoreResult<()> {
    complete(tx, entry, now)?;
    let dead = OutboxEntry {
        last_error: Some(error.to_owned()),
        claimed_at: None,
        ..entry.clone()
    };
    OUTBOX_DEAD.put(tx, entry.seq, &dead)?;
    match &entry.effect {
        Effect::Chat { .. } => remove_surplus_chat_messages(tx),
        _ => Ok(()),
    }
}

/// Removes the oldest dead chat messages above the maximum.
fn remove_surplus_chat_messages(tx: &WriteTx<'_>) -> StoreResult<()> {
    let mut messages = Vec::new();
    OUTBOX_DEAD.scan(tx, .., ScanDirection::Ascending, |seq, entry| {
        if let Effect::Chat { .. } = entry.effect {
            messages.push(seq);
        }
        ControlFlow::Continue(())
    })?;
    let surplus = messages.len().saturating_sub(MAX_DEAD_CHAT_MESSAGES);
    for seq in messages.into_iter().take(surplus) {
        OUTBOX_DEAD.remove(tx, seq)?;
    }
    Ok(())
}

/// Moves a dead entry back to the outbox. It keeps its sequence number, so it precedes all later entries of
/// its queue key, and its idempotency key. Its outcome counts as unknown, so the effect is first looked up at
/// the vendor.
pub fn retry_dead(tx: &WriteTx<'_>, dead: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    let entry = OutboxEntry {
        due_at: now,
        claimed_at: None,
        outcome_unknown_since: dead.outcome_unknown_since.or(Some(dead.pushed_at)),
        manual_retry_at: Some(now),
        ..dead.clone()
    };
    let queue_key = entry.queue_key.as_str();
    if let Some(first) = first_of(tx, queue_key)? {
        OUTBOX_HEADS.remove(tx, (first.due_at.as_millis(), queue_key))?;
    }
    OUTBOX.put(tx, (queue_key, entry.seq), &entry)?;
    let first = first_of(tx, queue_key)?.unwrap_or_else(|| entry.clone());
    OUTBOX_HEADS.put(tx, (first.due_at.as_millis(), queue_key), &first.seq)?;
    OUTBOX_DEAD.remove(tx, entry.seq)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Deletes a dead entry.
pub fn remove_dead(tx: &WriteTx<'_>, dead: &OutboxEntry) -> StoreResult<()> {
    tx.publish(StoreChange::Outbox);
    OUTBOX_DEAD.remove(tx, dead.seq).map(drop)
}

/// All dead entries.
pub fn dead(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX_DEAD.collect(tx, .., |_, entry| entry)
}
