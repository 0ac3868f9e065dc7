//! Webhooks of the ticketing systems, which make the poll run early.
//!
//! An event only notifies; the poll reads the state. A burst of events causes at most two polls per
//! second: one at once, and one for the events that arrived meanwhile.

use std::time::Duration;

use tokio::time::sleep;

use crate::app::App;
use domain::issue::System;
use store::crash_injection::CrashPoint;
use store::{StoreResult, webhook_deliveries};

use super::periodic_task::ShutdownSignal;

/// Minimum time between two polls that events caused.
const MIN_POLL_GAP: Duration = Duration::from_secs(1);

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
        loop {
            app.live.notifiers.ticket_event.notified().await;
            app.live.notifiers.poll.notify_one();
            sleep(MIN_POLL_GAP).await;
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
