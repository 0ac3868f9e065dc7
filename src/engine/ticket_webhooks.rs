//! A ticketing system says that something happened: the poll looks now rather than later.
//!
//! Events only ring; what is true the poll finds out. A burst of them is two polls at most a second:
//! one at once, and one for what came while that was under way.

use std::time::Duration;

use tokio::time::sleep;

use crate::app::App;
use domain::issue::System;
use store::crash_injection::CrashPoint;
use store::{StoreResult, webhook_deliveries};

use super::periodic_task::ShutdownSignal;

/// How long after a poll that an event asked for comes the next of that kind, at the earliest?
const GAP: Duration = Duration::from_secs(1);

/// How long may Jira's search index stay behind what its events tell?
const INDEX_LAG: Duration = Duration::from_secs(4);

/// Takes a delivery and has the poll look. Whether it was taken now; false when it was taken before.
///
/// # Errors
/// When it cannot be stored; the sender sends it again.
pub async fn receive(app: &App, system: System, delivery: &str) -> StoreResult<bool> {
    let (id, now) = (delivery.to_owned(), app.now());
    app.crash_plan
        .crash_if_planned(CrashPoint::TicketEventReceived);
    let is_news = app
        .store
        .write(move |tx| webhook_deliveries::record(tx, &id, now));
    let is_news = is_news.await?;
    if is_news {
        app.notifiers.ticket_event.notify_one();
        if system == System::Jira {
            app.notifiers.delayed_ticket_event.notify_one();
        }
    }
    tracing::debug!(delivery, is_news, "A ticketing event was taken.");
    app.crash_plan
        .crash_if_planned(CrashPoint::TicketEventStored);
    Ok(is_news)
}

/// Passes events on to the poll until the engine is told to stop.
pub(super) async fn run(app: &App, stop: ShutdownSignal) {
    let at_once = async {
        loop {
            app.notifiers.ticket_event.notified().await;
            app.notifiers.poll.notify_one();
            sleep(GAP).await;
        }
    };
    // The search may not find yet what the event told of.
    let again = async {
        loop {
            app.notifiers.delayed_ticket_event.notified().await;
            sleep(INDEX_LAG).await;
            app.notifiers.ticket_event.notify_one();
        }
    };
    tokio::select! {
        () = at_once => {}
        () = again => {}
        () = stop.requested() => {}
    }
}
