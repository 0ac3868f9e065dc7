//! FLOOR 6: what is asked of us over HTTP.
//!
//! Here is the route table; each resource has a file named as its path. Handlers read the request,
//! ask the floors below and shape the answer; no rule of the product is decided here, and no error
//! status stands outside of [`error`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod backup;
mod body;
mod client;
mod control;
mod crowd;
mod descriptors;
mod error;
mod events;
mod health;
mod hooks;
mod listen;
mod metrics;
mod openapi;
mod panel;
mod parts;
mod room;
mod runner;
mod session;
mod signers;
mod tarpit;
mod ticketing_hooks;
mod trigger;

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use engine::app::App;
use parts::Routes;

pub use admin::why::{WhyView, look as why};
pub use control::{Control, reachable as control_socket};
pub use descriptors::raise_descriptor_limit;
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
        hooks::routes(app),
        ticketing_hooks::routes(app),
        health::routes(app),
        session::routes(app),
        trigger::routes(app),
    ];
    if app.config.metrics.on {
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
    parts::one_of(all)
        .map(parts::reply)
        .recover(error::recover)
        .unify()
        .map(parts::dressed)
        .boxed()
}
