//! Heartbeats of the engine's tasks, and counters of its polls and sweeps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use domain::time::Timestamp;

/// Liveness of the engine: completed polls and sweeps, and the heartbeat deadline of each task.
#[derive(Default)]
pub struct Heartbeats {
    polls: watch::Sender<Heartbeat>,
    is_polling: AtomicBool,
    last_sweep_at: watch::Sender<Option<Timestamp>>,
    /// Deadline of the next heartbeat, by task.
    deadlines: Mutex<BTreeMap<&'static str, Instant>>,
}

/// Number of polls since the process started, and the time of the last successful one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Number of completed polls since the process started.
    pub polls: u64,
    /// Time of the last successful poll of all ticketing systems; `None` before the first.
    pub last_poll_at: Option<Timestamp>,
    /// Outcome of the last poll; `None` before the first.
    #[serde(skip)]
    pub last: Option<PollOutcome>,
}

/// Outcome of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollOutcome {
    /// End of the poll.
    pub at: Timestamp,
    /// Time of the last successful poll of all ticketing systems; `None` before the first.
    pub complete_at: Option<Timestamp>,
    /// Number of runs that the poll reserved.
    pub dispatched: usize,
    /// Number of issues that wait.
    pub waiting: usize,
}

impl PollOutcome {
    /// Returns the outcome of a poll that every system answered, with nothing to do.
    pub fn nothing_to_do(at: Timestamp) -> Self {
        Self {
            at,
            complete_at: Some(at),
            dispatched: 0,
            waiting: 0,
        }
    }
}

/// Poll in progress, until it is dropped.
pub struct PollInProgress<'h>(&'h AtomicBool);

impl Drop for PollInProgress<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Heartbeats {
    /// Records the start of a poll. It ends when the returned value is dropped.
    pub fn begin_poll(&self) -> PollInProgress<'_> {
        self.is_polling.store(true, Ordering::Relaxed);
        PollInProgress(&self.is_polling)
    }

    /// Whether a poll is in progress.
    pub fn is_polling(&self) -> bool {
        self.is_polling.load(Ordering::Relaxed)
    }

    /// Records the end of a poll and notifies subscribers.
    pub fn record_poll(&self, outcome: PollOutcome) {
        self.polls.send_modify(|beat| {
            beat.polls += 1;
            beat.last_poll_at = outcome.complete_at;
            beat.last = Some(outcome);
        });
    }

    /// Number of completed polls since the process started.
    pub fn polls(&self) -> u64 {
        self.polls.borrow().polls
    }

    /// Time of the last successful poll of all ticketing systems; `None` before the first.
    pub fn last_poll_at(&self) -> Option<Timestamp> {
        self.polls.borrow().last_poll_at
    }

    /// Outcome of the last poll; `None` before the first.
    pub fn last_poll(&self) -> Option<PollOutcome> {
        self.polls.borrow().last
    }

    /// Subscribes to the polls that end from now on.
    pub fn subscribe_polls(&self) -> watch::Receiver<Heartbeat> {
        self.polls.subscribe()
    }

    /// Records the end of a reaper sweep over all machines.
    pub fn record_sweep(&self, at: Timestamp) {
        self.last_sweep_at.send_replace(Some(at));
    }

    /// End of the last reaper sweep; `None` before the first.
    pub fn last_sweep_at(&self) -> Option<Timestamp> {
        *self.last_sweep_at.borrow()
    }

    /// Records a heartbeat of a task, and the time within which the next one is due. Tasks call
    /// this before they work and before they wait.
    pub fn expect_within(&self, task: &'static str, within: Duration) {
        self.deadlines().insert(task, Instant::now() + within);
    }

    /// Removes a task that ended normally; no heartbeat is expected from it any more.
    pub fn retire(&self, task: &'static str) {
        self.deadlines().remove(task);
    }

    /// Name of a task whose heartbeat is overdue, which means that the task is stuck.
    pub fn overdue(&self, now: Instant) -> Option<&'static str> {
        let deadlines = self.deadlines();
        let mut overdue = deadlines.iter().filter(|(_, due)| **due < now);
        overdue.next().map(|(task, _)| *task)
    }

    fn deadlines(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.deadlines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
