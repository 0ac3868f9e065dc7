//! `GET /metrics`: metrics for Prometheus.
//!
//! Requests from the same machine need no token, unless a header shows that a proxy forwarded them: behind a
//! proxy on the same machine, every request appears to be local. All other requests need `METRICS_TOKEN`.

mod exposition;
mod families;

use warp::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use warp::reply::Reply;

use super::error::AdminApiError;
use super::routing::{Access, ApiResult, Peer, Route};
use domain::crypto::signature::bearer_token_matches;
use engine::app::App;

/// Headers that proxies add to forwarded requests.
const FORWARDED_HEADERS: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Routes of `/metrics`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/metrics", "metrics", show).access(Access::Public)]
}

async fn show(peer: Peer, headers: HeaderMap, app: App) -> ApiResult {
    if !is_local(peer, &headers) && !has_token(&app, &headers) {
        return Err(AdminApiError::Unauthorized.into());
    }
    let snapshot = app
        .core
        .store()
        .read_long(families::StoreSnapshot::read)
        .await?;
    let text = families::render(&app, &snapshot).into_text();
    Ok(warp::reply::with_header(text, CONTENT_TYPE, exposition::CONTENT_TYPE).into_response())
}

/// Whether the request comes from this machine and was not forwarded by a proxy.
fn is_local(peer: Peer, headers: &HeaderMap) -> bool {
    let is_loopback = match peer {
        Peer::Network(address) => address.ip().to_canonical().is_loopback(),
        Peer::ControlSocket => true,
        Peer::RunSocket => false,
    };
    is_loopback
        && !FORWARDED_HEADERS
            .iter()
            .any(|name| headers.contains_key(*name))
}

fn has_token(app: &App, headers: &HeaderMap) -> bool {
    let header = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    match (header, &app.core.config.metrics.token) {
        (Some(header), Some(token)) => bearer_token_matches(header, token),
        _ => false,
    }
}
