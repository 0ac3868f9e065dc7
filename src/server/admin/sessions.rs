//! `/api/sessions`: session machines and containers. See docs/behaviour.md#session-machines.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::audit::Actor;
use domain::ids::{IssueKey, JobId};
use domain::machine::{HostKind, Machine, MachinePhase};
use domain::time::Timestamp;
use domain::vendor::Vendor;
use engine::app::App;
use engine::reap::{self, DestroyOutcome};

/// Maximum time that a request waits for the destruction of a machine. It continues in the background
/// afterwards.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(8);

/// Routes of `/api/sessions`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/sessions", "listSessions", list).returns::<Vec<SessionView<'_>>>(),
        Route::delete("/api/sessions/:machineId", "destroySession", destroy),
    ]
}

async fn list(app: App) -> ApiResult {
    let (mut machines, mut failures) = (Vec::new(), Vec::new());
    for (host, listed) in app.vendors.sessions.list_all().await {
        match listed {
            Ok(listed) => machines.extend(listed),
            Err(error) => failures.push((host, error)),
        }
    }
    let now = app.core.now();
    let mut shown: Vec<SessionView<'_>> = machines
        .iter()
        .filter_map(|machine| SessionView::of(machine, now))
        .collect();
    shown.sort_by_key(|session| session.created_at);
    if failures.is_empty() {
        return Ok(ok(&shown));
    }
    let is_host_unreachable = { failures.iter() }.any(|(_, error)| error.is_unanswered());
    let reasons = failures
        .iter()
        .map(|(host, error)| match error.is_unanswered() {
            true => unreachable_message(&app, *host, &error.to_string()),
            false => app.secrets.redactor.redact(&error.to_string()),
        });
    let reasons: Vec<String> = reasons.collect();
    Err(AdminApiError::SessionsIncomplete {
        is_host_unreachable,
        reason: reasons.join("; "),
        sessions: json!(shown),
    }
    .into())
}

/// Destroys a machine and resets its issue. Waits up to [`DESTROY_TIMEOUT`] for the host. If the host
/// fails, the outbox retries the destruction.
async fn destroy(PathSegment(machine): PathSegment, by: Actor, app: App) -> ApiResult {
    if app.vendors.sessions.hosts().next().is_none() {
        return Err(AdminApiError::SessionsNotConfigured.into());
    }
    match reap::destroy_session(&app, by, &machine, DESTROY_TIMEOUT).await? {
        DestroyOutcome::Destroyed => Ok(ok(&json!({"destroyed": true}))),
        DestroyOutcome::Retrying(reason) => {
            Err(AdminApiError::Vendor(app.secrets.redactor.redact(&reason)).into())
        }
        DestroyOutcome::Unanswered(host, reason) => {
            Err(AdminApiError::HostUnreachable(unreachable_message(&app, host, &reason)).into())
        }
    }
}

/// Builds the error text about a host that does not respond.
fn unreachable_message(app: &App, host: HostKind, reason: &str) -> String {
    let name = match host {
        HostKind::Vm | HostKind::Kubernetes => Vendor::from(host).name().to_owned(),
        HostKind::Local => format!(
            "The container engine at {}",
            app.core.config.containers.engine
        ),
    };
    app.secrets
        .redactor
        .redact(&format!("{name} does not answer: {reason}"))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Session")]
struct SessionView<'a> {
    machine_id: &'a str,
    name: &'a str,
    kind: HostKind,
    #[schemars(extend("enum" = ["started", "starting", "created"]))]
    state: &'a str,
    region: Option<&'a str>,
    created_at: Timestamp,
    uptime_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IssueKey")]
    issue_identifier: Option<&'a IssueKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    repo: Option<String>,
    job_id: &'a JobId,
}

impl<'a> SessionView<'a> {
    /// Returns `None` for a stopped machine and for one that is being destroyed.
    fn of(machine: &'a Machine, now: Timestamp) -> Option<Self> {
        let state = match (machine.state.phase(), machine.state.as_str()) {
            (MachinePhase::Starting, "created") => "created",
            (MachinePhase::Starting, _) => "starting",
            (MachinePhase::Running, _) => "started",
            (MachinePhase::Stopped | MachinePhase::Destroying, _) => return None,
        };
        Some(Self {
            machine_id: &machine.id,
            name: &machine.name,
            kind: machine.host,
            state,
            region: machine.region.as_deref(),
            created_at: machine.created_at,
            uptime_seconds: now.since(machine.created_at).as_secs(),
            issue_identifier: machine.labels.issue.as_ref(),
            repo: machine.labels.repo.as_ref().map(ToString::to_string),
            job_id: &machine.labels.job,
        })
    }
}
