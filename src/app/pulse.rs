//! That the engine is alive.

use serde::Serialize;
use tokio::sync::watch;

use crate::domain::time::Timestamp;

/// What the engine did last, and whoever waits for the next of it.
#[derive(Default)]
pub struct Pulse {
    polls: watch::Sender<Beat>,
    last_sweep_at: watch::Sender<Option<Timestamp>>,
}

/// How many polls there were, and when the last of them ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Beat {
    pub polls: u64,
    pub last_poll_at: Option<Timestamp>,
}

impl Pulse {
    pub fn poll_ended(&self, at: Timestamp) {
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
    pub fn feel(&self) -> watch::Receiver<Beat> {
        self.polls.subscribe()
    }

    /// The reaper has looked at every machine.
    pub fn sweep_ended(&self, at: Timestamp) {
        self.last_sweep_at.send_replace(Some(at));
    }

    pub fn last_sweep_at(&self) -> Option<Timestamp> {
        *self.last_sweep_at.borrow()
    }
}
