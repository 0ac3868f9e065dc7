//! Tarpit for evicted connections and for those whose last request was refused.
//!
//! A client that loses its connection may open another at once. Thousands of such clients fill the queue of
//! connections to accept, and everybody else waits behind them. An evicted connection therefore stays open for
//! some seconds. It is not read and costs a file descriptor and a small task.
//!
//! A request may be refused before its body has come. If its connection were closed at once, what is still on the way
//! would reset it, and the answer would be lost.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::Semaphore;

/// How long an evicted client waits until its connection is closed or its request is refused.
pub const DELAY: Duration = Duration::from_secs(4);

/// A bounded number of sockets that nobody reads.
pub struct Tarpit {
    room: Semaphore,
}

impl Tarpit {
    pub fn new(capacity: usize) -> Self {
        Self {
            room: Semaphore::new(capacity),
        }
    }

    /// Closes the socket after [`DELAY`], or at once where the tarpit is full.
    pub async fn close(&self, socket: OwnedFd) {
        if let Ok(_permit) = self.room.try_acquire() {
            tokio::time::sleep(DELAY).await;
        }
        drop(socket);
    }
}
