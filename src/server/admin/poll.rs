//! `/api/poll`: what the latest poll of the ticketing systems returned, and start of a poll at once.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::routing::{ApiResult, Route, accepted, ok};
use domain::audit::Actor;
use domain::issue::System;
use domain::time::Timestamp;
use domain::vendor::Vendor;
use engine::admin::poll;
use engine::app::{App, PollOutcome, PollSnapshot};

/// Routes of `/api/poll`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/poll", "showPoll", show).returns::<PollView>(),
        Route::post("/api/poll", "poll", start),
    ]
}

async fn show(app: App) -> ApiResult {
    let mut snapshots = app.live.poll_snapshots.all();
    let is_polled = |system| app.live.poll_snapshots.is_polled(system);
    let accounts = app.vendors.ticketing_in_use(is_polled);
    let systems = accounts.map(|account| {
        let system = account.system();
        SystemView::of(system, snapshots.remove(&system))
    });
    Ok(ok(&PollView {
        running: app.live.heartbeats.is_polling(),
        systems: systems.collect(),
        last: app.live.heartbeats.last_poll().map(OutcomeView::from),
    }))
}

async fn start(by: Actor, app: App) -> ApiResult {
    poll::request(&app, by).await?;
    Ok(accepted(&json!({"started": true})))
}

/// State of the polls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Poll")]
struct PollView {
    /// Whether a poll is in progress.
    running: bool,
    /// Configured ticketing systems.
    systems: Vec<SystemView>,
    /// Outcome of the last poll. `None` before the first.
    last: Option<OutcomeView>,
}

/// Latest poll of one ticketing system.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PolledSystem")]
struct SystemView {
    system: System,
    #[schemars(example = &"Linear")]
    name: &'static str,
    /// Time of the latest poll. `None` before the first.
    last_attempt_at: Option<Timestamp>,
    /// Time of the latest poll that the system answered. `None` if it never did.
    last_success_at: Option<Timestamp>,
    /// Cause, if the system did not answer the latest poll.
    #[schemars(example = "Linear is rate limited.")]
    error: Option<String>,
    /// Number of flagged issues in the latest answer.
    issues: usize,
}

impl SystemView {
    fn of(system: System, snapshot: Option<PollSnapshot>) -> Self {
        let attempted_at = snapshot.as_ref().map(|snapshot| snapshot.attempted_at);
        let snapshot = snapshot.unwrap_or_default();
        Self {
            system,
            name: Vendor::from(system).name(),
            last_attempt_at: attempted_at,
            last_success_at: snapshot.polled_at,
            error: snapshot.failure.map(|failure| failure.sentence),
            issues: snapshot.issues.len(),
        }
    }
}

/// Outcome of a poll.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PollOutcome")]
struct OutcomeView {
    /// End of the poll.
    at: Timestamp,
    /// Number of runs that it reserved.
    dispatched: usize,
    /// Number of issues that wait.
    waiting: usize,
}

impl From<PollOutcome> for OutcomeView {
    fn from(outcome: PollOutcome) -> Self {
        Self {
            at: outcome.at,
            dispatched: outcome.dispatched,
            waiting: outcome.waiting,
        }
    }
}
