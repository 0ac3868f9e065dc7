//! Fake bucket of a service that is compatible with S3: GetObject, PutObject with conditions, DeleteObject.
//!
//! Every object is a file of its own, replaced atomically. Requests must be signed with Signature Version 4.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use ring::hmac;

use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{lock, write_atomic};

/// Name of the bucket, which is also the first part of its paths.
pub(crate) const BUCKET: &str = "fake-backups";

/// Access key of the fake bucket.
#[derive(Clone, Copy, Debug)]
pub struct FakeBucketKey {
    /// ID of the access key.
    pub id: &'static str,
    /// Secret of the access key.
    pub secret: &'static str,
    /// Region of the bucket.
    pub region: &'static str,
}

const KEY: FakeBucketKey = FakeBucketKey {
    id: "AKIAFAKEBUCKET",
    secret: "fake/bucket/secret/key",
    region: "eu-test-1",
};

/// Fake bucket.
pub struct FakeBucket {
    dir: PathBuf,
    /// Held while an object is compared and replaced.
    replacing: Mutex<()>,
    hides_missing: AtomicBool,
    ignores_conditions: AtomicBool,
    refusal: Mutex<Option<BucketRefusal>>,
}

/// Error with which the bucket answers every request.
#[derive(Clone, Copy, Debug)]
pub enum BucketRefusal {
    /// There is no bucket of this name.
    NoSuchBucket,
    /// The clock of the client is wrong.
    TimeTooSkewed,
}

impl FakeBucket {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let dir = dir.join("bucket");
        fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            replacing: Mutex::new(()),
            hides_missing: AtomicBool::new(false),
            ignores_conditions: AtomicBool::new(false),
            refusal: Mutex::new(None),
        })
    }

    /// Returns the access key.
    pub fn key(&self) -> FakeBucketKey {
        KEY
    }

    /// Returns the address of the bucket.
    pub fn address(&self) -> String {
        format!("s3://{BUCKET}")
    }

    /// Makes objects that do not exist forbidden to read, as AWS does for a key without the right to list the bucket.
    pub fn hide_missing(&self) {
        self.hides_missing.store(true, Ordering::Relaxed);
    }

    /// Ignores conditions of requests, as some services do.
    pub fn ignore_conditions(&self) {
        self.ignores_conditions.store(true, Ordering::Relaxed);
    }

    /// Refuses every request.
    pub fn refuse(&self, refusal: BucketRefusal) {
        *lock(&self.refusal) = Some(refusal);
    }

    /// Returns the names of all objects, sorted.
    pub fn object_names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let mut names: Vec<String> = names.map(|name| name.replace('%', "/")).collect();
        names.sort();
        names
    }

    /// Returns the content of an object.
    pub fn object(&self, name: &str) -> Option<Vec<u8>> {
        content(&self.path(name)).ok()?
    }

    /// Replaces the content of an object.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn put(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let _replacing = lock(&self.replacing);
        write_atomic(&self.path(name), content)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name.replace('/', "%"))
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        if let Err(reason) = check_signature(request) {
            return error(403, "SignatureDoesNotMatch", &reason);
        }
        match *lock(&self.refusal) {
            Some(BucketRefusal::NoSuchBucket) => {
                return error(404, "NoSuchBucket", "The specified bucket does not exist");
            }
            Some(BucketRefusal::TimeTooSkewed) => {
                let message =
                    "The difference between the request time and the current time is too large.";
                return error(403, "RequestTimeTooSkewed", message);
            }
            None => {}
        }
        let name = request.segments().join("/");
        if name.is_empty() || name.contains("..") || name.contains('%') {
            return error(400, "InvalidArgument", "invalid name of an object");
        }
        let path = self.path(&name);
        let _replacing = lock(&self.replacing);
        let answered = match request.method.as_str() {
            "GET" | "HEAD" => self.read(&path),
            "PUT" if self.ignores_conditions.load(Ordering::Relaxed) => write(&path, request),
            "PUT" => replace(&path, request),
            "DELETE" => delete(&path),
            _ => Ok(error(405, "MethodNotAllowed", "unknown method")),
        };
        answered.unwrap_or_else(|cause| error(500, "InternalError", &cause.to_string()))
    }

    fn read(&self, path: &Path) -> io::Result<HttpResponse> {
        Ok(match content(path)? {
            Some(bytes) => {
                let tag = tag_of(&bytes);
                HttpResponse::new(200, "binary/octet-stream", bytes).header("etag", tag)
            }
            None if self.hides_missing.load(Ordering::Relaxed) => {
                error(403, "AccessDenied", "Access Denied")
            }
            None => error(404, "NoSuchKey", "The specified key does not exist."),
        })
    }
}

fn replace(path: &Path, request: &HttpRequest) -> io::Result<HttpResponse> {
    let tag = content(path)?.map(|bytes| tag_of(&bytes));
    let failed = |reason: &str| Ok(error(412, "PreconditionFailed", reason));
    match (request.header("if-match"), &tag) {
        (Some(_), None) => return Ok(error(404, "NoSuchKey", "no object to match")),
        (Some(expected), Some(tag)) if expected != tag => return failed("If-Match"),
        _ => {}
    }
    if request.header("if-none-match").is_some() && tag.is_some() {
        return failed("If-None-Match");
    }
    write(path, request)
}

fn write(path: &Path, request: &HttpRequest) -> io::Result<HttpResponse> {
    write_atomic(path, &request.body).map_err(io::Error::other)?;
    Ok(HttpResponse::empty(200).header("etag", tag_of(&request.body)))
}

fn delete(path: &Path) -> io::Result<HttpResponse> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(HttpResponse::empty(204)),
    }
}

fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn tag_of(bytes: &[u8]) -> String {
    format!("\"{}\"", sha256(bytes))
}

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

fn error(status: u16, code: &str, message: &str) -> HttpResponse {
    let xml = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    HttpResponse::new(status, "application/xml", xml)
}

/// Recomputes the signature from the signed headers that the request names.
fn check_signature(request: &HttpRequest) -> Result<(), String> {
    let header = |name: &str| {
        let value = request.header(name);
        value.ok_or_else(|| format!("the header {name} is missing"))
    };
    let authorization = header("authorization")?;
    let field = |name: &str| {
        let (_, rest) = authorization.split_once(&format!("{name}="))?;
        rest.split(',').next()
    };
    let (Some(credential), Some(names), Some(signature)) = (
        field("Credential"),
        field("SignedHeaders"),
        field("Signature"),
    ) else {
        return Err("the header authorization is malformed".to_owned());
    };
    let date = header("x-amz-date")?;
    let day = date.get(..8).unwrap_or_default();
    let scope = format!("{day}/{}/s3/aws4_request", KEY.region);
    if credential != format!("{}/{scope}", KEY.id) {
        return Err(format!("unknown credential {credential}"));
    }
    let mut headers = String::new();
    for name in names.split(';') {
        headers.push_str(&format!("{name}:{}\n", header(name)?));
    }
    let (method, path) = (&request.method, &request.path);
    let content = header("x-amz-content-sha256")?;
    let canonical = format!(
        "{method}\n/{BUCKET}{path}\n{}\n{headers}\n{names}\n{content}",
        request.query
    );
    let text = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let mut key = format!("AWS4{}", KEY.secret).into_bytes();
    for part in [day, KEY.region, "s3", "aws4_request", &text] {
        let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
        key = signed.as_ref().to_vec();
    }
    match HEXLOWER.encode(&key) == signature {
        true => Ok(()),
        false => Err("the signature is wrong".to_owned()),
    }
}
