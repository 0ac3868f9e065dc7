//! Tarpit for evicted connections and for connections whose last request was rejected.
//!
//! A client that loses its connection may open another at once. Thousands of such clients fill the accept
//! queue and delay all other clients. An evicted connection therefore stays open for [`DELAY`]. It is not
//! read; it costs a file descriptor and a small task.
//!
//! A request may be rejected before its body has arrived. If its connection were closed at once, the
//! bytes still in transit would reset it, and the response would be lost.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Time until an evicted connection is closed, or a request that found no memory is rejected.
pub(crate) const DELAY: Duration = Duration::from_secs(4);

/// Bounded set of open sockets that are not read.
pub(crate) struct Tarpit {
    permits: Semaphore,
}

impl Tarpit {
    /// Creates a tarpit for at most `capacity` sockets.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            permits: Semaphore::new(capacity),
        }
    }

    /// Closes the socket after [`DELAY`], or at once if the tarpit is full.
    pub(crate) async fn close(&self, socket: OwnedFd) {
        if let Ok(_permit) = self.permits.try_acquire() {
            tokio::time::sleep(DELAY).await;
        }
        drop(socket);
    }
}
