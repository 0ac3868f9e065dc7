//! Admin API. Each resource has a module named like its path.
//!
//! Every route checks the token first, then parses the body, looks up the resource and applies the rules.
//! Without an access code, these routes exist on the control socket only.

mod access_code_throttle;
mod audit;
mod auth;
mod blockers;
mod choices;
mod config_status;
pub(super) mod connections;
mod conversation;
mod customizations;
mod dedup;
mod evidence;
mod incidents;
mod issues;
mod job_control;
pub(super) mod jobs;
mod log;
mod mappings;
mod outbox;
mod paging;
mod parked;
mod pipelines_steps;
mod poll;
mod poll_snapshot;
mod projects_file;
mod pulls;
mod reaper;
mod run_details;
mod run_log;
mod runner_mode;
pub(super) mod score_columns;
pub(super) mod scoreboard;
mod secrets;
mod sessions;
mod settings;
mod steps;
mod summary;
mod sync_workflows;
mod take_over;
mod template_status;
mod ticketing_b;
mod usage;
pub(super) mod why;

use super::routing::Route;

/// Routes of the admin API.
pub(crate) fn routes() -> Vec<Route> {
    [
        auth::routes(),
        audit::routes(),
        mappings::routes(),
        choices::routes(),
        sync_workflows::routes(),
        log::routes(),
        jobs::routes(),
        job_control::routes(),
        conversation::routes(),
        take_over::routes(),
        steps::routes(),
        run_log::routes(),
        evidence::routes(),
        run_details::routes(),
        issues::routes(),
        incidents::routes(),
        blockers::routes(),
        usage::routes(),
        summary::routes(),
        scoreboard::routes(),
        why::routes(),
        parked::routes(),
        dedup::routes(),
        outbox::routes(),
        poll::routes(),
        pulls::routes(),
        ticketing_b::routes(),
        config_status::routes(),
        connections::routes(),
        runner_mode::routes(),
        secrets::routes(),
        settings::routes(),
        projects_file::routes(),
        sessions::routes(),
        reaper::routes(),
        customizations::routes(),
        pipelines_steps::routes(),
        template_status::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
