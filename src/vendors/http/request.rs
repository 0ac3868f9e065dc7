//! A request as a value, and the answer to it.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rate_limit::DEFAULT_PAUSE;
use super::{Redactor, VendorError, VendorErrorKind, percent_encode};

pub use reqwest::Method;

/// One call to a vendor. It can be sent again: nothing in it is used up.
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

/// May a request be sent a second time when we do not know what became of the first?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryMode {
    Allowed,
    Never,
}

/// What happens to the Authorization header when the vendor sends us elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectAuthorization {
    /// Kept for the same origin only.
    SameOrigin,
    /// Dropped in any case, for places that are signed by their URL.
    Never,
}

/// How much of an answer do we read, unless the request says otherwise?
const MAX_BODY: usize = 16 << 20;

impl Request {
    /// A read: repeated when the connection breaks or the vendor stumbles.
    pub fn get(action: &'static str, url: impl Into<String>) -> Self {
        Self {
            retry: RetryMode::Allowed,
            ..Self::new(action, Method::GET, url)
        }
    }

    /// Anything else: sent at most once.
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

    /// Declares that the call changes nothing, so that it may be repeated.
    pub fn safe(mut self) -> Self {
        self.retry = RetryMode::Allowed;
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => {
                self.headers.insert(HeaderName::from_static(name), value);
            }
            Err(_) => self.build_error = Some(format!("the header {name} cannot carry its value")),
        }
        self
    }

    /// Sets the Authorization header to `value` as it is.
    pub fn authorization(mut self, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.headers.insert(AUTHORIZATION, value);
            }
            Err(_) => self.build_error = Some("the credential contains line breaks".to_owned()),
        }
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.authorization(&format!("Bearer {token}"))
    }

    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body = Some(body.into()),
            Err(error) => self.build_error = Some(format!("the body cannot be written: {error}")),
        }
        self.header("content-type", "application/json")
    }

    /// A body as a web form sends it.
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
            .collect();
        self.body = Some(pairs.join("&").into());
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// Whose rate limit this call counts against, where a vendor keeps several.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self
    }

    /// How long the vendor is left alone when it takes no more requests and names no time; a minute
    /// unless its limits are known to be shorter.
    pub fn default_pause(mut self, pause: Duration) -> Self {
        self.default_pause = pause;
        self
    }

    /// Hands an answer with this status to the caller instead of making it an error.
    pub fn accept_status(mut self, status: u16) -> Self {
        self.accepted_statuses.push(status);
        self
    }

    /// Drops the Authorization header on any redirect, even within the host.
    pub fn redirect_without_authorization(mut self) -> Self {
        self.redirect_authorization = RedirectAuthorization::Never;
        self
    }

    /// Reads at most this many bytes of the answer's body; more is an error.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    pub fn action(&self) -> &'static str {
        self.action
    }
}

/// A whole answer with a status that the request accepts.
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
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as text, redacted; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        self.redacted(&String::from_utf8_lossy(&self.body))
    }

    /// A text that was made of the body, redacted.
    pub fn redacted(&self, text: &str) -> String {
        self.redactor.redact(text)
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] with the place where it stopped making sense.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, VendorError> {
        serde_json::from_slice(&self.body).map_err(|error| self.decode_error(error))
    }

    /// An error for an answer whose meaning is not what was asked for.
    pub fn decode_error(&self, cause: impl std::fmt::Display) -> VendorError {
        // Decoders quote the value they stumbled over, which may be a token.
        let cause = self.redactor.excerpt(&cause.to_string());
        VendorError::new(self.vendor, self.action, VendorErrorKind::Decode(cause))
    }

    /// An error that says what the vendor said in other words than an HTTP status.
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
