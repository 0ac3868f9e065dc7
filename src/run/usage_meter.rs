//! What a run has used up to now, counted wherever the run is cut short.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::report::Usage;

/// The run's counter. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct UsageMeter(Arc<Mutex<Usage>>);

impl UsageMeter {
    pub fn add(&self, used: Usage) {
        *self.lock() += used;
    }

    pub fn total(&self) -> Usage {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
