//! Admin API. Each resource has a module named like its path.
//!
//! Every route checks the token first, then parses the body, looks up the resource and applies the rules.
//! Without an access code, these routes exist on the control socket only.

mod access_code_throttle;
mod audit;
mod auth;
mod blockers;
mod config_status;
mod customizations;
mod dedup;
mod issues;
pub(super) mod jobs;
mod log;
mod mappings;
mod outbox;
mod paging;
mod parked;
mod pipelines_steps;
mod poll;
mod poll_snapshot;
mod pulls;
mod reaper;
mod runner_mode;
mod secrets;
mod sessions;
mod settings;
mod steps;
mod sync_workflows;
mod template_status;
mod ticketing_b;
mod usage;
pub(super) mod why;

use warp::Filter;
use warp::http::Method;

use super::routing::{ApiResult, Routes, one_of};
use engine::app::App;
use store::crash_injection::CrashPoint;

/// Builds all admin routes.
pub(crate) fn routes(app: &App) -> Routes {
    let all = one_of([
        auth::routes(app),
        audit::routes(app),
        mappings::routes(app),
        sync_workflows::routes(app),
        log::routes(app),
        jobs::routes(app),
        steps::routes(app),
        issues::routes(app),
        blockers::routes(app),
        usage::routes(app),
        why::routes(app),
        parked::routes(app),
        dedup::routes(app),
        outbox::routes(app),
        poll::routes(app),
        pulls::routes(app),
        ticketing_b::routes(app),
        config_status::routes(app),
        runner_mode::routes(app),
        secrets::routes(app),
        settings::routes(app),
        sessions::routes(app),
        reaper::routes(app),
        customizations::routes(app),
        pipelines_steps::routes(app),
        template_status::routes(app),
    ]);
    let crash = app.core.crash_plan.clone();
    warp::method()
        .and(all)
        .map(move |method: Method, result: ApiResult| {
            if method != Method::GET && result.is_ok() {
                crash.crash_if_planned(CrashPoint::AdminChangeStored);
            }
            result
        })
        .boxed()
}
