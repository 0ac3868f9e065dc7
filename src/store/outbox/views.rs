//! Views of the outbox for operators and metrics.

use std::ops::ControlFlow;

use domain::time::Timestamp;

use super::OutboxEntry;
use crate::StoreResult;
use crate::table::{ReadableTx, ScanDirection};
use crate::tables::{OUTBOX, OUTBOX_DEAD, OUTBOX_HEADS};

/// Entry with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxEntryState {
    /// The entry waits for its next attempt, or an attempt is in progress.
    Pending(OutboxEntry),
    /// The entry is not retried any more.
    Dead(OutboxEntry),
}

/// Entry with this sequence number.
pub fn find(tx: &impl ReadableTx, seq: u64) -> StoreResult<Option<OutboxEntryState>> {
    if let Some(dead) = OUTBOX_DEAD.get(tx, seq)? {
        return Ok(Some(OutboxEntryState::Dead(dead)));
    }
    let mut found = None;
    OUTBOX.scan(tx, .., ScanDirection::Ascending, |(_, at), entry| {
        if at != seq {
            return ControlFlow::Continue(());
        }
        found = Some(OutboxEntryState::Pending(entry));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Number of entries, and age of the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxDepth {
    /// Number of pending entries.
    pub pending: u64,
    /// Number of dead entries.
    pub dead: u64,
    /// Time at which the oldest pending entry was pushed.
    pub oldest_pushed_at: Option<Timestamp>,
}

/// Returns the depth of the outbox. Reads only the first entry of each queue key, because later ones are
/// younger.
pub fn depth(tx: &impl ReadableTx) -> StoreResult<OutboxDepth> {
    let heads = OUTBOX_HEADS.collect(tx, .., |(_, queue_key), seq| (queue_key.to_owned(), seq))?;
    let mut oldest: Option<Timestamp> = None;
    for (queue_key, seq) in heads {
        let head = OUTBOX.get(tx, (queue_key.as_str(), seq))?;
        let pushed_at = head.map(|entry| entry.pushed_at);
        oldest = [oldest, pushed_at].into_iter().flatten().min();
    }
    Ok(OutboxDepth {
        pending: OUTBOX.count(tx)?,
        dead: OUTBOX_DEAD.count(tx)?,
        oldest_pushed_at: oldest,
    })
}

/// All pending entries, ordered by queue key.
pub fn pending(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, .., |_, entry| entry)
}
