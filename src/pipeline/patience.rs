//! Asking again: a run must not fail because a host had a bad minute.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::wire::VendorError;

/// How long may one thing be asked for, all tries together?
pub const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How long is the longest wait between two tries?
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Tries until it works, cannot work, or the patience is over. What is tried must be such that
/// twice is once.
///
/// # Errors
/// What the last try failed with.
pub async fn persist<T>(
    say: &(dyn Fn(&str) + Sync),
    patience: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, VendorError>,
) -> Result<T, VendorError> {
    let give_up = Instant::now() + patience;
    let mut pause = Duration::from_secs(1);
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let wait = error.retry_after().unwrap_or_default().max(pause);
        if error.is_permanent() || Instant::now() + wait >= give_up {
            return Err(error);
        }
        say(&format!("trying again: {error}"));
        sleep(wait.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
