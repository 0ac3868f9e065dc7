//! FLOOR 2: the one HTTP client.
//!
//! Every request to a vendor leaves through [`Client::send`]: it bounds time and size, waits out
//! a vendor's rate limit without asking again, retries what is safe to repeat, and turns whatever
//! went wrong into a [`VendorError`] that holds no secret. It knows nothing of tickets or runs.

mod client;
mod error;
mod json_fields;
mod rate_limit;
pub mod redact;
mod relay;
mod request;

pub use client::{Client, DownloadError, Proxies, Timeouts};
pub use error::{VendorError, VendorErrorKind};
pub use json_fields::read_json_fields;
pub use rate_limit::{LONGEST_PAUSE, Quota};
pub use redact::{LineRedactor, Redactor};
pub use relay::{Relay, RelayClient, RelayDecision};
pub use request::{Method, Request, Response};

/// Longest text, in bytes, that is worked on where it came in.
const SMALL_TEXT: usize = 64 << 10;

/// Works on texts of this many bytes; large ones on a thread of their own, so that no other request
/// waits for them.
pub async fn run_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SMALL_TEXT {
        return work();
    }
    let worked = tokio::task::spawn_blocking(work).await;
    match worked.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and ends this task as well.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// Milliseconds since the Unix epoch by this machine's clock.
pub fn now_millis() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// A text as one part of a path or query: all but letters, digits and `-._~` is escaped.
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

/// A client for tests, whose vendor is called `vendor` in errors.
#[cfg(test)]
pub(crate) fn test_client(vendor: &'static str) -> Client {
    test_support::install_tls();
    Client::new(vendor, Redactor::new(["top-secret-value"])).unwrap()
}
