//! Time limits and cancellation of a run.

use std::time::Duration;

use tokio::time::Instant;

use crate::stop_signal::StopSignal;

/// Time reserved for checking and pushing the work.
pub(crate) const PUSH_RESERVE: Duration = Duration::from_secs(3 * 60);

/// Deadlines and stop signal of a run.
pub(crate) struct TimeLimits {
    /// Cancellation of the run.
    pub stop_signal: StopSignal,
    /// Time at which the run stops itself, early enough to report.
    pub deadline: Instant,
    /// Time at which the host may stop the run.
    pub host_deadline: Instant,
}

impl TimeLimits {
    /// Returns the end of a timeout, limited to the run's deadline.
    pub(crate) fn deadline_within(&self, timeout: Duration) -> Instant {
        self.deadline.min(Instant::now() + timeout)
    }

    /// Returns the deadline of work after which `reserve` must be left.
    pub(crate) fn deadline_before(&self, reserve: Duration) -> Instant {
        self.deadline.checked_sub(reserve).unwrap_or(self.deadline)
    }

    /// Returns the time until the run's deadline.
    pub(crate) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
