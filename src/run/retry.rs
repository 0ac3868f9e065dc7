//! Retries of vendor requests with exponential backoff.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use vendors::http::VendorError;

/// Maximum total time for the attempts of one request.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Retries an idempotent operation until it succeeds, fails permanently, or `timeout` has passed.
/// Passes each retried error to `log`.
///
/// # Errors
/// The error of the last attempt.
pub(crate) async fn retry<T>(
    log: &(dyn Fn(&str) + Sync),
    timeout: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, VendorError>,
) -> Result<T, VendorError> {
    let give_up = Instant::now() + timeout;
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
        log(&format!("Retrying after error: {error}"));
        sleep(wait.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vendors::http::VendorErrorKind;

    fn status_error(status: u16) -> VendorError {
        let kind = VendorErrorKind::Status {
            status,
            message: String::new(),
            retry_after: None,
        };
        VendorError::new("github", "opening the pull request", kind)
    }

    /// Fails with each status in turn, then succeeds. Returns the result and the number of attempts.
    async fn run_attempts(statuses: &[u16], timeout: Duration) -> (Result<(), VendorError>, usize) {
        let mut tries = 0;
        let done = retry(&|_| {}, timeout, async || {
            tries += 1;
            statuses
                .get(tries - 1)
                .map_or(Ok(()), |status| Err(status_error(*status)))
        });
        let done = done.await;
        (done, tries)
    }

    #[tokio::test]
    async fn retries_transient_errors_and_returns_permanent_errors() {
        let long = Duration::from_secs(60);
        assert_eq!(run_attempts(&[502], long).await, (Ok(()), 2));
        assert_eq!(
            run_attempts(&[422], long).await,
            (Err(status_error(422)), 1)
        );
        let no_retry = run_attempts(&[502], Duration::ZERO).await;
        assert_eq!(no_retry, (Err(status_error(502)), 1));
    }
}
