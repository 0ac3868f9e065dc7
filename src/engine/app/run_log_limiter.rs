//! Rate limit of the logs that runs send. Code of the repository may have read the token of a run.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::JobId;
use domain::time::Timestamp;

/// Number of bytes per second that a run may send.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Number of bytes that a run may send at once.
const BURST: u64 = 2 << 20;

/// Number of bytes that a request counts at least. Each costs a commit.
const MIN_COST: u64 = 4 << 10;

/// Maximum number of runs that are remembered. The one that has sent nothing for the longest time is forgotten first.
const MAX_RUNS: usize = 1024;

/// Limiter of the bytes and requests that each run sends to its log.
#[derive(Default)]
pub struct RunLogLimiter(Mutex<VecDeque<Allowance>>);

struct Allowance {
    job: JobId,
    bytes: u64,
    as_of: Timestamp,
}

impl RunLogLimiter {
    /// Counts a request of this many bytes.
    ///
    /// # Errors
    /// The time to wait, if the run has sent too much; the request does not count then.
    pub fn admit(&self, job: &JobId, bytes: usize, now: Timestamp) -> Result<(), Duration> {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = runs.iter().position(|run| run.job == *job);
        let mut run = known
            .and_then(|at| runs.remove(at))
            .unwrap_or_else(|| Allowance {
                job: job.clone(),
                bytes: BURST,
                as_of: now,
            });
        let elapsed = u64::try_from(now.since(run.as_of).as_millis()).unwrap_or(u64::MAX);
        let earned = elapsed.saturating_mul(BYTES_PER_SECOND) / 1000;
        run.bytes = run.bytes.saturating_add(earned).min(BURST);
        run.as_of = now;
        let cost = (bytes as u64).clamp(MIN_COST, BURST);
        let missing = cost.saturating_sub(run.bytes);
        if missing == 0 {
            run.bytes -= cost;
        }
        runs.push_back(run);
        if runs.len() > MAX_RUNS {
            runs.pop_front();
        }
        match missing {
            0 => Ok(()),
            missing => Err(Duration::from_millis(missing * 1000 / BYTES_PER_SECOND + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_bytes_and_requests_per_run() {
        let limiter = RunLogLimiter::default();
        let (job, other) = (JobId::from("j"), JobId::from("other"));
        let mut now = Timestamp::from_millis(1_800_000_000_000);
        assert_eq!(limiter.admit(&job, BURST as usize, now), Ok(()));
        let wait = limiter.admit(&job, 64 << 10, now).unwrap_err();
        assert!(wait > Duration::from_secs(1) && wait < Duration::from_millis(1010));
        assert_eq!(limiter.admit(&other, 1, now), Ok(()));
        now = now + wait;
        assert_eq!(limiter.admit(&job, 64 << 10, now), Ok(()));
        let small = (0..100).filter(|_| limiter.admit(&job, 1, now).is_ok());
        assert_eq!(small.count(), 0);
        now = now + Duration::from_secs(1);
        let small = (0..100).filter(|_| limiter.admit(&job, 1, now).is_ok());
        assert_eq!(small.count(), 16);
        // A clock that is set back gives nothing away and blocks nobody for long.
        let earlier = Timestamp::from_millis(1_700_000_000_000);
        assert!(limiter.admit(&job, 1, earlier).is_err());
        assert_eq!(
            limiter.admit(&job, 1, earlier + Duration::from_secs(1)),
            Ok(())
        );
    }

    #[test]
    fn forgets_the_run_that_was_silent_the_longest() {
        let limiter = RunLogLimiter::default();
        for n in 0..MAX_RUNS + 100 {
            let job = JobId::new(n.to_string());
            assert_eq!(limiter.admit(&job, 1, Timestamp::EPOCH), Ok(()));
        }
        assert_eq!(limiter.0.lock().unwrap().len(), MAX_RUNS);
    }
}
