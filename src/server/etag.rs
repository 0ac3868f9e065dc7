//! Weak ETags, and `304 Not Modified` for contents that a client already has.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::BodyExt;
use hyper::body::Body;
use ring::digest::{SHA256, digest};
use warp::http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use warp::http::{Method, StatusCode};
use warp::reply::{Reply, Response};

/// Minimum size of a JSON body with an ETag, in bytes. A smaller one costs no more than the response without it.
const MIN_SIZE: u64 = 1024;

/// Weak ETag of contents. It is the same for all encodings.
pub(crate) fn weak(contents: &[u8]) -> Option<HeaderValue> {
    let hash = HEXLOWER.encode(&digest(&SHA256, contents).as_ref()[..12]);
    HeaderValue::from_str(&format!("W/\"{hash}\"")).ok()
}

/// Whether a request names this ETag as one that the client has.
pub(crate) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let known = headers.get(IF_NONE_MATCH);
    let known = known.and_then(|known| known.to_str().ok());
    let (Some(known), Ok(etag)) = (known, etag.to_str()) else {
        return false;
    };
    let strong = etag.trim_start_matches("W/");
    known
        .split(',')
        .any(|known| known.trim().trim_start_matches("W/") == strong || known.trim() == "*")
}

/// Condition of a request that reads: the ETags that its client has.
pub(crate) struct Condition {
    /// Headers of a `GET`; `None` for other methods.
    headers: Option<HeaderMap>,
}

impl Condition {
    /// Reads the condition of a request.
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Self {
        let mut kept = HeaderMap::new();
        for value in headers.get_all(IF_NONE_MATCH) {
            kept.append(IF_NONE_MATCH, value.clone());
        }
        Self {
            headers: (*method == Method::GET).then_some(kept),
        }
    }

    /// Adds an ETag to JSON, or replaces the response by `304 Not Modified` if the client has it.
    ///
    /// Lists are polled, and most of the time nothing has changed. Responses with an ETag of their own and
    /// streams are left as they are.
    pub(crate) async fn apply(self, response: Response) -> Response {
        let kind = response.headers().get(CONTENT_TYPE);
        let is_json = kind.is_some_and(|kind| kind == "application/json");
        let size = response.body().size_hint().exact();
        let Some(headers) = self.headers else {
            return response;
        };
        if !is_json
            || response.status() != StatusCode::OK
            || response.headers().contains_key(ETAG)
            || size.is_none_or(|size| size < MIN_SIZE)
        {
            return response;
        }
        let (mut head, body) = response.into_parts();
        // The body is in memory, so this neither waits nor fails.
        let Ok(body) = body.collect().await else {
            return Response::from_parts(head, Bytes::new().into());
        };
        let contents = body.to_bytes();
        let Some(etag) = weak(&contents) else {
            return Response::from_parts(head, contents.into());
        };
        if is_known(&headers, &etag) {
            let mut unchanged = StatusCode::NOT_MODIFIED.into_response();
            unchanged.headers_mut().insert(ETAG, etag);
            return unchanged;
        }
        head.headers.insert(ETAG, etag);
        Response::from_parts(head, contents.into())
    }
}
