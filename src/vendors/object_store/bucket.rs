//! Bucket of a service that is compatible with S3.
//!
//! Only these requests are used: GetObject, HeadObject, PutObject, with `If-Match` and `If-None-Match` where objects are
//! replaced, and DeleteObject. Bodies are not part of the signature; readers verify a digest in the content instead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::Url;

use domain::crypto::aws_signature::{AwsKey, AwsRequest};
use domain::secret::Secret;

use super::{MAX_OBJECT_BYTES, Object, ObjectTag, Replaced};
use crate::http::{Client, Method, Request, VendorError, percent_encode};

/// Content digest of requests whose body is not part of the signature.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Pause after a response with a rate limit that does not state one. A lease must be renewed in time.
const LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// Address of a bucket and a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketAddress {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of the names of objects, without slashes at its ends. May be empty.
    pub prefix: String,
    /// Origin of the service's URL; `None` for AWS.
    pub endpoint: Option<String>,
}

/// Bucket; cheap to clone.
#[derive(Clone)]
pub struct Bucket {
    client: Client,
    inner: Arc<Inner>,
}

struct Inner {
    address: BucketAddress,
    key: AwsKey,
    session_token: Option<Secret>,
}

impl BucketAddress {
    /// Parses an address of the form `s3://BUCKET/PREFIX`. `None` if it is invalid.
    pub fn parse(address: &str, endpoint: Option<String>) -> Option<Self> {
        let rest = address.strip_prefix("s3://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_valid_bucket = bucket.len() >= 3 && bucket.bytes().all(is_valid);
        // Requests do not have these, but their signatures would.
        let is_valid_prefix = !prefix.split('/').any(|part| matches!(part, "." | ".."));
        // Signed as it is sent: in small letters, and without a port that is the default.
        let origin = |url: String| match Url::parse(&url) {
            Ok(parsed) => parsed.origin().ascii_serialization(),
            Err(_) => url,
        };
        (is_valid_bucket && is_valid_prefix).then(|| Self {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
            endpoint: endpoint.map(origin),
        })
    }

    /// Returns the base URL and the path of an object. Services other than AWS, and names with dots, which no
    /// certificate of AWS covers, have the bucket in the path.
    fn locate(&self, region: &str, name: &str) -> (String, String) {
        let parts = self.prefix.split('/').chain(name.split('/'));
        let parts = parts.filter(|part| !part.is_empty());
        let path: String = parts
            .map(|part| format!("/{}", percent_encode(part)))
            .collect();
        let bucket = &self.bucket;
        match &self.endpoint {
            Some(endpoint) => (endpoint.clone(), format!("/{bucket}{path}")),
            None if bucket.contains('.') => (
                format!("https://s3.{region}.amazonaws.com"),
                format!("/{bucket}{path}"),
            ),
            None => (format!("https://{bucket}.s3.{region}.amazonaws.com"), path),
        }
    }
}

impl Bucket {
    /// Creates a client of a bucket. Temporary keys have a session token.
    pub fn new(
        client: Client,
        address: BucketAddress,
        key: AwsKey,
        session_token: Option<Secret>,
    ) -> Self {
        Self {
            client,
            inner: Arc::new(Inner {
                address,
                key,
                session_token,
            }),
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<Object>, VendorError> {
        let request = self.request("reading a backup object", Method::GET, name);
        let request = request.safe().max_body(MAX_OBJECT_BYTES);
        let response = match self.client.send(&request).await {
            Err(error) if is_missing_object(&error) => return Ok(None),
            response => response?,
        };
        let tag = tag_of(&response)?;
        Ok(Some(Object {
            bytes: response.body().clone(),
            tag,
        }))
    }

    pub(super) async fn exists(&self, name: &str) -> Result<bool, VendorError> {
        let request = self.request("looking for a backup object", Method::HEAD, name);
        match self.client.send(&request.safe()).await {
            Err(error) if is_missing_object(&error) => Ok(false),
            response => response.map(|_| true),
        }
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), VendorError> {
        let request = self.request("writing a backup object", Method::PUT, name);
        self.client.send(&request.safe().body(bytes)).await?;
        Ok(())
    }

    pub(super) async fn replace(
        &self,
        name: &str,
        bytes: Bytes,
        read: Option<&ObjectTag>,
    ) -> Result<Replaced, VendorError> {
        let request = self.request("replacing a backup object", Method::PUT, name);
        let request = match read {
            Some(ObjectTag(tag)) => request.header("if-match", tag),
            None => request.header("if-none-match", "*"),
        };
        match self.client.send(&request.body(bytes)).await {
            Err(error) if is_missing_object(&error) => Ok(Replaced::Changed),
            // 409: another request replaces it at the same time.
            Err(error) if matches!(error.status(), Some(409 | 412)) => Ok(Replaced::Changed),
            response => Ok(Replaced::Done(tag_of(&response?)?)),
        }
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), VendorError> {
        let request = self.request("removing a backup object", Method::DELETE, name);
        match self.client.send(&request.safe()).await {
            Err(error) if is_missing_object(&error) => Ok(()),
            response => response.map(drop),
        }
    }

    fn request(&self, action: &'static str, method: Method, name: &str) -> Request {
        let Inner {
            address,
            key,
            session_token,
        } = &*self.inner;
        let (base, path) = address.locate(&key.region, name);
        let host = base.split_once("://").map_or("", |(_, host)| host);
        let date = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![
            ("host", host),
            ("x-amz-content-sha256", UNSIGNED),
            ("x-amz-date", &date),
        ];
        if let Some(token) = session_token {
            headers.push(("x-amz-security-token", token.expose()));
        }
        let authorization = key.authorization(&AwsRequest {
            method: method.as_str(),
            path: &path,
            headers: &headers,
            content: UNSIGNED,
            date: &date,
        });
        let request = Request::new(action, method, format!("{base}{path}"))
            .account(account(name))
            .default_pause(LIMIT_PAUSE);
        let request = headers.iter().skip(1).fold(request, |request, header| {
            request.header(header.0, header.1)
        });
        request.authorization(&authorization)
    }
}

/// Whether an object does not exist. A bucket that does not exist has the same status.
fn is_missing_object(error: &VendorError) -> bool {
    error.status() == Some(404) && !error.has_code("NoSuchBucket")
}

/// Account of the rate limit for an object. One that is replaced is limited on its own, and must not keep others waiting,
/// nor they it.
fn account(name: &str) -> &str {
    match name.contains('/') {
        true => "",
        false => name,
    }
}

fn tag_of(response: &crate::http::Response) -> Result<ObjectTag, VendorError> {
    let tag = response.header("etag").map(str::to_owned);
    let tag = tag.ok_or_else(|| response.decode_error("the response has no ETag"));
    Ok(ObjectTag(tag?))
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BucketAddress { bucket, prefix, .. } = &self.inner.address;
        match prefix.is_empty() {
            true => write!(f, "s3://{bucket}"),
            false => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locates_objects_as_the_service_expects() {
        let located = |address: &str, endpoint: Option<&str>| {
            let address = BucketAddress::parse(address, endpoint.map(str::to_owned));
            let (base, path) = address.unwrap().locate("eu-central-1", "a/b.json");
            format!("{base} {path}")
        };
        let aws = "https://team.s3.eu-central-1.amazonaws.com";
        assert_eq!(located("s3://team", None), format!("{aws} /a/b.json"));
        let prefixed = format!("{aws} /x%20y/z/a/b.json");
        assert_eq!(located("s3://team/x y//z/", None), prefixed);
        assert_eq!(
            located("s3://team.example", None),
            "https://s3.eu-central-1.amazonaws.com /team.example/a/b.json"
        );
        assert_eq!(
            located("s3://team/p", Some("http://127.0.0.1:9000/")),
            "http://127.0.0.1:9000 /team/p/a/b.json"
        );
        // The request has the host in this form, so the signature must, too.
        assert_eq!(
            located("s3://team", Some(" https://MinIO.example:443/ ")),
            "https://minio.example /team/a/b.json"
        );
        let invalid = [
            "team",
            "s3://",
            "s3://a",
            "s3://te am/x",
            "s3:///x",
            "s3://team/..",
            "s3://team/a/./b",
        ];
        for invalid in invalid {
            assert_eq!(BucketAddress::parse(invalid, None), None, "{invalid}");
        }
    }
}
