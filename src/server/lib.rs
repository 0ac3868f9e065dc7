//! HTTP server: API, webhooks, metrics and admin panel.
//!
//! This file is the route table. Each resource has a module named like its path. Handlers parse the
//! request, call the engine or read the store, and build the response. Business rules are in the crates below;
//! error statuses are in `error` only.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod backup;
mod body;
mod body_memory;
mod client_identity;
mod connection_limit;
mod control_socket;
mod error;
mod events;
mod file_descriptors;
mod health;
mod listen;
mod metrics;
mod openapi;
mod panel;
mod repo_host_webhook;
mod routing;
mod runner;
mod session;
mod tarpit;
mod ticketing_webhooks;
mod trigger;
mod verified_senders;

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use engine::app::App;
use routing::Routes;

pub use admin::why::{IssueDecisionView, explain_issue as why};
pub use control_socket::{ControlSocket, control_socket_path as control_socket};
pub use file_descriptors::raise_descriptor_limit;
pub use listen::{bind, serve, serve_control};
pub use openapi::document;

/// Builds the routes of the network listener, busiest first. Admin routes exist only if an access code is
/// set.
pub fn routes(app: &App) -> BoxedFilter<(Response,)> {
    let mut all = common_routes(app);
    if app.core.config.admin_access_code.is_some() {
        all.extend(admin_routes(app));
    }
    with_error_handling(all)
}

/// Builds the routes of the control socket: all network routes including the admin routes, even if no
/// access code is set, and the backup.
pub fn control_routes(app: &App) -> BoxedFilter<(Response,)> {
    let mut all = common_routes(app);
    all.extend(admin_routes(app));
    all.push(backup::routes(app));
    with_error_handling(all)
}

fn common_routes(app: &App) -> Vec<Routes> {
    let mut all = vec![
        runner::routes(app),
        repo_host_webhook::routes(app),
        ticketing_webhooks::routes(app),
        health::routes(app),
        session::routes(app),
        trigger::routes(app),
    ];
    if app.core.config.metrics.enabled {
        all.push(metrics::routes(app));
    }
    all
}

fn admin_routes(app: &App) -> Vec<Routes> {
    vec![
        admin::routes(app),
        events::routes(app),
        openapi::routes(),
        panel::routes(),
    ]
}

fn with_error_handling(all: Vec<Routes>) -> BoxedFilter<(Response,)> {
    routing::one_of(all)
        .map(routing::reply)
        .recover(error::recover)
        .unify()
        .map(routing::with_default_headers)
        .boxed()
}
