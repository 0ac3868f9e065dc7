//! Wall clock.

use domain::time::Timestamp;
use vendors::http::now_millis;

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(now_millis())
}
