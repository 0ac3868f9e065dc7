//! In-memory counters that rate-limit audit entries about failed sign-ins, and the date of the last
//! daily entry.

use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::audit::{Action, AuditRateLimiter};
use domain::time::Timestamp;

const DAY: u64 = 24 * 60 * 60 * 1000;

#[derive(Default)]
/// Rate limiter of audit entries about failed sign-ins.
pub struct SignInLimiter(Mutex<State>);

#[derive(Default)]
struct State {
    refused: AuditRateLimiter,
    throttled: AuditRateLimiter,
    /// Last day seen, in days since the epoch.
    day: Option<u64>,
}

impl State {
    fn limiter(&mut self, action: Action) -> &mut AuditRateLimiter {
        match action {
            Action::SignInThrottled => &mut self.throttled,
            _ => &mut self.refused,
        }
    }
}

impl SignInLimiter {
    /// Records a failed sign-in, counted per action. See [`AuditRateLimiter::record_refusal`].
    pub fn record_failure(&self, action: Action, now: Timestamp) -> (bool, Option<u64>) {
        self.lock().limiter(action).record_refusal(now)
    }

    /// See [`AuditRateLimiter::take_suppressed_count`].
    pub fn take_suppressed_count(&self, action: Action, now: Timestamp) -> Option<u64> {
        self.lock().limiter(action).take_suppressed_count(now)
    }

    /// Whether this is the first call on this day (UTC), or the first since the process started.
    pub fn is_new_day(&self, now: Timestamp) -> bool {
        let today = Some(now.as_millis() / DAY);
        std::mem::replace(&mut self.lock().day, today) != today
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
