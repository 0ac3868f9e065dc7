//! Webhooks of the ticketing systems, which make the poll run early.
//!
//! An event only notifies; the poll reads the state. A few events in a row each cause a poll at once. A burst
//! causes a poll per second: the vendor counts each one. While little of a vendor's quota is left, events wait for the
//! regular poll, so that the quota lasts for it and for comments and markers.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::app::App;
use domain::issue::System;
use store::crash_injection::CrashPoint;
use store::{StoreResult, webhook_deliveries};
use vendors::http::now_millis;
use vendors::ticketing::TicketingClient;

use super::periodic_task::ShutdownSignal;

/// Mean time between the polls of a burst of events.
const POLL_GAP: Duration = Duration::from_secs(1);

/// Number of polls that a burst of events causes before [`POLL_GAP`] applies.
const POLLS_AT_ONCE: u32 = 5;

/// Minimum time between two polls that events caused. An action of a person often causes several events.
const MIN_POLL_GAP: Duration = Duration::from_millis(50);

/// Time after which quotas are compared again with what is needed.
const QUOTA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum delay of Jira's search index after its events.
const INDEX_LAG: Duration = Duration::from_secs(4);

/// Records a delivery and notifies the poll. `announced` is the id or key of the issue of which the event announces a
/// comment. Returns `false` if the delivery is a repetition.
///
/// # Errors
/// Fails if the delivery cannot be stored; the sender repeats it.
pub async fn receive(
    app: &App,
    system: System,
    delivery: &str,
    announced: Option<String>,
) -> StoreResult<bool> {
    let (id, now) = (delivery.to_owned(), app.core.now());
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::TicketEventReceived);
    let is_new = app
        .core
        .store
        .write(move |tx| webhook_deliveries::record(tx, &id, now));
    let is_new = is_new.await?;
    if is_new {
        if let Some(issue) = announced {
            app.live.comment_reads.announce(system, issue);
        }
        app.live.notifiers.ticket_event.notify_one();
        if system == System::Jira {
            app.live.notifiers.delayed_ticket_event.notify_one();
        }
    }
    tracing::debug!(delivery, is_new, "Recorded a ticketing event.");
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::TicketEventStored);
    Ok(is_new)
}

/// Passes events on to the poll until shutdown is requested.
pub(super) async fn run(app: App, stop: ShutdownSignal) {
    let immediate = async {
        let mut limiter = PollLimiter::default();
        loop {
            app.live.notifiers.ticket_event.notified().await;
            while !are_quotas_plentiful(&app) {
                sleep(QUOTA_CHECK_INTERVAL).await;
            }
            app.live.notifiers.poll.notify_one();
            sleep_until(limiter.next_after(Instant::now())).await;
        }
    };
    // The search index may not contain the change yet.
    let delayed = async {
        loop {
            app.live.notifiers.delayed_ticket_event.notified().await;
            sleep(INDEX_LAG).await;
            app.live.notifiers.ticket_event.notify_one();
        }
    };
    tokio::select! {
        () = immediate => {}
        () = delayed => {}
        () = stop.requested() => {}
    }
}

/// Returns whether enough of each ticketing system's quota is left for a poll beside the regular ones.
fn are_quotas_plentiful(app: &App) -> bool {
    let is_polled = |system| app.live.poll_snapshots.is_polled(system);
    let accounts = app.vendors.ticketing_in_use(is_polled);
    let mut quotas = accounts.flat_map(TicketingClient::quotas);
    quotas.all(|quota| quota.is_plentiful(now_millis()))
}

/// Limiter of the polls that events cause.
#[derive(Default)]
struct PollLimiter {
    /// Time by which all polls would have been made if they were [`POLL_GAP`] apart.
    paced_until: Option<Instant>,
}

impl PollLimiter {
    /// Counts a poll and returns when the next one may follow.
    fn next_after(&mut self, now: Instant) -> Instant {
        let paced_until = self.paced_until.map_or(now, |until| until.max(now)) + POLL_GAP;
        self.paced_until = Some(paced_until);
        (paced_until - POLL_GAP * (POLLS_AT_ONCE - 1)).max(now + MIN_POLL_GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_limited_to_a_poll_per_second() {
        let start = Instant::now();
        let (mut limiter, mut now, mut polls) = (PollLimiter::default(), start, 0);
        while now < start + Duration::from_secs(60) {
            now = limiter.next_after(now);
            polls += 1;
        }
        assert_eq!(polls, 64);
        let later = now + Duration::from_secs(60);
        assert_eq!(limiter.next_after(later), later + MIN_POLL_GAP);
    }
}
