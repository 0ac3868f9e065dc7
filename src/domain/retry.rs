//! Retries: how long to wait before the next attempt, and when to give up.
//!
//! Rightly ours: `backon` runs the loop and sleeps. Here delays are only computed, because the outbox
//! stores them as due times.

use std::time::Duration;

/// Limits of the attempts of an operation and of the delays between them.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Maximum delay before the first retry. It doubles with each attempt.
    pub first_delay: Duration,
    /// Maximum delay before any retry. A vendor may request a longer one.
    pub max_delay: Duration,
    /// Share of the delay, from 0 to 1, of which a random part is left out.
    pub jitter: f64,
    /// Whether a delay that the vendor requests is the minimum.
    pub honors_vendor: bool,
    /// Maximum number of attempts.
    pub max_attempts: u32,
    /// Time after the start at which no attempt begins any more.
    pub timeout: Duration,
}

impl RetryPolicy {
    /// Returns the delay after a number of failed attempts. `random` is a number from 0 to 1.
    pub fn delay(&self, attempts: u32, requested: Option<Duration>, random: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let longest = self.first_delay.saturating_mul(1 << doublings);
        let longest = longest.min(self.max_delay);
        let left_out = longest.as_secs_f64() * self.jitter * random;
        let left_out = Duration::try_from_secs_f64(left_out).unwrap_or(longest);
        let delay = longest.saturating_sub(left_out);
        let requested = requested.filter(|_| self.honors_vendor);
        requested.map_or(delay, |requested| requested.max(delay))
    }

    /// Returns the delay after a number of failed attempts and a time since the start. Returns `None` if
    /// the operation must be given up.
    pub fn next_delay(
        &self,
        attempts: u32,
        elapsed: Duration,
        requested: Option<Duration>,
        random: f64,
    ) -> Option<Duration> {
        let delay = self.delay(attempts, requested, random);
        let may_retry =
            attempts < self.max_attempts && elapsed.saturating_add(delay) < self.timeout;
        may_retry.then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(jitter: f64) -> RetryPolicy {
        RetryPolicy {
            first_delay: SECOND,
            max_delay: SECOND * 10,
            jitter,
            honors_vendor: true,
            max_attempts: 6,
            timeout: SECOND * 60,
        }
    }

    #[test]
    fn delays_double_up_to_their_limit() {
        let delays: Vec<u64> = (1..=6)
            .map(|attempts| policy(0.5).delay(attempts, None, 0.0).as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
        let half = policy(0.5).delay(2, None, 1.0);
        assert_eq!(half, SECOND);
    }

    #[test]
    fn a_requested_delay_is_the_minimum_if_it_is_honored() {
        let policy = policy(0.0);
        assert_eq!(policy.delay(1, Some(SECOND * 90), 0.5), SECOND * 90);
        assert_eq!(policy.delay(3, Some(SECOND), 0.5), SECOND * 4);
        let own_delays_only = RetryPolicy {
            honors_vendor: false,
            ..policy
        };
        assert_eq!(own_delays_only.delay(1, Some(SECOND * 90), 0.5), SECOND);
    }

    #[test]
    fn gives_up_after_the_last_attempt_and_before_the_timeout() {
        let policy = policy(0.0);
        assert_eq!(
            policy.next_delay(5, SECOND * 49, None, 0.0),
            Some(SECOND * 10)
        );
        assert_eq!(policy.next_delay(5, SECOND * 50, None, 0.0), None);
        assert_eq!(policy.next_delay(6, SECOND, None, 0.0), None);
        assert_eq!(policy.next_delay(1, SECOND, Some(SECOND * 90), 0.0), None);
    }

    fn duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..100_000u64).prop_map(Duration::from_millis),
            any::<u64>().prop_map(Duration::from_secs),
            Just(Duration::MAX),
        ]
    }

    proptest! {
        #[test]
        fn delays_and_attempts_are_bounded(
            (first_delay, max_delay, timeout) in (duration(), duration(), duration()),
            (jitter, random) in (0.0..=1.0f64, 0.0..=1.0f64),
            requested in prop::option::of(duration()),
            honors_vendor in any::<bool>(),
            max_attempts in 0..200u32,
        ) {
            let policy = RetryPolicy {
                first_delay, max_delay, jitter, honors_vendor, max_attempts, timeout,
            };
            let minimum = requested.filter(|_| honors_vendor).unwrap_or_default();
            for attempts in [0, 1, 2, 30, 31, 32, 33, u32::MAX] {
                let delay = policy.delay(attempts, requested, random);
                prop_assert!(delay >= minimum && delay <= max_delay.max(minimum), "{delay:?}");
                let without_jitter = policy.delay(attempts, requested, 0.0);
                prop_assert!(delay <= without_jitter);
            }
            let (mut attempts, mut elapsed) = (1, Duration::ZERO);
            while let Some(delay) = policy.next_delay(attempts, elapsed, requested, random) {
                attempts += 1;
                elapsed += delay;
                prop_assert!(attempts <= max_attempts && elapsed < timeout, "{attempts} {elapsed:?}");
            }
        }
    }
}
