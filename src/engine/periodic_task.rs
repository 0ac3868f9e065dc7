//! Periodic tasks with an interval, a wake-up and a shutdown signal.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tracing::Instrument;

use crate::app::Heartbeats;
use store::StoreError;

/// Timeout of one cycle; a cycle that takes longer is aborted.
const CYCLE_DEADLINE: Duration = Duration::from_secs(5 * 60);

/// Delay after which a missing heartbeat means that a task is stuck. Far longer than the delays of
/// a busy machine.
pub(super) const HEARTBEAT_GRACE: Duration = Duration::from_secs(60);

/// Shutdown signal of the engine; cheap to clone.
#[derive(Clone)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Creates the signal and its sender. Dropping the sender also requests shutdown.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, signal) = watch::channel(false);
        (sender, Self(signal))
    }

    /// Resolves once shutdown is requested.
    pub async fn requested(&self) {
        let mut signal = self.0.clone();
        // An error means that the sender was dropped.
        let _ = signal.wait_for(|requested| *requested).await;
    }

    /// Whether shutdown is requested.
    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Runs `work` at once, then whenever the period has passed or `notify` is notified.
///
/// Cycles never overlap and do not retry: each one reads the current state and does what is
/// missing, so the next cycle is the retry. A panic is logged and ends only its cycle. Before each
/// step the task records a heartbeat with its deadline, so that a blocked thread is detected.
pub(super) async fn run_periodic<F>(
    name: &'static str,
    period: Duration,
    notify: &Notify,
    heartbeats: &Heartbeats,
    stop: ShutdownSignal,
    work: impl Fn() -> F,
) where
    F: Future<Output = Result<(), StoreError>>,
{
    while !stop.is_requested() {
        let started = Instant::now();
        heartbeats.expect_within(name, CYCLE_DEADLINE + HEARTBEAT_GRACE);
        let span = tracing::info_span!("cycle", task = name);
        let cycle = AssertUnwindSafe(tokio::time::timeout(CYCLE_DEADLINE, work())).catch_unwind();
        match cycle.instrument(span).await {
            Ok(Ok(Ok(()))) => tracing::debug!(
                task = name,
                duration_ms = started.elapsed().as_millis() as u64,
                "Cycle completed."
            ),
            Ok(Ok(Err(error))) => tracing::error!(task = name, %error, "Cycle failed."),
            Ok(Err(_)) => {
                tracing::error!(task = name, "Cycle aborted: it exceeded five minutes.");
            }
            Err(_) => tracing::error!(task = name, "Cycle panicked."),
        }
        heartbeats.expect_within(name, period + HEARTBEAT_GRACE);
        tokio::select! {
            () = tokio::time::sleep(period) => {}
            () = notify.notified() => {}
            () = stop.requested() => {}
        }
    }
    heartbeats.retire(name);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    /// Whether the task counts as stuck if no further heartbeat arrives within `silence`.
    fn is_stuck_after(heartbeats: &Heartbeats, silence: Duration) -> bool {
        heartbeats
            .overdue(tokio::time::Instant::now() + silence)
            .is_some()
    }

    #[tokio::test]
    async fn a_task_records_a_heartbeat_before_it_works_and_before_it_waits() {
        let heartbeats = Arc::new(Heartbeats::default());
        let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (sender, stop) = ShutdownSignal::new();
        let task = tokio::spawn({
            let (heartbeats, started, finish) =
                (heartbeats.clone(), started.clone(), finish.clone());
            async move {
                let notify = Notify::new();
                let work = || async {
                    started.notify_one();
                    finish.notified().await;
                    Ok(())
                };
                run_periodic("test", PERIOD, &notify, &heartbeats, stop, work).await;
            }
        });
        let second = Duration::from_secs(1);
        started.notified().await;
        assert!(!is_stuck_after(&heartbeats, CYCLE_DEADLINE));
        assert!(is_stuck_after(
            &heartbeats,
            CYCLE_DEADLINE + HEARTBEAT_GRACE + second
        ));
        finish.notify_one();
        while !is_stuck_after(&heartbeats, PERIOD + HEARTBEAT_GRACE + second) {
            tokio::task::yield_now().await;
        }
        assert!(!is_stuck_after(&heartbeats, PERIOD));
        sender.send(true).unwrap();
        task.await.unwrap();
        assert!(!is_stuck_after(&heartbeats, CYCLE_DEADLINE * 100));
    }
}
