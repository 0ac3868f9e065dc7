//! `/api/audit`: who did what, and whether the record of it is whole.

use warp::http::Method;
use warp::{Filter, path};

use super::paging::{self, QueryParams, invalid};
use crate::routing::{
    ApiResult, Routes, ok, one_of, reject_other_methods, require_admin, with_app,
};
use engine::app::App;
use store::audit;

/// How many entries are shown when nobody says how many.
const DEFAULT_LIMIT: usize = 100;

/// Routes of `/api/audit`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "audit").boxed();
    let verify = path!("api" / "audit" / "verify").boxed();
    let get = require_admin(app, Method::GET);
    one_of([
        all.clone()
            .and(get.clone())
            .and(warp::query::<QueryParams>())
            .and(with_app(app))
            .then(list)
            .boxed(),
        verify
            .clone()
            .and(get)
            .and(warp::query::<QueryParams>())
            .and(with_app(app))
            .then(check)
            .boxed(),
        reject_other_methods(&all, [Method::GET]),
        reject_other_methods(&verify, [Method::GET]),
    ])
}

/// The latest entries, or those before a number. A number that is none is refused: answered with the
/// latest, who reads page by page would never end.
async fn list(query: QueryParams, app: App) -> ApiResult {
    let limit = paging::parse_limit(&query, DEFAULT_LIMIT)?;
    let before = match query.get("before") {
        None => None,
        Some(given) => {
            let seq = given.parse::<u64>();
            Some(seq.map_err(|_| invalid("before must be the seq of an entry"))?)
        }
    };
    let entries = app
        .store
        .read_long(move |tx| audit::latest(tx, before, limit));
    Ok(ok(&entries.await?))
}

/// Looks at every entry. `head` is a hash that was noted earlier, and must be among them.
async fn check(query: QueryParams, app: App) -> ApiResult {
    let anchor = query.get("head").cloned();
    let verdict = app
        .store
        .read_long(move |tx| audit::verify(tx, anchor.as_deref()));
    Ok(ok(&verdict.await?))
}
