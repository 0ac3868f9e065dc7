//! Asking again: a run must not fail because a host had a bad minute.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use vendors::http::VendorError;

/// How long may one thing be asked for, all tries together?
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long is the longest wait between two tries?
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Tries until it works, cannot work, or the patience is over. What is tried must be such that
/// twice is once.
///
/// # Errors
/// What the last try failed with.
pub async fn retry<T>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use vendors::http::VendorErrorKind;

    fn answered(status: u16) -> VendorError {
        let kind = VendorErrorKind::Status {
            status,
            message: String::new(),
            retry_after: None,
        };
        VendorError::new("github", "opening the pull request", kind)
    }

    /// Answers these statuses one after the other, then success; says how often it was asked.
    async fn asked(statuses: &[u16], patience: Duration) -> (Result<(), VendorError>, usize) {
        let mut tries = 0;
        let done = retry(&|_| {}, patience, async || {
            tries += 1;
            statuses
                .get(tries - 1)
                .map_or(Ok(()), |status| Err(answered(*status)))
        });
        let done = done.await;
        (done, tries)
    }

    #[tokio::test]
    async fn a_bad_minute_is_outlasted_and_a_refusal_is_final() {
        let long = Duration::from_secs(60);
        assert_eq!(asked(&[502], long).await, (Ok(()), 2));
        assert_eq!(asked(&[422], long).await, (Err(answered(422)), 1));
        assert_eq!(asked(&[502], Duration::ZERO).await, (Err(answered(502)), 1));
    }
}
