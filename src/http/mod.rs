//! FLOOR 6: what is asked of us over HTTP.
//!
//! Here is the route table; each resource has a file named as its path. Handlers read the request,
//! ask the floors below and shape the answer; no rule of the product is decided here, and no error
//! status stands outside of [`error`].

mod admin;
mod error;
mod events;
mod health;
mod hooks;
mod listen;
mod panel;
mod parts;
mod runner;
mod session;
mod ticketing_hooks;
mod trigger;

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use crate::app::App;

pub use listen::serve;

/// Every route there is. The busiest come first.
pub fn routes(app: &App) -> BoxedFilter<(Response,)> {
    let mut all = vec![
        runner::routes(app),
        hooks::routes(app),
        ticketing_hooks::routes(app),
        health::routes(app),
        session::routes(app),
        trigger::routes(app),
    ];
    if app.config.admin_access_code.is_some() {
        all.push(admin::routes(app));
        all.push(events::routes(app));
        all.push(panel::routes());
    }
    parts::one_of(all)
        .map(parts::reply)
        .recover(error::recover)
        .unify()
        .map(parts::dressed)
        .boxed()
}
