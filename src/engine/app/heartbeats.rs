//! That the engine is alive: what it did last, and when each of its tasks will be heard from again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use domain::time::Timestamp;

/// What the engine did last, and whoever waits for the next of it.
#[derive(Default)]
pub struct Heartbeats {
    polls: watch::Sender<Heartbeat>,
    last_sweep_at: watch::Sender<Option<Timestamp>>,
    /// By when each task will be heard from again, by its own word.
    promises: Mutex<BTreeMap<&'static str, Instant>>,
}

/// How many polls there were, and when the last of them ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub polls: u64,
    pub last_poll_at: Option<Timestamp>,
}

impl Heartbeats {
    pub fn record_poll(&self, at: Timestamp) {
        self.polls.send_modify(|beat| {
            beat.polls += 1;
            beat.last_poll_at = Some(at);
        });
    }

    pub fn polls(&self) -> u64 {
        self.polls.borrow().polls
    }

    pub fn last_poll_at(&self) -> Option<Timestamp> {
        self.polls.borrow().last_poll_at
    }

    /// The polls that end from now on.
    pub fn subscribe_polls(&self) -> watch::Receiver<Heartbeat> {
        self.polls.subscribe()
    }

    /// The reaper has looked at every machine.
    pub fn record_sweep(&self, at: Timestamp) {
        self.last_sweep_at.send_replace(Some(at));
    }

    pub fn last_sweep_at(&self) -> Option<Timestamp> {
        *self.last_sweep_at.borrow()
    }

    /// A task says when it will be heard from again at the latest: before it works and before it rests.
    pub fn expect_within(&self, task: &'static str, within: Duration) {
        self.promises().insert(task, Instant::now() + within);
    }

    /// A task has ended as it should and will not be heard from again.
    pub fn retire(&self, task: &'static str) {
        self.promises().remove(task);
    }

    /// A task that has not kept its word: it is stuck.
    pub fn overdue(&self, now: Instant) -> Option<&'static str> {
        let promises = self.promises();
        let mut broken = promises.iter().filter(|(_, due)| **due < now);
        broken.next().map(|(task, _)| *task)
    }

    fn promises(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
