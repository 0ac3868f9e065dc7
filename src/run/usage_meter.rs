//! Usage meter of a run. Counts also what interrupted passes used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::report::Usage;

/// Counter of turns, tokens and cost. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct UsageMeter(Arc<Mutex<Usage>>);

impl UsageMeter {
    /// Adds usage.
    pub fn add(&self, used: Usage) {
        *self.lock() += used;
    }

    /// Returns the total usage.
    pub fn total(&self) -> Usage {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
