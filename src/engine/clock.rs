//! What time it is: the machine's clock, or one that a test turns by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::time::Timestamp;

/// The clock that the engine asks; nothing above the domain asks the machine itself.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// Milliseconds since the epoch, shared by all clones.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands at `start` until it is turned.
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual(Arc::new(AtomicU64::new(start.as_millis())))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => {
                let since_epoch = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::EPOCH + since_epoch
            }
            Clock::Manual(millis) => Timestamp::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// Turns a hand-turned clock; the machine's is left alone.
    pub fn advance(&self, span: Duration) {
        if let Clock::Manual(millis) = self {
            millis.fetch_add(
                u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
                Ordering::SeqCst,
            );
        }
    }
}
