//! Retries of requests to vendors and to the orchestrator.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use domain::retry::RetryPolicy;
use vendors::http::{Client, Request, VendorError};

/// Maximum total time for the attempts of one request.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Retries of an operation, with 0.75 to 1.25 seconds before the first.
const OPERATION: RetryPolicy = RetryPolicy {
    first_delay: Duration::from_millis(1250),
    max_delay: Duration::from_millis(12_500),
    jitter: 0.4,
    honors_vendor: true,
    max_attempts: u32::MAX,
    timeout: RETRY_TIMEOUT,
};

/// Retries of a report. The client has waited already if the orchestrator requested a delay.
const REPORT: RetryPolicy = RetryPolicy {
    first_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(3),
    jitter: 0.0,
    honors_vendor: false,
    max_attempts: 4,
    timeout: Duration::MAX,
};

/// Attempts of one operation.
struct Attempts {
    policy: RetryPolicy,
    started: Instant,
    failed: u32,
}

impl Attempts {
    fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            started: Instant::now(),
            failed: 0,
        }
    }

    /// Records a failed attempt. Returns the delay before the next, if there is one.
    fn fail(&mut self, error: &VendorError) -> Option<Duration> {
        self.failed += 1;
        let (elapsed, requested) = (self.started.elapsed(), error.retry_after());
        self.policy
            .next_delay(self.failed, elapsed, requested, fastrand::f64())
            .filter(|_| !error.is_permanent())
    }
}

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
    let mut attempts = Attempts::new(RetryPolicy {
        timeout,
        ..OPERATION
    });
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let Some(delay) = attempts.fail(&error) else {
            return Err(error);
        };
        log(&format!("Retrying after error: {error}"));
        sleep(delay).await;
    }
}

/// Sends a report to the orchestrator, in up to four attempts.
///
/// # Errors
/// The error of the last attempt.
pub(crate) async fn send_report(client: &Client, request: &Request) -> Result<(), VendorError> {
    let mut attempts = Attempts::new(REPORT);
    while let Err(error) = client.send(request).await {
        match attempts.fail(&error) {
            Some(delay) => sleep(delay).await,
            None => return Err(error),
        }
    }
    Ok(())
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
        VendorError::new("GitHub", "opening the pull request", kind)
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
