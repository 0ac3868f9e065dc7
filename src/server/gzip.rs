//! gzip of responses, for clients that accept it.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::Semaphore;
use warp::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    VARY,
};
use warp::reply::Response;

/// Minimum size of a body that is compressed, in bytes. Smaller bodies fit into one packet anyway.
const MIN_SIZE: u64 = 1024;

/// Maximum size of a body that is compressed on the thread of its request, in bytes. It takes less than a
/// millisecond.
const MAX_INLINE_SIZE: usize = 32 << 10;

/// Places for the compression of larger bodies. They bound its memory and leave cores for other requests.
static LARGE_BODIES: Semaphore = Semaphore::const_new(2);

/// Whether a client accepts gzip.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings = texts
        .filter_map(|text| text.to_str().ok())
        .flat_map(|text| text.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = parameters.split(';').any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0)
        });
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Compresses contents; `None` if they would not be smaller.
pub(crate) fn compress(contents: &[u8], level: Compression) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(contents).ok()?;
    let compressed = encoder.finish().ok()?;
    (compressed.len() < contents.len()).then(|| compressed.into())
}

/// Compresses the body of a JSON response.
///
/// Streams are left as they are. So are responses with a strong ETag, because it names the exact bytes.
pub(crate) async fn compress_json(response: Response, is_accepted: bool) -> Response {
    let has_header = |name| response.headers().contains_key(name);
    let size = response.body().size_hint().exact();
    if !is_json(&response)
        || size.is_none_or(|size| size < MIN_SIZE)
        || has_header(CONTENT_ENCODING)
        || has_strong_etag(&response)
    {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let vary = HeaderValue::from_static("accept-encoding");
    head.headers.append(VARY, vary);
    if !is_accepted {
        return Response::from_parts(head, body);
    }
    // The body is in memory, so this neither waits nor fails.
    let Ok(body) = body.collect().await else {
        return Response::from_parts(head, Bytes::new().into());
    };
    let plain = body.to_bytes();
    let compressed = compress_off_thread(plain.clone()).await;
    if compressed.is_some() {
        let gzip = HeaderValue::from_static("gzip");
        head.headers.insert(CONTENT_ENCODING, gzip);
        head.headers.remove(CONTENT_LENGTH);
    }
    Response::from_parts(head, compressed.unwrap_or(plain).into())
}

/// Compresses a body fast. A large one would delay other requests, so a blocking thread compresses it.
async fn compress_off_thread(plain: Bytes) -> Option<Bytes> {
    if plain.len() <= MAX_INLINE_SIZE {
        return compress(&plain, Compression::fast());
    }
    let place = LARGE_BODIES.acquire().await.ok()?;
    let compressed = tasks::spawn_blocking(move || {
        let compressed = compress(&plain, Compression::fast());
        drop(place);
        compressed
    });
    compressed.await.ok().flatten()
}

fn has_strong_etag(response: &Response) -> bool {
    let etag = response.headers().get(ETAG);
    etag.is_some_and(|etag| !etag.as_bytes().starts_with(b"W/"))
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind == "application/json")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use futures_util::stream;
    use warp::reply::Reply;

    use super::*;
    use crate::routing::json_text;

    #[test]
    fn sends_gzip_only_to_clients_that_accept_it() {
        let rows = [
            (vec!["gzip, deflate, br"], true),
            (vec!["br;q=1.0, gzip;q=0.8"], true),
            (vec!["br", "gzip"], true),
            (vec!["GZIP"], true),
            (vec!["gzip;q=0"], false),
            (vec!["gzip ; Q = 0.000"], false),
            (vec!["identity"], false),
            (vec!["x-gzip2"], false),
            (vec![""], false),
            (vec![], false),
        ];
        for (sent, accepted) in rows {
            let mut headers = HeaderMap::new();
            for text in &sent {
                headers.append(ACCEPT_ENCODING, text.parse().unwrap());
            }
            assert_eq!(is_accepted(&headers), accepted, "{sent:?}");
        }
    }

    async fn body(response: Response) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn compresses_json_of_a_kibibyte_or_more() {
        for size in [
            MIN_SIZE as usize,
            MAX_INLINE_SIZE,
            MAX_INLINE_SIZE + 1,
            5 << 20,
        ] {
            let plain = Bytes::from("7".repeat(size));
            let response = compress_json(json_text(plain.clone()), true).await;
            assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
            assert_eq!(response.headers()[VARY], "accept-encoding");
            let mut unpacked = Vec::new();
            let packed = body(response).await;
            assert!(packed.len() < size / 10, "{} of {size}", packed.len());
            GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, plain);

            let response = compress_json(json_text(plain.clone()), false).await;
            assert!(!response.headers().contains_key(CONTENT_ENCODING));
            assert_eq!(response.headers()[VARY], "accept-encoding");
            assert_eq!(body(response).await, plain);
        }
    }

    #[tokio::test]
    async fn leaves_other_responses_as_they_are() {
        let long = Bytes::from("7".repeat(5000));
        let small = json_text(Bytes::from("7".repeat(MIN_SIZE as usize - 1)));
        let mut versioned = json_text(long.clone());
        let etag = HeaderValue::from_static("\"1\"");
        versioned.headers_mut().insert(ETAG, etag);
        let text = warp::reply::with_header("7".repeat(5000), CONTENT_TYPE, "text/plain");
        let chunks = stream::iter([Ok::<_, std::io::Error>(long)]);
        let stream = warp::reply::stream(chunks);
        let stream = warp::reply::with_header(stream, CONTENT_TYPE, "application/json");
        for response in [
            small,
            versioned,
            text.into_response(),
            stream.into_response(),
        ] {
            let response = compress_json(response, true).await;
            assert!(!response.headers().contains_key(CONTENT_ENCODING));
            assert!(!response.headers().contains_key(VARY));
            assert!(body(response).await.iter().all(|byte| *byte == b'7'));
        }
    }
}
