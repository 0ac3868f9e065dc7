//! Building blocks of routes: filters, parameters and responses.
//!
//! Filters are boxed, so that `and` is compiled once for all routes. A filter that rejects a request uses
//! [`ApiRejection`](super::error::ApiRejection); later errors are an [`ApiError`] of the handler.

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

pub(crate) use super::body::{MAX_BODY, MAX_WEBHOOK_BODY, body};
pub(crate) use super::client_identity::client_ip;
use super::error::{AdminApiError, ApiError, RunnerApiError};
use domain::audit::Actor;
use domain::crypto::run_token::{RunClaims, TokenAudience};
use domain::crypto::signature::bearer_token;
use domain::ids::JobId;
use engine::admin::sign_in;
use engine::app::App;
use store::StoreResult;

/// Result of a handler.
pub(crate) type ApiResult = Result<Response, ApiError>;

/// One or more routes.
pub(crate) type Routes = BoxedFilter<(ApiResult,)>;

/// Remote end of a connection. Set by the listener; no request can set it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Network client, which must authenticate.
    Network(SocketAddr),
    /// Client of the control socket: the user of the service, or root.
    ControlSocket,
}

/// Credentials of a request, not verified yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAuth {
    is_owner: bool,
    authorization: Option<String>,
}

impl RequestAuth {
    /// Creates the credentials of a network client with this Authorization header.
    pub(crate) fn with_authorization(authorization: &str) -> Self {
        Self {
            is_owner: false,
            authorization: Some(authorization.to_owned()),
        }
    }
}

/// Combines routes. They are tried in order, so the most frequent should come first.
pub(crate) fn one_of<R>(routes: R) -> Routes
where
    R: IntoIterator<Item = Routes, IntoIter: DoubleEndedIterator>,
{
    routes
        .into_iter()
        .rev()
        .reduce(|rest, route| route.or(rest).unify().boxed())
        .unwrap_or_else(no_routes)
}

fn no_routes() -> Routes {
    warp::any()
        .and_then(|| ready(Err::<ApiResult, Rejection>(reject::not_found())))
        .boxed()
}

/// Passes the application state to a handler, as its last argument.
pub(crate) fn with_app(app: &App) -> BoxedFilter<(App,)> {
    let app = app.clone();
    warp::any().map(move || app.clone()).boxed()
}

/// Matches requests of one method.
pub(crate) fn method(expected: Method) -> BoxedFilter<()> {
    warp::method()
        .and_then(move |method: Method| {
            ready(if method == expected {
                Ok(())
            } else {
                Err(reject::not_found())
            })
        })
        .untuple_one()
        .boxed()
}

/// Responds 405 with an `Allow` header to all other methods of a path.
pub(crate) fn reject_other_methods(
    path: &BoxedFilter<()>,
    allowed: impl Into<Vec<Method>>,
) -> Routes {
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

/// Matches a path with one parameter and drops the parameter.
pub(crate) fn without_param(path: &BoxedFilter<(PathSegment,)>) -> BoxedFilter<()> {
    path.clone().map(|_| ()).untuple_one().boxed()
}

/// Percent-decoded path segment. Empty segments and control characters are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathSegment(pub String);

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

/// Returns the decoded value of a field of a URL-encoded form.
pub(crate) fn form_field(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut pairs = body.split(|byte| *byte == b'&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    let unescaped: Vec<u8> = value
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decoded(&unescaped)
}

/// Parses a body as JSON; `None` if it is invalid.
pub(crate) fn parse_json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

/// Builds a 200 response with a JSON body.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    warp::reply::json(body).into_response()
}

/// Builds a 200 response from serialized JSON.
pub(crate) fn json_text(text: Bytes) -> Response {
    let json = "application/json";
    warp::reply::with_header(Response::new(text.into()), CONTENT_TYPE, json).into_response()
}

/// Builds a 200 response that browsers save as a text file.
pub(crate) fn attachment(name: &'static str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    let reply = warp::reply::with_header(text, CONTENT_TYPE, "text/plain; charset=utf-8");
    warp::reply::with_header(reply, CONTENT_DISPOSITION, disposition).into_response()
}

/// Builds a 202 response with a JSON body: accepted, not completed yet.
pub(crate) fn accepted(body: &impl Serialize) -> Response {
    let mut response = ok(body);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Extracts the Authorization header; `None` if it is missing or not text.
pub(crate) fn authorization() -> BoxedFilter<(Option<String>,)> {
    warp::header::headers_cloned()
        .map(|headers: HeaderMap| {
            let value = headers.get(AUTHORIZATION)?;
            value.to_str().ok().map(str::to_owned)
        })
        .boxed()
}

/// Verifies the run token of a request and extracts its claims.
pub(crate) fn run_token(app: &App, audience: TokenAudience) -> BoxedFilter<(RunClaims,)> {
    let app = app.clone();
    authorization()
        .and_then(move |header: Option<String>| {
            let claims = verify_run_token(&app, header.as_deref(), audience);
            if let Ok(claims) = &claims {
                record_job_id(&claims.job);
            }
            ready(claims.map_err(|error| Rejection::from(ApiError::from(error))))
        })
        .boxed()
}

/// Adds the job id to all log lines of the current request.
pub(crate) fn record_job_id(job: &JobId) {
    tracing::Span::current().record("job_id", job.as_str());
}

/// Verifies the Authorization header of a run.
///
/// # Errors
/// In this order: `RUNNER_TOKEN_SECRET` not set, no bearer token, invalid token.
pub(crate) fn verify_run_token(
    app: &App,
    header: Option<&str>,
    audience: TokenAudience,
) -> Result<RunClaims, RunnerApiError> {
    let tokens = app
        .secrets
        .run_tokens
        .as_ref()
        .ok_or(RunnerApiError::NotConfigured)?;
    let token = header
        .and_then(bearer_token)
        .ok_or(RunnerApiError::MissingBearer)?;
    tokens
        .verify(token, audience, app.core.now())
        .map_err(RunnerApiError::Token)
}

/// Matches requests of one method that come with a valid admin token or from the control socket.
pub(crate) fn require_admin(app: &App, expected: Method) -> BoxedFilter<()> {
    let app = app.clone();
    method(expected)
        .and(request_auth())
        .and_then(move |auth: RequestAuth| ready(check_admin(&app, &auth)))
        .untuple_one()
        .boxed()
}

/// Extracts the credentials of a request.
pub(crate) fn request_auth() -> BoxedFilter<(RequestAuth,)> {
    warp::ext::optional::<Peer>()
        .and(authorization())
        .map(|peer: Option<Peer>, authorization| RequestAuth {
            is_owner: matches!(peer, Some(Peer::ControlSocket)),
            authorization,
        })
        .boxed()
}

fn check_admin(app: &App, auth: &RequestAuth) -> Result<(), Rejection> {
    match is_admin(app, auth) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ApiError::from(AdminApiError::Unauthorized).into()),
        Err(error) => Err(ApiError::from(error).into()),
    }
}

/// Whether the request comes from the control socket or has a valid admin token.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn is_admin(app: &App, auth: &RequestAuth) -> StoreResult<bool> {
    if auth.is_owner {
        return Ok(true);
    }
    match auth.authorization.as_deref().and_then(bearer_token) {
        Some(token) => sign_in::is_valid_token(app, token),
        None => Ok(false),
    }
}

/// Extracts the actor of a request for the audit log.
pub(crate) fn operator(app: &App) -> BoxedFilter<(Actor,)> {
    warp::ext::optional::<Peer>()
        .and(client_ip(app))
        .map(|peer: Option<Peer>, address: IpAddr| match peer {
            Some(Peer::ControlSocket) => Actor::owner(),
            Some(Peer::Network(_)) | None => Actor::admin(address),
        })
        .boxed()
}

const SECURITY_HEADERS: [(HeaderName, HeaderValue); 4] = [
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

/// Adds the security headers, and `Cache-Control: no-store` unless the response sets that header itself.
pub(crate) fn with_default_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, value);
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Runs file operations on a blocking thread. `path` is included in the error text.
///
/// # Errors
/// When the operation fails or panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    path: &str,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let result = tokio::task::spawn_blocking(operation).await;
    let result = result.map_err(|_| ApiError::internal())?;
    result.map_err(|error| AdminApiError::FilesUnreadable(format!("{path}: {error}")).into())
}

/// Converts the result of a handler into a response.
pub(crate) fn reply(result: ApiResult) -> Response {
    result.unwrap_or_else(Reply::into_response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_or_rejects_path_segments() {
        let parse = |raw: &str| raw.parse().ok().map(|PathSegment(text)| text);
        assert_eq!(parse("ENG"), Some("ENG".to_owned()));
        assert_eq!(parse("EN%47%2d4"), Some("ENG-4".to_owned()));
        assert_eq!(parse("a%2Fb%C3%A4"), Some("a/bä".to_owned()));
        for bad in ["%", "%4", "%zz", "%ff", "a%00", "%0a"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
