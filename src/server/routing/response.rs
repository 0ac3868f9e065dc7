//! Responses of handlers.

use bytes::Bytes;
use serde::Serialize;
use warp::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use warp::http::{StatusCode, Uri};
use warp::reply::{Reply, Response};

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
pub(crate) fn attachment(name: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    warp::reply::with_header(plain_text(text), CONTENT_DISPOSITION, disposition).into_response()
}

/// Builds a 200 response with a plain text.
pub(crate) fn plain_text(text: String) -> Response {
    warp::reply::with_header(text, CONTENT_TYPE, "text/plain; charset=utf-8").into_response()
}

/// Builds a 200 response with bytes of any kind.
pub(crate) fn binary(content: Vec<u8>) -> Response {
    let kind = "application/octet-stream";
    warp::reply::with_header(content, CONTENT_TYPE, kind).into_response()
}

/// Builds a 202 response with a JSON body: accepted, not completed yet.
pub(crate) fn accepted(body: &impl Serialize) -> Response {
    let mut response = ok(body);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

const CONTENT_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

const SECURITY_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(CONTENT_POLICY),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Lets the page of a response send forms to another address, too. Only its origin counts.
pub(crate) fn allow_forms_to(mut response: Response, address: &str) -> Response {
    let uri = address.parse::<Uri>().ok();
    let origin = uri.and_then(|uri| Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?)));
    let policy = origin.and_then(|origin| {
        let policy = CONTENT_POLICY.replace(
            "form-action 'self'",
            &format!("form-action 'self' {origin}"),
        );
        HeaderValue::from_str(&policy).ok()
    });
    if let Some(policy) = policy {
        response
            .headers_mut()
            .insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Adds the security headers, and `Cache-Control: no-store`, unless the response sets them itself.
pub(crate) fn with_default_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.entry(name).or_insert(value);
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
