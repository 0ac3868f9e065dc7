//! Heartbeats of the engine's tasks, and counters of its polls and sweeps.

use std::collections::BTreeMap;
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
    last_sweep_at: watch::Sender<Option<Timestamp>>,
    /// Deadline of the next heartbeat, by task.
    deadlines: Mutex<BTreeMap<&'static str, Instant>>,
}

/// Number of polls since the process started, and the end of the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Number of completed polls since the process started.
    pub polls: u64,
    /// End of the last poll; `None` before the first.
    pub last_poll_at: Option<Timestamp>,
}

impl Heartbeats {
    /// Records the end of a poll and notifies subscribers.
    pub fn record_poll(&self, at: Timestamp) {
        self.polls.send_modify(|beat| {
            beat.polls += 1;
            beat.last_poll_at = Some(at);
        });
    }

    /// Number of completed polls since the process started.
    pub fn polls(&self) -> u64 {
        self.polls.borrow().polls
    }

    /// End of the last poll; `None` before the first.
    pub fn last_poll_at(&self) -> Option<Timestamp> {
        self.polls.borrow().last_poll_at
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
