//! HTTP requests and responses as the fake vendors handle them: complete bodies, plain strings.
//!
//! Vendors are synchronous code: they lock, write files and run git. The server calls them on the
//! blocking thread pool, so nothing in this module is async.

use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::Value;

/// HTTP request, with the vendor's prefix removed from its path.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub method: String,
    /// Percent-encoded path below the vendor's prefix, without the query.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpRequest {
    /// Returns the path segments. Each is percent-decoded separately, so an encoded slash does not
    /// split its segment.
    pub(crate) fn segments(&self) -> Vec<String> {
        self.path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(percent_decode)
            .collect()
    }

    pub(crate) fn query_param(&self, name: &str) -> Option<String> {
        form_value(&self.query, name)
    }

    /// Returns a field of a posted form.
    pub(crate) fn form_param(&self, name: &str) -> Option<String> {
        form_value(std::str::from_utf8(&self.body).ok()?, name)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Parses the body as JSON. An empty body is an empty object, as at the vendors.
    pub(crate) fn json(&self) -> Option<Value> {
        if self.body.is_empty() {
            return Some(Value::Object(serde_json::Map::new()));
        }
        serde_json::from_slice(&self.body).ok()
    }
}

/// Value of a field in an encoded form or query.
fn form_value(encoded: &str, name: &str) -> Option<String> {
    encoded.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(key) == name).then(|| percent_decode(&value.replace('+', " ")))
    })
}

/// HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl HttpResponse {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into(),
        }
    }

    pub(crate) fn json(status: u16, value: &Value) -> Self {
        Self::new(status, "application/json; charset=utf-8", value.to_string())
    }

    pub(crate) fn text(status: u16, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.into())
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes characters that are special in a query value.
pub(crate) fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'/' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
