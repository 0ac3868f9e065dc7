//! The pieces that routes are made of.
//!
//! Each is boxed, so that `and` of two of them is compiled once however many routes there are.
//! What refuses a request while it is being routed rejects with [`Refused`](super::error::Refused);
//! everything later is an [`ApiError`] of the handler.

use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use warp::filters::BoxedFilter;
use warp::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use warp::http::{Method, StatusCode};
use warp::reject::Rejection;
use warp::reply::{Reply, Response};
use warp::{Filter, reject};

pub use super::body::{MAX_BODY, MAX_WEBHOOK_BODY, body};
pub use super::client_identity::client_ip;
use super::error::{AdminApiError, ApiError, RunnerApiError};
use domain::audit::Actor;
use domain::crypto::admin_token;
use domain::crypto::run_token::{RunClaims, TokenAudience};
use domain::crypto::signature::bearer_token;
use domain::ids::JobId;
use engine::app::App;
use store::{StoreResult, admin_tokens};

/// What a handler answers.
pub type ApiResult = Result<Response, ApiError>;

/// One route or many.
pub type Routes = BoxedFilter<(ApiResult,)>;

/// The other end of the connection. The listener says who it is; nothing in a request can.
#[derive(Debug, Clone, Copy)]
pub enum Peer {
    /// Somebody on the network, who must prove who they are.
    Network(SocketAddr),
    /// Whoever could open the control socket: the service's own user, or root.
    ControlSocket,
}

/// Who asks, as far as it is known before any token is looked up.
#[derive(Debug, Clone, Default)]
pub struct RequestAuth {
    is_owner: bool,
    authorization: Option<String>,
}

impl RequestAuth {
    /// Somebody on the network with this Authorization header.
    pub fn with_authorization(authorization: &str) -> Self {
        Self {
            is_owner: false,
            authorization: Some(authorization.to_owned()),
        }
    }
}

/// The first of the routes that takes the request. What is first is found first: each costs only those
/// before it.
pub fn one_of<R>(routes: R) -> Routes
where
    R: IntoIterator<Item = Routes, IntoIter: DoubleEndedIterator>,
{
    routes
        .into_iter()
        .rev()
        .reduce(|rest, one| one.or(rest).unify().boxed())
        .unwrap_or_else(nothing)
}

fn nothing() -> Routes {
    warp::any()
        .and_then(|| ready(Err::<ApiResult, Rejection>(reject::not_found())))
        .boxed()
}

/// The engine's handles, as the last argument of a handler.
pub fn with_app(app: &App) -> BoxedFilter<(App,)> {
    let app = app.clone();
    warp::any().map(move || app.clone()).boxed()
}

/// Requests of this method.
pub fn method(wanted: Method) -> BoxedFilter<()> {
    warp::method()
        .and_then(move |method: Method| {
            ready(if method == wanted {
                Ok(())
            } else {
                Err(reject::not_found())
            })
        })
        .untuple_one()
        .boxed()
}

/// Answers every other method on a path: 405, with those it has.
pub fn reject_other_methods(path: &BoxedFilter<()>, allowed: impl Into<Vec<Method>>) -> Routes {
    let allowed = allowed.into();
    path.clone()
        .and(warp::method())
        .and_then(move |method: Method| {
            ready(if allowed.contains(&method) {
                Err(reject::not_found())
            } else {
                Ok(Err(ApiError::method_not_allowed(&allowed)))
            })
        })
        .boxed()
}

/// A path without what stands in its parameter.
pub fn without_param(path: &BoxedFilter<(PathSegment,)>) -> BoxedFilter<()> {
    path.clone().map(|_| ()).untuple_one().boxed()
}

/// One segment of a path, its percent signs decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSegment(pub String);

impl FromStr for PathSegment {
    type Err = ();

    fn from_str(raw: &str) -> Result<Self, ()> {
        let decoded = percent_decoded(raw.as_bytes()).ok_or(())?;
        let text = String::from_utf8(decoded).map_err(|_| ())?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(());
        }
        Ok(Self(text))
    }
}

fn percent_decoded(raw: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        decoded.extend(data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()?);
        rest = after;
    }
    Some(decoded)
}

/// A field of a form's body.
pub fn form_field(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut pairs = body.split(|byte| *byte == b'&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    let spaced: Vec<u8> = value
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decoded(&spaced)
}

/// Reads a body as JSON; None when it is none.
pub fn parse_json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

/// 200 with a JSON body.
pub fn ok(body: &impl Serialize) -> Response {
    warp::reply::json(body).into_response()
}

/// 200 with a body that is JSON already.
pub fn json_text(text: Bytes) -> Response {
    let json = "application/json";
    warp::reply::with_header(Response::new(text.into()), CONTENT_TYPE, json).into_response()
}

/// 200 with a text that is kept as a file.
pub fn attachment(name: &'static str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    let reply = warp::reply::with_header(text, CONTENT_TYPE, "text/plain; charset=utf-8");
    warp::reply::with_header(reply, CONTENT_DISPOSITION, disposition).into_response()
}

/// 202 with a JSON body: noted, not done yet.
pub fn accepted(body: &impl Serialize) -> Response {
    let mut response = ok(body);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The Authorization header; None without one, or with one that is no text.
pub fn authorization() -> BoxedFilter<(Option<String>,)> {
    warp::header::headers_cloned()
        .map(|headers: HeaderMap| {
            let value = headers.get(AUTHORIZATION)?;
            value.to_str().ok().map(str::to_owned)
        })
        .boxed()
}

/// Whose run token of this audience the request carries.
pub fn run_token(app: &App, audience: TokenAudience) -> BoxedFilter<(RunClaims,)> {
    let app = app.clone();
    authorization()
        .and_then(move |header: Option<String>| {
            let claims = verify_run_token(&app, header.as_deref(), audience);
            if let Ok(claims) = &claims {
                record_job_id(&claims.job);
            }
            ready(claims.map_err(|fault| Rejection::from(ApiError::from(fault))))
        })
        .boxed()
}

/// Every line about this request names the job that it is for.
pub fn record_job_id(job: &JobId) {
    tracing::Span::current().record("job_id", job.as_str());
}

/// Checks a run's Authorization header.
///
/// # Errors
/// The first fault in the order of the wire: no secret, no bearer, a bad token.
pub fn verify_run_token(
    app: &App,
    header: Option<&str>,
    audience: TokenAudience,
) -> Result<RunClaims, RunnerApiError> {
    let tokens = app
        .run_tokens
        .as_ref()
        .ok_or(RunnerApiError::NotConfigured)?;
    let token = header
        .and_then(bearer_token)
        .ok_or(RunnerApiError::MissingBearer)?;
    tokens
        .verify(token, audience, app.now())
        .map_err(RunnerApiError::Token)
}

/// Requests of this method by somebody who is signed in.
pub fn require_admin(app: &App, wanted: Method) -> BoxedFilter<()> {
    let app = app.clone();
    method(wanted)
        .and(request_auth())
        .and_then(move |caller: RequestAuth| ready(check_admin(&app, &caller)))
        .untuple_one()
        .boxed()
}

/// Who asks.
pub fn request_auth() -> BoxedFilter<(RequestAuth,)> {
    warp::ext::optional::<Peer>()
        .and(authorization())
        .map(|peer: Option<Peer>, authorization| RequestAuth {
            is_owner: matches!(peer, Some(Peer::ControlSocket)),
            authorization,
        })
        .boxed()
}

fn check_admin(app: &App, caller: &RequestAuth) -> Result<(), Rejection> {
    match is_admin(app, caller) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ApiError::from(AdminApiError::Unauthorized).into()),
        Err(error) => Err(ApiError::from(error).into()),
    }
}

/// Whether it is the owner, or brings the token of somebody who is signed in.
pub fn is_admin(app: &App, caller: &RequestAuth) -> StoreResult<bool> {
    if caller.is_owner {
        return Ok(true);
    }
    let token = caller.authorization.as_deref().and_then(bearer_token);
    let Some(hashed) = token.and_then(|token| hash_admin_token(app, token)) else {
        return Ok(false);
    };
    let known = app.store.read(|tx| admin_tokens::get(tx, &hashed))?;
    Ok(known.is_some_and(|known| known.expires_at > app.now()))
}

/// What is stored of the token of somebody who is signed in; none without an access code to sign in with.
pub fn hash_admin_token(app: &App, token: &str) -> Option<String> {
    let code = app.config.admin_access_code.as_ref()?;
    Some(admin_token::hash_token(token, code))
}

/// The operator whose request it is, as the audit names them.
pub fn operator(app: &App) -> BoxedFilter<(Actor,)> {
    warp::ext::optional::<Peer>()
        .and(client_ip(app))
        .map(|peer: Option<Peer>, address: IpAddr| match peer {
            Some(Peer::ControlSocket) => Actor::owner(),
            Some(Peer::Network(_)) | None => Actor::admin(address),
        })
        .boxed()
}

const SECURITY: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Puts the headers on that every reply carries. Nothing is cached that does not say it may be.
pub fn with_default_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(name, value);
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Looks at files where waiting for a disk holds nobody up; `shown` is where, for an error.
pub async fn run_blocking<T: Send + 'static>(
    shown: &str,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let looked = tokio::task::spawn_blocking(look).await;
    let looked = looked.map_err(|_| ApiError::internal())?;
    looked.map_err(|error| AdminApiError::FilesUnreadable(format!("{shown}: {error}")).into())
}

/// The reply of a route.
pub fn reply(result: ApiResult) -> Response {
    result.unwrap_or_else(Reply::into_response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_or_refused() {
        let read = |raw: &str| raw.parse().ok().map(|PathSegment(text)| text);
        assert_eq!(read("ENG"), Some("ENG".to_owned()));
        assert_eq!(read("EN%47%2d4"), Some("ENG-4".to_owned()));
        assert_eq!(read("a%2Fb%C3%A4"), Some("a/bä".to_owned()));
        for bad in ["%", "%4", "%zz", "%ff", "a%00", "%0a"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
