//! Request builder and response of the HTTP client.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::error_message;
use super::rate_limit::DEFAULT_PAUSE;
use super::{Redactor, VendorError, VendorErrorKind, percent_encode};

pub use reqwest::Method;

/// Request to a vendor. Can be sent several times.
#[derive(Clone)]
pub struct Request {
    pub(super) action: &'static str,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
    pub(super) retry: RetryMode,
    pub(super) account: String,
    pub(super) default_pause: Duration,
    pub(super) accepted_statuses: Vec<u16>,
    pub(super) redirect_authorization: RedirectAuthorization,
    pub(super) max_body: usize,
    pub(super) build_error: Option<String>,
}

/// Retry mode of a request after a failure with unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryMode {
    /// The request changes nothing and may be retried.
    Allowed,
    /// The request is sent at most once.
    Never,
}

/// Handling of the Authorization header on redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectAuthorization {
    /// Kept if the origin is the same.
    SameOrigin,
    /// Always dropped, for targets with a signed URL.
    Never,
}

/// Default maximum size of a response body, in bytes.
const MAX_BODY: usize = 16 << 20;

impl Request {
    /// Creates a GET request. It is retried after connection errors and server errors.
    pub fn get(action: &'static str, url: impl Into<String>) -> Self {
        Self {
            retry: RetryMode::Allowed,
            ..Self::new(action, Method::GET, url)
        }
    }

    /// Creates a request with any method. It is sent at most once unless marked [`Request::safe`].
    pub fn new(action: &'static str, method: Method, url: impl Into<String>) -> Self {
        Self {
            action,
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: None,
            retry: RetryMode::Never,
            account: String::new(),
            default_pause: DEFAULT_PAUSE,
            accepted_statuses: Vec::new(),
            redirect_authorization: RedirectAuthorization::SameOrigin,
            max_body: MAX_BODY,
            build_error: None,
        }
    }

    /// Marks the request as one that changes nothing and may be retried.
    pub fn safe(mut self) -> Self {
        self.retry = RetryMode::Allowed;
        self
    }

    /// Sets a header. An invalid value is reported when the request is sent.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => {
                self.headers.insert(HeaderName::from_static(name), value);
            }
            Err(_) => self.build_error = Some(format!("the value of the header {name} is invalid")),
        }
        self
    }

    /// Sets the Authorization header to `value` unchanged.
    pub fn authorization(mut self, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.headers.insert(AUTHORIZATION, value);
            }
            Err(_) => {
                self.build_error = Some(
                    "the credential contains invalid characters, such as line breaks".to_owned(),
                )
            }
        }
        self
    }

    /// Sets a bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.authorization(&format!("Bearer {token}"))
    }

    /// Sets a body of bytes.
    pub fn body(mut self, body: Bytes) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body = Some(body.into()),
            Err(error) => self.build_error = Some(format!("cannot encode the body: {error}")),
        }
        self.header("content-type", "application/json")
    }

    /// Sets a URL-encoded form body.
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
            .collect();
        self.body = Some(pairs.join("&").into());
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// Sets the account whose rate limit the call counts against, for vendors with several limits.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self
    }

    /// Sets the pause after a rate limit response without a reset time. Default 60 seconds.
    pub fn default_pause(mut self, pause: Duration) -> Self {
        self.default_pause = pause;
        self
    }

    /// Returns responses with this status to the caller instead of an error.
    pub fn accept_status(mut self, status: u16) -> Self {
        self.accepted_statuses.push(status);
        self
    }

    /// Drops the Authorization header on any redirect, even to the same origin.
    pub fn redirect_without_authorization(mut self) -> Self {
        self.redirect_authorization = RedirectAuthorization::Never;
        self
    }

    /// Sets the maximum size of the response body, in bytes. Default 16 MiB. A larger body is an error.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Returns the description of the call.
    pub fn action(&self) -> &'static str {
        self.action
    }
}

/// Complete response with an accepted status.
pub struct Response {
    pub(super) vendor: &'static str,
    pub(super) action: &'static str,
    pub(super) account: String,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) redactor: Redactor,
}

impl Response {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns a header as text, or `None` if it is missing or not ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the body, not redacted.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the body as redacted text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        self.redactor.redact(&String::from_utf8_lossy(&self.body))
    }

    /// Redacts a text that was derived from the body, and applies a sanitizer.
    pub fn sanitized_with(&self, text: &str, sanitizer: fn(&str) -> Cow<'_, str>) -> String {
        self.redactor.sanitize_with(text, sanitizer)
    }

    /// Decodes the body as JSON.
    ///
    /// # Errors
    /// Returns [`VendorErrorKind::Decode`] with the position of the error.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, VendorError> {
        serde_json::from_slice(&self.body).map_err(|error| self.decode_error(error))
    }

    /// Creates an error for a response with unexpected content.
    pub fn decode_error(&self, cause: impl std::fmt::Display) -> VendorError {
        // Decoders quote the invalid value, which may be a token.
        let cause = self.redactor.excerpt(&cause.to_string());
        VendorError::new(self.vendor, self.action, VendorErrorKind::Decode(cause))
    }

    /// Returns an excerpt of the error message in the body, redacted.
    pub fn error_message(&self) -> String {
        self.redactor.excerpt(&error_message(&self.body))
    }

    /// Creates a transient error about a request that the vendor refuses for the moment.
    pub fn refused_for_now(&self) -> VendorError {
        let (vendor, status) = (self.vendor, self.status);
        let cause = format!("{vendor} answered {status}: {}", self.error_message());
        VendorError::new(vendor, self.action, VendorErrorKind::Precondition(cause))
    }

    /// Creates an error with the status that corresponds to an error in the response body.
    pub fn status_error(&self, status: u16, message: &str) -> VendorError {
        VendorError::new(
            self.vendor,
            self.action,
            VendorErrorKind::Status {
                status,
                message: self.redactor.excerpt(message),
                retry_after: None,
            },
        )
    }
}
