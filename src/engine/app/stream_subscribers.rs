//! Those who watch the service as it works.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many may watch at once? Each costs a connection and a little memory.
const SEATS: usize = 64;

pub struct StreamSubscribers {
    seats: Arc<Semaphore>,
    dismissed: watch::Sender<bool>,
}

impl Default for StreamSubscribers {
    fn default() -> Self {
        Self {
            seats: Arc::new(Semaphore::new(SEATS)),
            dismissed: watch::Sender::new(false),
        }
    }
}

impl StreamSubscribers {
    /// A seat, free again when it is dropped; None when all are taken.
    pub fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.seats).try_acquire_owned().ok()
    }

    /// How many watch now.
    pub fn count(&self) -> usize {
        SEATS.saturating_sub(self.seats.available_permits())
    }

    /// The service stops: nobody is shown anything any more.
    pub fn close(&self) {
        self.dismissed.send_replace(true);
    }

    /// Resolves when the service stops.
    pub async fn closed(&self) {
        let mut dismissed = self.dismissed.subscribe();
        // An error means that the service is gone altogether.
        let _ = dismissed.wait_for(|dismissed| *dismissed).await;
    }
}
