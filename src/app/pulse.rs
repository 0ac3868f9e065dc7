//! That the engine is alive.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::time::Timestamp;

/// How many polls it made, and when the last of them and the reaper's last sweep ended.
#[derive(Default)]
pub struct Pulse {
    polls: AtomicU64,
    last_poll_at: AtomicU64,
    last_sweep_at: AtomicU64,
}

impl Pulse {
    pub fn poll_ended(&self, at: Timestamp) {
        self.last_poll_at.store(at.as_millis(), Ordering::Relaxed);
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    pub fn last_poll_at(&self) -> Option<Timestamp> {
        moment(&self.last_poll_at)
    }

    pub fn sweep_ended(&self, at: Timestamp) {
        self.last_sweep_at.store(at.as_millis(), Ordering::Relaxed);
    }

    pub fn last_sweep_at(&self) -> Option<Timestamp> {
        moment(&self.last_sweep_at)
    }
}

/// None until it has happened.
fn moment(millis: &AtomicU64) -> Option<Timestamp> {
    Some(millis.load(Ordering::Relaxed))
        .filter(|at| *at > 0)
        .map(Timestamp::from_millis)
}
