//! `GET /`: health check. Responds 503 with reasons if the store cannot be written, or another machine may work, and 200
//! with reasons if a ticketing system, GitHub or the place of the standby does not answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::routing::{Access, ApiResult, Route, ok};
use domain::vendor::Vendor;
use engine::app::App;
use engine::incidents;
use engine::standby::{Standby, StandbyStatus};

/// Routes of `/`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/", "health", show).access(Access::Public)]
}

async fn show(app: App) -> ApiResult {
    let mut reasons = Vec::new();
    if !app.core.store().is_healthy() {
        reasons.push("the store cannot write".to_owned());
    }
    reasons.extend(app.core.store().disk_space().problem());
    let standby = app.live.standby.as_ref().map(Standby::status);
    let is_fenced = standby.as_ref().is_some_and(StandbyStatus::has_lapsed);
    let is_broken = !reasons.is_empty() || is_fenced;
    reasons.extend(vendor_problems(&app));
    let waits = standby.as_ref().and_then(StandbyStatus::reason);
    reasons.extend(waits.map(str::to_owned));
    let mut state = Map::new();
    let status = if reasons.is_empty() { "ok" } else { "degraded" };
    state.insert("status".to_owned(), Value::from(status));
    state.insert("polls".to_owned(), json!(app.live.heartbeats.polls()));
    state.insert(
        "lastPollAt".to_owned(),
        json!(app.live.heartbeats.last_poll_at()),
    );
    state.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    if !reasons.is_empty() {
        state.insert("reasons".to_owned(), json!(reasons));
    }
    match is_broken {
        true => Err(ApiError::degraded(state)),
        false => Ok(ok(&state)),
    }
}

/// Vendors that keep new runs from starting, without details: everybody can read this page. A ticketing system
/// that rejects polls has no incident, but its issues are not read either.
fn vendor_problems(app: &App) -> Vec<String> {
    let incidents = incidents::current(&app.vendors);
    let snapshots = app.live.poll_snapshots.all().into_iter();
    let failed = snapshots.filter(|(_, snapshot)| snapshot.failure.is_some());
    let mut affected: BTreeMap<Vendor, String> = failed
        .map(|(system, _)| Vendor::from(system))
        .map(|vendor| (vendor, format!("the last poll of {vendor} failed")))
        .collect();
    let vendors = [Vendor::Linear, Vendor::Jira, Vendor::GitHub].into_iter();
    let headlines = vendors.filter_map(|vendor| {
        let incident = incidents.get(&vendor).filter(|one| one.stops_dispatch())?;
        Some((vendor, incident.headline()))
    });
    affected.extend(headlines);
    affected.into_values().collect()
}
