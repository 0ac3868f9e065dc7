//! `GET /metrics`: how the service does, for Prometheus.
//!
//! Who asks from this machine needs no token, unless the request says that it was passed on: a proxy
//! beside the service makes every stranger look local. Everybody else needs the operator's token.

mod exposition;
mod families;
pub(super) mod requests;

use warp::Filter;
use warp::http::Method;
use warp::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use warp::reply::Reply;

use super::error::AdminApiError;
use super::routing::{ApiResult, Peer, Routes, method, one_of, reject_other_methods, with_app};
use domain::crypto::signature::bearer_token_matches;
use engine::app::App;

/// What proxies write about whom they speak for.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Routes of `/metrics`.
pub fn routes(app: &App) -> Routes {
    let metrics = warp::path!("metrics").boxed();
    one_of([
        metrics
            .clone()
            .and(method(Method::GET))
            .and(warp::ext::optional::<Peer>())
            .and(warp::header::headers_cloned())
            .and(with_app(app))
            .then(show)
            .boxed(),
        reject_other_methods(&metrics, [Method::GET]),
    ])
}

async fn show(peer: Option<Peer>, headers: HeaderMap, app: App) -> ApiResult {
    if !is_local(peer, &headers) && !has_token(&app, &headers) {
        return Err(AdminApiError::Unauthorized.into());
    }
    let held = app.store.read_long(families::StoreSnapshot::read).await?;
    let text = families::render(&app, &held).into_text();
    Ok(warp::reply::with_header(text, CONTENT_TYPE, exposition::CONTENT_TYPE).into_response())
}

/// Whether the request comes from this machine, and not through a proxy on it.
fn is_local(peer: Option<Peer>, headers: &HeaderMap) -> bool {
    let is_here = match peer {
        Some(Peer::Network(address)) => address.ip().to_canonical().is_loopback(),
        Some(Peer::ControlSocket) => true,
        None => false,
    };
    is_here && !FORWARDED.iter().any(|name| headers.contains_key(*name))
}

fn has_token(app: &App, headers: &HeaderMap) -> bool {
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    match (given, &app.config.metrics.token) {
        (Some(given), Some(token)) => bearer_token_matches(given, token),
        _ => false,
    }
}
