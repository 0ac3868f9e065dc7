//! Clients connected to an event stream.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Maximum number of concurrent streams. Each costs a connection and a little memory.
const MAX_SUBSCRIBERS: usize = 64;

/// Limit on concurrent event streams, and the signal that ends them.
pub struct StreamSubscribers {
    permits: Arc<Semaphore>,
    closed: watch::Sender<bool>,
}

impl Default for StreamSubscribers {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
            closed: watch::Sender::new(false),
        }
    }
}

impl StreamSubscribers {
    /// Reserves a stream until the permit is dropped; `None` if the limit is reached.
    pub fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Number of connected streams.
    pub fn count(&self) -> usize {
        MAX_SUBSCRIBERS.saturating_sub(self.permits.available_permits())
    }

    /// Ends all streams, because the service stops.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Resolves when the service stops.
    pub async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // An error means that the sender was dropped with the service.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}
