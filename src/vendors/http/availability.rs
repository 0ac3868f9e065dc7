//! Availability of a vendor, from the outcomes of the requests to it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{VendorError, VendorErrorKind};

/// Time after the last failure from which it no longer describes the present. Longer than the time between
/// two requests to a vendor that the service waits for.
const VALIDITY: Duration = Duration::from_secs(15 * 60);

const VALIDITY_MS: u64 = VALIDITY.as_millis() as u64;

/// What keeps a vendor from answering requests at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Availability {
    /// Accounts that are rate limited.
    pub rate_limits: Vec<RateLimit>,
    /// Failure of the latest requests; `None` if the vendor answered the last one.
    pub outage: Option<Outage>,
}

/// Rate limit of an account that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Account, for vendors with several limits; otherwise empty.
    pub account: String,
    /// Time of the first rejected request, in milliseconds since the epoch.
    pub since: u64,
    /// End of the limit, in milliseconds since the epoch.
    pub until: u64,
}

/// Series of requests without an answer: no connection, no response in time, or a server error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Time of the first of them, in milliseconds since the epoch.
    pub since: u64,
    /// Error of the last of them.
    pub error: VendorError,
    /// Time of the last of them, in milliseconds since the epoch.
    last_at: u64,
}

/// Outcomes of the latest requests of a client.
#[derive(Default)]
pub(super) struct OutageTracker(Mutex<Option<Outage>>);

impl OutageTracker {
    /// Records that the vendor answered.
    pub(super) fn record_answer(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records a failed call. Ignores errors that the vendor answered with, and requests that were not sent.
    pub(super) fn record_error(&self, error: &VendorError, now: u64) {
        if !is_unanswered(error) {
            return;
        }
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ongoing = outage.take().filter(|outage| outage.is_valid(now));
        *outage = Some(Outage {
            since: ongoing.map_or(now, |outage| outage.since),
            error: error.clone(),
            last_at: now,
        });
    }

    /// Returns the outage, if the vendor did not answer the latest requests.
    pub(super) fn current(&self, now: u64) -> Option<Outage> {
        let outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outage.clone().filter(|outage| outage.is_valid(now))
    }
}

impl Outage {
    fn is_valid(&self, now: u64) -> bool {
        continues(self.last_at, now)
    }
}

/// Returns whether a state that was last seen at `last` still counts at `now`.
pub(super) fn continues(last: u64, now: u64) -> bool {
    now.saturating_sub(last) < VALIDITY_MS
}

fn is_unanswered(error: &VendorError) -> bool {
    match &error.kind {
        VendorErrorKind::Timeout | VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_) => {
            true
        }
        VendorErrorKind::Status { status, .. } => *status >= 500,
        VendorErrorKind::Decode(_)
        | VendorErrorKind::RateLimited { .. }
        | VendorErrorKind::Precondition(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(kind: VendorErrorKind) -> VendorError {
        VendorError::new("Linear", "reading issues", kind)
    }

    fn status(status: u16) -> VendorErrorKind {
        VendorErrorKind::Status {
            status,
            message: String::new(),
            retry_after: None,
        }
    }

    #[test]
    fn only_unanswered_calls_are_an_outage() {
        for (kind, expected) in [
            (VendorErrorKind::Timeout, true),
            (VendorErrorKind::Connect("refused".into()), true),
            (VendorErrorKind::Transport("reset".into()), true),
            (status(503), true),
            (status(401), false),
            (VendorErrorKind::Decode("no JSON".into()), false),
            (VendorErrorKind::RateLimited { until: 9 }, false),
        ] {
            let tracker = OutageTracker::default();
            tracker.record_error(&error(kind.clone()), 5);
            assert_eq!(tracker.current(5).is_some(), expected, "{kind:?}");
        }
    }

    #[test]
    fn an_outage_that_nothing_confirms_ends() {
        let tracker = OutageTracker::default();
        let timeout = error(VendorErrorKind::Timeout);
        tracker.record_error(&timeout, 1_000);
        assert!(tracker.current(1_000 + VALIDITY_MS - 1).is_some());
        assert_eq!(tracker.current(1_000 + VALIDITY_MS), None);
        tracker.record_error(&timeout, 1_000 + VALIDITY_MS);
        let outage = tracker.current(1_000 + VALIDITY_MS).unwrap();
        assert_eq!(outage.since, 1_000 + VALIDITY_MS);
    }

    proptest! {
        /// An outage lasts from the first failure to the next answer, whatever happens in between.
        #[test]
        fn lasts_until_the_next_answer(
            calls in prop::collection::vec((prop::option::of(0..3_u8), 0..60_000_u64), 1..50)
        ) {
            let tracker = OutageTracker::default();
            let (mut now, mut expected) = (1_000_000_u64, None);
            for (failure, pause) in calls {
                now += pause;
                match failure {
                    None => {
                        tracker.record_answer();
                        expected = None;
                    }
                    Some(kind) => {
                        let kind = match kind {
                            0 => VendorErrorKind::Timeout,
                            1 => VendorErrorKind::Connect("refused".into()),
                            _ => status(502),
                        };
                        tracker.record_error(&error(kind), now);
                        expected = expected.or(Some(now));
                    }
                }
                let outage = tracker.current(now);
                prop_assert_eq!(outage.map(|outage| outage.since), expected);
            }
        }
    }
}
