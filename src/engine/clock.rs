//! Source of the current time: the system clock, or a manual clock in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::time::Timestamp;

/// Clock of the engine. Code above the domain reads the time only from here.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// System clock.
    #[default]
    System,
    /// Manual clock, in milliseconds since the epoch, shared by all clones.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Creates a manual clock that shows `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual(Arc::new(AtomicU64::new(start.as_millis())))
    }

    /// Current time.
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

    /// Advances a manual clock; has no effect on the system clock.
    pub fn advance(&self, span: Duration) {
        if let Clock::Manual(millis) = self {
            millis.fetch_add(
                u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
                Ordering::SeqCst,
            );
        }
    }
}
