//! Files that are part of the executable. They are compressed once.

use bytes::Bytes;
use flate2::Compression;
use warp::http::StatusCode;
use warp::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, VARY,
};
use warp::reply::{Reply, Response};

use super::{etag, gzip};

/// File that is part of the executable.
pub(crate) struct StaticFile {
    content_type: &'static str,
    /// Weak ETag, because it is the same for both encodings.
    etag: HeaderValue,
    plain: Bytes,
    /// Compressed contents; `None` if they would not be smaller.
    gzip: Option<Bytes>,
}

impl StaticFile {
    /// Creates a file; `None` if its ETag cannot be built.
    pub(crate) fn new(content_type: &'static str, contents: Bytes) -> Option<Self> {
        Some(Self {
            content_type,
            etag: etag::weak(&contents)?,
            gzip: gzip::compress(&contents, Compression::best()),
            plain: contents,
        })
    }

    /// Builds the response to a request with these headers.
    pub(crate) fn response(&self, headers: &HeaderMap) -> Response {
        if etag::is_known(headers, &self.etag) {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            self.add_headers(&mut response);
            return response;
        }
        let gzip = self.gzip.as_ref();
        let gzip = gzip.filter(|_| gzip::is_accepted(headers));
        let mut response = Response::new(gzip.unwrap_or(&self.plain).clone().into());
        if gzip.is_some() {
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        self.add_headers(&mut response);
        response
    }

    fn add_headers(&self, response: &mut Response) {
        let text = HeaderValue::from_static;
        let headers: [(HeaderName, HeaderValue); 4] = [
            (CONTENT_TYPE, text(self.content_type)),
            (ETAG, self.etag.clone()),
            (VARY, text("accept-encoding")),
            (CACHE_CONTROL, text("no-cache")),
        ];
        response.headers_mut().extend(headers);
    }
}
