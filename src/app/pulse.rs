//! That the engine is alive.

use serde::Serialize;
use tokio::sync::watch;

use crate::domain::time::Timestamp;

/// How many polls it made and when the last one ended.
#[derive(Default)]
pub struct Pulse(watch::Sender<Beat>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Beat {
    pub polls: u64,
    pub last_poll_at: Option<Timestamp>,
}

impl Pulse {
    pub fn poll_ended(&self, at: Timestamp) {
        self.0.send_modify(|beat| {
            beat.polls += 1;
            beat.last_poll_at = Some(at);
        });
    }

    pub fn polls(&self) -> u64 {
        self.0.borrow().polls
    }

    pub fn last_poll_at(&self) -> Option<Timestamp> {
        self.0.borrow().last_poll_at
    }

    /// The polls that end from now on.
    pub fn feel(&self) -> watch::Receiver<Beat> {
        self.0.subscribe()
    }
}
