//! `/admin`: the panel, out of this very program.
//!
//! Every path below `/admin/assets/` is a file; every other one is a view that the page finds by
//! itself. Files are named alike in every version, so browsers keep them and ask each time whether
//! they are still good.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use include_dir::{Dir, include_dir};
use ring::digest::{SHA256, digest};
use warp::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, VARY,
};
use warp::http::{Method, StatusCode};
use warp::path::Tail;
use warp::reply::{Reply, Response};
use warp::{Filter, path};

use super::error::ApiError;
use super::routing::{ApiResult, Routes, method, one_of, reject_other_methods};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../assets");

/// Compressed once, when the first page is asked for.
static ASSETS: LazyLock<BTreeMap<String, Asset>> = LazyLock::new(|| {
    let mut assets = BTreeMap::new();
    collect(&FILES, &mut assets);
    assets
});

const PAGE: &str = "index.html";

/// Routes of `/admin`.
pub fn routes() -> Routes {
    let below = path("admin").and(path::tail()).boxed();
    let any = below.clone().map(|_| ()).untuple_one().boxed();
    one_of([
        below
            .and(method(Method::GET))
            .and(warp::header::headers_cloned())
            .then(show)
            .boxed(),
        reject_other_methods(&any, [Method::GET]),
    ])
}

async fn show(tail: Tail, headers: HeaderMap) -> ApiResult {
    let name = tail.as_str().strip_prefix("assets/").unwrap_or(PAGE);
    let asset = ASSETS.get(name).ok_or_else(ApiError::not_found)?;
    Ok(asset.answer(&headers))
}

struct Asset {
    kind: &'static str,
    /// Weak: it stands for both encodings.
    tag: HeaderValue,
    plain: Bytes,
    /// None where it would be no smaller.
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
    /// None for a file of a kind that no page asks for.
    fn new(name: &str, contents: &'static [u8]) -> Option<Self> {
        let kind = match name.rsplit_once('.')?.1 {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => return None,
        };
        let hash = HEXLOWER.encode(&digest(&SHA256, contents).as_ref()[..12]);
        Some(Self {
            kind,
            tag: HeaderValue::from_str(&format!("W/\"{hash}\"")).ok()?,
            plain: Bytes::from_static(contents),
            gzip: compressed(contents).filter(|gzip| gzip.len() < contents.len()),
        })
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        if is_known(asked, &self.tag) {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            self.dress(&mut response);
            return response;
        }
        let gzip = self.gzip.as_ref().filter(|_| takes_gzip(asked));
        let mut response = Response::new(gzip.unwrap_or(&self.plain).clone().into());
        if gzip.is_some() {
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        self.dress(&mut response);
        response
    }

    fn dress(&self, response: &mut Response) {
        let text = HeaderValue::from_static;
        let headers: [(HeaderName, HeaderValue); 4] = [
            (CONTENT_TYPE, text(self.kind)),
            (ETAG, self.tag.clone()),
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

fn is_known(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let (Some(known), Ok(tag)) = (words(asked, &IF_NONE_MATCH), tag.to_str()) else {
        return false;
    };
    let strong = tag.trim_start_matches("W/");
    known
        .split(',')
        .any(|known| known.trim().trim_start_matches("W/") == strong || known.trim() == "*")
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    let codings = words(asked, &ACCEPT_ENCODING).unwrap_or_default();
    codings.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = quality.trim().trim_start_matches("q=").parse() == Ok(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_takes_gzip_is_sent_gzip() {
        let rows = [
            ("gzip, deflate, br", true),
            ("br;q=1.0, gzip;q=0.8", true),
            ("GZIP", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ];
        for (accepted, taken) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, accepted.parse().unwrap());
            assert_eq!(takes_gzip(&headers), taken, "{accepted}");
        }
    }
}
