//! What is remembered of those who were refused, and of the day.

use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::audit::{Action, AuditRateLimiter};
use domain::time::Timestamp;

const DAY: u64 = 24 * 60 * 60 * 1000;

#[derive(Default)]
pub struct SignInLimiter(Mutex<State>);

#[derive(Default)]
struct State {
    refused: AuditRateLimiter,
    throttled: AuditRateLimiter,
    /// The last day whose beginning was noticed, counted from the epoch.
    day: Option<u64>,
}

impl State {
    fn restraint(&mut self, action: Action) -> &mut AuditRateLimiter {
        match action {
            Action::SignInThrottled => &mut self.throttled,
            _ => &mut self.refused,
        }
    }
}

impl SignInLimiter {
    /// See [`Restraint::refuse`]; each kind of refusal is counted by itself.
    pub fn record_failure(&self, action: Action, now: Timestamp) -> (bool, Option<u64>) {
        self.lock().restraint(action).record_refusal(now)
    }

    /// See [`Restraint::over`].
    pub fn take_suppressed_count(&self, action: Action, now: Timestamp) -> Option<u64> {
        self.lock().restraint(action).take_suppressed_count(now)
    }

    /// Whether this is the first time that it is asked on this day (UTC), or at all.
    pub fn is_new_day(&self, now: Timestamp) -> bool {
        let today = Some(now.as_millis() / DAY);
        std::mem::replace(&mut self.lock().day, today) != today
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
