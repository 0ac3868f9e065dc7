//! `/api/incidents`: vendors that are rate limited or unreachable.

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::time::Timestamp;
use engine::app::App;
use engine::incidents::{self, Incident, WaitingWork};

/// Routes of `/api/incidents`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/incidents", "listIncidents", list).returns::<IncidentsView>()]
}

async fn list(app: App) -> ApiResult {
    let incidents = incidents::current(&app.vendors);
    let (handle, open) = (app.clone(), incidents.clone());
    let waiting = app
        .core
        .store()
        .read_long(move |tx| incidents::waiting_work(tx, &handle, &open));
    let waiting = waiting.await?;
    let view = |incident: &Incident| {
        let work = waiting.get(&incident.vendor).copied().unwrap_or_default();
        IncidentView::of(incident, work)
    };
    Ok(ok(&IncidentsView {
        incidents: incidents.values().map(view).collect(),
    }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Incidents")]
struct IncidentsView {
    /// At most one per vendor.
    incidents: Vec<IncidentView>,
}

/// Vendor that is rate limited or does not answer. The incident ends when the vendor answers again.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Incident")]
struct IncidentView {
    id: &'static str,
    #[schemars(extend("enum" = ["Linear", "Jira", "GitHub", "Fly Machines", "Container engine", "Kubernetes", "Chat"]))]
    vendor: &'static str,
    #[schemars(extend("enum" = ["rate-limited", "unreachable"]))]
    kind: &'static str,
    /// What the vendor is, without a period.
    #[schemars(example = "Linear is rate limited")]
    headline: String,
    /// Consequence, as a sentence.
    affects: &'static str,
    /// Time of the first request that failed.
    since: Timestamp,
    /// End of the rate limit. `None` for an unreachable vendor.
    until: Option<Timestamp>,
    /// Number of issues that wait.
    issues_waiting: usize,
    /// Number of updates in the outbox that wait.
    updates_waiting: usize,
    /// The incident in one line.
    #[schemars(
        example = "Linear is rate limited until 03:34 UTC (in 44 min). Nothing new starts; 180 issues wait."
    )]
    message: String,
}

impl IncidentView {
    fn of(incident: &Incident, waiting: WaitingWork) -> Self {
        Self {
            id: incident.vendor.slug(),
            vendor: incident.vendor.name(),
            kind: incident.kind.as_str(),
            headline: incident.headline(),
            affects: incident.affects(),
            since: incident.since,
            until: incident.until,
            issues_waiting: waiting.issues,
            updates_waiting: waiting.updates,
            message: incident.message(waiting),
        }
    }
}
