//! `/admin`: the admin panel, embedded in the executable.
//!
//! Paths below `/admin/assets/` are files. All other paths return the page, which routes them itself.
//! File names do not change between versions, so browsers revalidate them with every request.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use include_dir::{Dir, include_dir};
use ring::digest::{SHA256, digest};
use warp::http::StatusCode;
use warp::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, VARY,
};
use warp::reply::{Reply, Response};

use super::error::ApiError;
use super::routing::{Access, ApiResult, PathSegment, Route};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../assets");

/// All assets by path, compressed once on the first request.
static ASSETS: LazyLock<BTreeMap<String, Asset>> = LazyLock::new(|| {
    let mut assets = BTreeMap::new();
    collect(&FILES, &mut assets);
    assets
});

const PAGE: &str = "index.html";

/// Routes of `/admin`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/admin/*", "panel", show)
            .access(Access::Public)
            .undescribed(),
    ]
}

async fn show(PathSegment(below): PathSegment, headers: HeaderMap) -> ApiResult {
    let name = below.strip_prefix("assets/").unwrap_or(PAGE);
    let asset = ASSETS.get(name).ok_or_else(ApiError::not_found)?;
    Ok(asset.response(&headers))
}

struct Asset {
    content_type: &'static str,
    /// Weak ETag, because it is the same for both encodings.
    etag: HeaderValue,
    plain: Bytes,
    /// Compressed contents; `None` if they would not be smaller.
    gzip: Option<Bytes>,
}

fn collect(dir: &'static Dir<'_>, assets: &mut BTreeMap<String, Asset>) {
    for file in dir.files() {
        let name = file.path().to_string_lossy().into_owned();
        if let Some(asset) = Asset::new(&name, file.contents()) {
            assets.insert(name, asset);
        }
    }
    for dir in dir.dirs() {
        collect(dir, assets);
    }
}

impl Asset {
    /// Creates an asset; `None` for a file type that the panel does not use.
    fn new(name: &str, contents: &'static [u8]) -> Option<Self> {
        let content_type = match name.rsplit_once('.')?.1 {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => return None,
        };
        let hash = HEXLOWER.encode(&digest(&SHA256, contents).as_ref()[..12]);
        Some(Self {
            content_type,
            etag: HeaderValue::from_str(&format!("W/\"{hash}\"")).ok()?,
            plain: Bytes::from_static(contents),
            gzip: compressed(contents).filter(|gzip| gzip.len() < contents.len()),
        })
    }

    fn response(&self, headers: &HeaderMap) -> Response {
        if matches_etag(headers, &self.etag) {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            self.add_headers(&mut response);
            return response;
        }
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(headers));
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

fn compressed(contents: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn matches_etag(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let (Some(known), Ok(etag)) = (header_text(headers, &IF_NONE_MATCH), etag.to_str()) else {
        return false;
    };
    let strong = etag.trim_start_matches("W/");
    known
        .split(',')
        .any(|known| known.trim().trim_start_matches("W/") == strong || known.trim() == "*")
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let codings = header_text(headers, &ACCEPT_ENCODING).unwrap_or_default();
    codings.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = quality.trim().trim_start_matches("q=").parse() == Ok(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_gzip_only_to_clients_that_accept_it() {
        let rows = [
            ("gzip, deflate, br", true),
            ("br;q=1.0, gzip;q=0.8", true),
            ("GZIP", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ];
        for (header, accepted) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, header.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), accepted, "{header}");
        }
    }
}
