//! Files that people attach to tickets, with the ways in which a server misbehaves. Kept in memory only.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::clock;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::lock;

/// Response to the request of an uploaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FakeUpload {
    /// File with this content.
    Content(Vec<u8>),
    /// Redirect to this address.
    Redirect(String),
    /// This many zero bytes, sent as a small compressed body.
    Bomb(usize),
}

impl FakeUpload {
    pub(crate) fn response(&self) -> HttpResponse {
        match self {
            Self::Content(content) => {
                HttpResponse::new(200, "application/octet-stream", content.clone())
            }
            Self::Redirect(target) => HttpResponse::empty(303).header("location", target),
            Self::Bomb(bytes) => match compressed_zeros(*bytes) {
                Ok(body) => {
                    HttpResponse::new(200, "image/png", body).header("content-encoding", "gzip")
                }
                Err(error) => HttpResponse::text(500, format!("fake vendor: {error}")),
            },
        }
    }
}

fn compressed_zeros(mut bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = [0; 1 << 16];
    while bytes > 0 {
        let part = bytes.min(zeros.len());
        encoder.write_all(&zeros[..part])?;
        bytes -= part;
    }
    encoder.finish()
}

/// Uploaded files by the path of their address.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<BTreeMap<String, (FakeUpload, Vec<bool>)>>);

impl Uploads {
    /// Adds a file. Returns a new path that ends with the name.
    pub(crate) fn add(&self, name: &str, upload: FakeUpload) -> String {
        let path = format!("{}/{name}", clock::uuid());
        lock(&self.0).insert(path.clone(), (upload, Vec::new()));
        path
    }

    /// Returns the response to a request of a file. `is_authorized`: whether its credentials are right.
    pub(crate) fn respond(
        &self,
        path: &str,
        request: &HttpRequest,
        is_authorized: bool,
    ) -> HttpResponse {
        let mut files = lock(&self.0);
        match files.get_mut(path) {
            Some((upload, requests)) => {
                requests.push(request.header("authorization").is_some());
                match is_authorized {
                    true => upload.response(),
                    false => HttpResponse::text(401, "Unauthorized"),
                }
            }
            None => HttpResponse::text(404, "Not Found"),
        }
    }

    /// Returns the requests of the files with this name, oldest first: whether each had credentials.
    pub(crate) fn requests_of_name(&self, name: &str) -> Vec<bool> {
        let files = lock(&self.0);
        let named = files
            .iter()
            .filter(|(path, _)| path.rsplit('/').next() == Some(name));
        named
            .flat_map(|(_, (_, requests))| requests.clone())
            .collect()
    }

    /// Returns the requests of the file with this path, oldest first: whether each had credentials.
    pub(crate) fn requests(&self, path: &str) -> Vec<bool> {
        let files = lock(&self.0);
        files
            .get(path)
            .map(|(_, requests)| requests.clone())
            .unwrap_or_default()
    }
}
