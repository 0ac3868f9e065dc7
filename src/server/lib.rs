//! FLOOR 6: what is asked of us over HTTP.
//!
//! Here is the route table; each resource has a file named as its path. Handlers read the request,
//! ask the floors below and shape the answer; no rule of the product is decided here, and no error
//! status stands outside of [`error`].

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

/// Every route that the network has. The busiest come first.
pub fn routes(app: &App) -> BoxedFilter<(Response,)> {
    let mut all = for_anybody(app);
    if app.config.admin_access_code.is_some() {
        all.extend(for_operators(app));
    }
    answering(all)
}

/// Every route of the control socket: all that the network may have, whether an access code is set or
/// not, and what only the owner of the data directory may ask for.
pub fn control_routes(app: &App) -> BoxedFilter<(Response,)> {
    let mut all = for_anybody(app);
    all.extend(for_operators(app));
    all.push(backup::routes(app));
    answering(all)
}

fn for_anybody(app: &App) -> Vec<Routes> {
    let mut all = vec![
        runner::routes(app),
        repo_host_webhook::routes(app),
        ticketing_webhooks::routes(app),
        health::routes(app),
        session::routes(app),
        trigger::routes(app),
    ];
    if app.config.metrics.enabled {
        all.push(metrics::routes(app));
    }
    all
}

fn for_operators(app: &App) -> Vec<Routes> {
    vec![
        admin::routes(app),
        events::routes(app),
        openapi::routes(),
        panel::routes(),
    ]
}

fn answering(all: Vec<Routes>) -> BoxedFilter<(Response,)> {
    routing::one_of(all)
        .map(routing::reply)
        .recover(error::recover)
        .unify()
        .map(routing::with_default_headers)
        .boxed()
}
