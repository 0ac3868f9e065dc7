//! Usage meter of a run. Counts also what interrupted passes used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::report::Usage;

/// Counter of turns, tokens and cost, with the agent and the model that used them. Clones share the
/// counter.
#[derive(Debug, Clone, Default)]
pub struct UsageMeter(Arc<Mutex<Metered>>);

#[derive(Debug, Default)]
struct Metered {
    usage: Usage,
    agent: Option<&'static str>,
    model: Option<String>,
}

impl UsageMeter {
    /// Adds usage.
    pub fn add(&self, used: Usage) {
        self.lock().usage += used;
    }

    /// Records the agent program, and the model unless it is known already: that of the first pass
    /// stands for the run.
    pub(crate) fn record_agent(&self, agent: &'static str, model: Option<&str>) {
        let mut metered = self.lock();
        metered.agent = Some(agent);
        if metered.model.is_none() {
            metered.model = model.map(str::to_owned);
        }
    }

    /// Returns the total usage.
    pub fn total(&self) -> Usage {
        self.lock().usage
    }

    /// Returns the names of the agent program and of the model, once known.
    pub(crate) fn agent(&self) -> (Option<String>, Option<String>) {
        let metered = self.lock();
        (metered.agent.map(str::to_owned), metered.model.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Metered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
