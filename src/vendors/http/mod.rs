//! HTTP client for all vendors.
//!
//! Every request to a vendor is sent with [`Client::send`]. It limits time and size, sends no requests while
//! the vendor's rate limit is exhausted, retries requests that change nothing, and maps failures to a
//! [`VendorError`] without secrets. It is independent of tickets and runs.
//!
//! Rightly ours: the limits of an account, the total time of a call with its retries, and redaction depend on
//! each other. Middleware crates such as `reqwest-retry` handle one of them each.

mod availability;
mod client;
mod error;
mod head;
mod json_fields;
mod rate_limit;
mod redact;
mod relay;
mod request;

pub use availability::{Availability, Outage, RateLimit};
pub use client::{Client, DownloadError, Proxies, Timeouts};
pub use error::{VendorError, VendorErrorKind};
pub use head::read_head;
pub(crate) use json_fields::read_json_fields;
pub use rate_limit::{LONGEST_PAUSE, Quota};
pub use redact::{LineRedactor, RedactedLine, Redactor};
pub use relay::{Relay, RelayClient, RelayDecision};
pub use request::{Method, Request, Response};

/// Maximum size, in bytes, of a text that is processed on the async thread.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Runs `work` on a text of this many bytes. Texts over 64 KiB are processed on a blocking thread, so that
/// they do not delay other requests.
pub async fn run_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= MAX_INLINE_BYTES {
        return work();
    }
    let result = tasks::spawn_blocking(work).await;
    match result.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is shutting down and will drop this task as well.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// Returns the milliseconds since the Unix epoch by the local clock.
pub fn now_millis() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Percent-encodes a text for use as one part of a path or query. Letters, digits and `-._~` stay unchanged.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Creates a client for tests. Errors contain `vendor` as the vendor's name.
#[cfg(test)]
pub(crate) fn test_client(vendor: &'static str) -> Client {
    test_support::install_tls();
    Client::new(vendor, Redactor::new(["top-secret-value"])).unwrap()
}
