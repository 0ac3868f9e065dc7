//! Closure in the queue of the writer thread, with its result.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::table::{TxActivity, WriteTx};
use crate::{StoreError, StoreResult};

/// Queued closure, independent of its result type.
pub(super) trait QueuedWrite: Send {
    /// Runs the closure and keeps its result.
    fn run(&mut self, tx: &WriteTx<'_>) -> (RunOutcome, TxActivity);
    /// Whether the closure has failed.
    fn has_failed(&self) -> bool;
    /// Replaces the result of a writing closure by [`StoreError::DiskFull`], with the number of free bytes.
    fn reject(&mut self, free: u64);
    /// Sends the result to the caller.
    fn respond(self: Box<Self>, commit: CommitOutcome);
}

/// Outcome of running a closure.
pub(super) enum RunOutcome {
    Succeeded,
    Failed,
    /// The file or its disk failed.
    DiskFailed,
}

/// Outcome of a commit.
#[derive(Clone, Copy)]
pub(super) enum CommitOutcome {
    Durable,
    Unknown,
}

/// Closure with the result of its last run.
pub(super) struct PendingWrite<F, T> {
    closure: F,
    result: Option<StoreResult<T>>,
    /// Whether the last run wrote.
    wrote: bool,
    reply: Option<oneshot::Sender<StoreResult<T>>>,
}

impl<F, T> PendingWrite<F, T> {
    /// Creates a write that sends its result to `reply`.
    pub(super) fn new(closure: F, reply: oneshot::Sender<StoreResult<T>>) -> Self {
        Self {
            closure,
            result: None,
            wrote: false,
            reply: Some(reply),
        }
    }
}

impl<T, F> QueuedWrite for PendingWrite<F, T>
where
    T: Send,
    F: FnMut(&WriteTx<'_>) -> StoreResult<T> + Send,
{
    fn run(&mut self, tx: &WriteTx<'_>) -> (RunOutcome, TxActivity) {
        let result = catch_unwind(AssertUnwindSafe(|| (self.closure)(tx)))
            .unwrap_or(Err(StoreError::Panicked));
        let outcome = match &result {
            Ok(_) => RunOutcome::Succeeded,
            Err(error) if error.is_disk_failure() => RunOutcome::DiskFailed,
            Err(_) => RunOutcome::Failed,
        };
        let activity = tx.take_activity();
        self.wrote = activity.writes > 0;
        self.result = Some(result);
        (outcome, activity)
    }

    fn has_failed(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn reject(&mut self, free: u64) {
        if self.wrote && !self.has_failed() {
            self.result = Some(Err(StoreError::DiskFull(free)));
        }
    }

    fn respond(mut self: Box<Self>, commit: CommitOutcome) {
        let result = match (commit, self.result.take()) {
            (_, Some(Err(error))) => Err(error),
            (CommitOutcome::Durable, Some(Ok(value))) => Ok(value),
            (CommitOutcome::Unknown, _) | (_, None) => Err(StoreError::OutcomeUnknown),
        };
        if let Some(reply) = self.reply.take() {
            // Fails only if the caller no longer waits; the write still counts.
            let _ = reply.send(result);
        }
    }
}
