//! AWS Signature Version 4, with which services that are compatible with S3 authenticate requests.
//!
//! Source: the AWS documentation, "Authenticating Requests: Using the Authorization Header".

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use ring::hmac;

use crate::secret::Secret;

/// Access key with the region and service for which it signs.
#[derive(Debug, Clone)]
pub struct AwsKey {
    /// ID of the access key.
    pub id: String,
    /// Secret of the access key.
    pub secret: Secret,
    /// Region, such as `eu-central-1`.
    pub region: String,
    /// Service, such as `s3`.
    pub service: &'static str,
}

/// Request to sign, without a query.
#[derive(Debug, Clone, Copy)]
pub struct AwsRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Path, percent-encoded.
    pub path: &'a str,
    /// Headers to sign, in lower case and sorted. `host` and `x-amz-date` must be among them.
    pub headers: &'a [(&'a str, &'a str)],
    /// Value of `x-amz-content-sha256`: the digest of the body in hexadecimal, or `UNSIGNED-PAYLOAD`.
    pub content: &'a str,
    /// Value of `x-amz-date`: the time in the form `20130524T000000Z`.
    pub date: &'a str,
}

impl AwsKey {
    /// Returns the value of the Authorization header.
    pub fn authorization(&self, request: &AwsRequest<'_>) -> String {
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let headers = request.headers.iter();
        let headers: String = headers
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let AwsRequest {
            method,
            path,
            content,
            date,
            ..
        } = request;
        let canonical = format!("{method}\n{path}\n\n{headers}\n{names}\n{content}");
        let day = date.get(..8).unwrap_or(date);
        let Self {
            id,
            secret,
            region,
            service,
        } = self;
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let hashed = HEXLOWER.encode(digest(&SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}");
        let mut key = format!("AWS4{}", secret.expose()).into_bytes();
        for part in [day, region, service, "aws4_request", &text] {
            key = hmac_sha256(&key, part);
        }
        let signature = HEXLOWER.encode(&key);
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}"
        )
    }
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the AWS documentation.
    #[test]
    fn signs_like_the_published_examples() {
        let key = AwsKey {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            region: "us-east-1".to_owned(),
            service: "s3",
        };
        let (host, date) = ("examplebucket.s3.amazonaws.com", "20130524T000000Z");
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let read = AwsRequest {
            method: "GET",
            path: "/test.txt",
            headers: &[
                ("host", host),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", empty),
                ("x-amz-date", date),
            ],
            content: empty,
            date,
        };
        assert_eq!(
            key.authorization(&read),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let content = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let written = AwsRequest {
            method: "PUT",
            path: "/test%24file.text",
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("host", host),
                ("x-amz-content-sha256", content),
                ("x-amz-date", date),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            content,
            date,
        };
        let authorization = key.authorization(&written);
        let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert!(authorization.ends_with(signature), "{authorization}");
    }
}
