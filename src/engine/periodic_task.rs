//! A thing done over and over: a period, a bell, and a way to stop.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tracing::Instrument;

use crate::app::Heartbeats;
use store::StoreError;

/// How long may one activation take before it is abandoned?
const CYCLE_DEADLINE: Duration = Duration::from_secs(5 * 60);

/// How late may a task be heard from before it counts as stuck? Far more than a busy machine takes.
pub(super) const HEARTBEAT_GRACE: Duration = Duration::from_secs(60);

/// Tells the engine to stop; cheap to clone.
#[derive(Clone)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// The signal, and the hand that gives it. Dropping the hand gives it too.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (hand, signal) = watch::channel(false);
        (hand, Self(signal))
    }

    /// Resolves once the signal is given.
    pub async fn requested(&self) {
        let mut signal = self.0.clone();
        // An error means that the hand is gone.
        let _ = signal.wait_for(|given| *given).await;
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Activates `work` at once, then whenever the period is over or the bell rings. Activations never
/// overlap, take no input and do not retry: each looks at what is and does what is missing, so the
/// next is the retry. One that panics is logged and the next goes on. Before each step the task tells
/// `pulse` when it will be heard from again: a step that holds up its thread is noticed there.
pub(super) async fn run_periodic<F>(
    name: &'static str,
    period: Duration,
    bell: &Notify,
    pulse: &Heartbeats,
    stop: ShutdownSignal,
    work: impl Fn() -> F,
) where
    F: Future<Output = Result<(), StoreError>>,
{
    while !stop.is_requested() {
        let began = Instant::now();
        pulse.expect_within(name, CYCLE_DEADLINE + HEARTBEAT_GRACE);
        let span = tracing::info_span!("cycle", task = name);
        let cycle = AssertUnwindSafe(tokio::time::timeout(CYCLE_DEADLINE, work())).catch_unwind();
        match cycle.instrument(span).await {
            Ok(Ok(Ok(()))) => tracing::debug!(
                task = name,
                duration_ms = began.elapsed().as_millis() as u64,
                "Cycle done."
            ),
            Ok(Ok(Err(error))) => tracing::error!(task = name, %error, "Cycle failed."),
            Ok(Err(_)) => tracing::error!(
                task = name,
                "Cycle abandoned: it took more than five minutes."
            ),
            Err(_) => tracing::error!(task = name, "Cycle panicked."),
        }
        pulse.expect_within(name, period + HEARTBEAT_GRACE);
        tokio::select! {
            () = tokio::time::sleep(period) => {}
            () = bell.notified() => {}
            () = stop.requested() => {}
        }
    }
    pulse.retire(name);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    /// Whether the task would count as stuck if nothing were heard of it for that long.
    fn is_stuck_after(pulse: &Heartbeats, silence: Duration) -> bool {
        pulse
            .overdue(tokio::time::Instant::now() + silence)
            .is_some()
    }

    #[tokio::test]
    async fn a_task_gives_its_word_before_it_works_and_before_it_rests() {
        let pulse = Arc::new(Heartbeats::default());
        let (began, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (hand, stop) = ShutdownSignal::new();
        let task = tokio::spawn({
            let (pulse, began, finish) = (pulse.clone(), began.clone(), finish.clone());
            async move {
                let bell = Notify::new();
                let work = || async {
                    began.notify_one();
                    finish.notified().await;
                    Ok(())
                };
                run_periodic("test", PERIOD, &bell, &pulse, stop, work).await;
            }
        });
        let second = Duration::from_secs(1);
        began.notified().await;
        assert!(!is_stuck_after(&pulse, CYCLE_DEADLINE));
        assert!(is_stuck_after(
            &pulse,
            CYCLE_DEADLINE + HEARTBEAT_GRACE + second
        ));
        finish.notify_one();
        while !is_stuck_after(&pulse, PERIOD + HEARTBEAT_GRACE + second) {
            tokio::task::yield_now().await;
        }
        assert!(!is_stuck_after(&pulse, PERIOD));
        hand.send(true).unwrap();
        task.await.unwrap();
        assert!(!is_stuck_after(&pulse, CYCLE_DEADLINE * 100));
    }
}
