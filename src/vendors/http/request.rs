//! A request as a value, and the answer to it.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::quota::DEFAULT_PAUSE;
use super::{ErrorKind, Redactor, VendorError, url_encoded};

pub use reqwest::Method;

/// One call to a vendor. It can be sent again: nothing in it is used up.
#[derive(Clone)]
pub struct Request {
    pub(super) action: &'static str,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
    pub(super) repeat: Repeat,
    pub(super) account: String,
    pub(super) unsaid_pause: Duration,
    pub(super) accepted: Vec<u16>,
    pub(super) on_redirect: OnRedirect,
    pub(super) max_body: usize,
    pub(super) fault: Option<String>,
}

/// May a request be sent a second time when we do not know what became of the first?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Safe,
    Never,
}

/// What happens to the Authorization header when the vendor sends us elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnRedirect {
    /// Kept for the same origin only.
    KeepAtOrigin,
    /// Dropped in any case, for places that are signed by their URL.
    DropAuthorization,
}

/// How much of an answer do we read, unless the request says otherwise?
const MAX_BODY: usize = 16 << 20;

impl Request {
    /// A read: repeated when the connection breaks or the vendor stumbles.
    pub fn get(action: &'static str, url: impl Into<String>) -> Self {
        Self {
            repeat: Repeat::Safe,
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
            repeat: Repeat::Never,
            account: String::new(),
            unsaid_pause: DEFAULT_PAUSE,
            accepted: Vec::new(),
            on_redirect: OnRedirect::KeepAtOrigin,
            max_body: MAX_BODY,
            fault: None,
        }
    }

    /// Declares that the call changes nothing, so that it may be repeated.
    pub fn safe(mut self) -> Self {
        self.repeat = Repeat::Safe;
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => {
                self.headers.insert(HeaderName::from_static(name), value);
            }
            Err(_) => self.fault = Some(format!("the header {name} cannot carry its value")),
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
            Err(_) => self.fault = Some("the credential contains line breaks".to_owned()),
        }
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.authorization(&format!("Bearer {token}"))
    }

    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body = Some(body.into()),
            Err(error) => self.fault = Some(format!("the body cannot be written: {error}")),
        }
        self.header("content-type", "application/json")
    }

    /// A body as a web form sends it.
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", url_encoded(name), url_encoded(value)))
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
    pub fn unsaid_pause(mut self, pause: Duration) -> Self {
        self.unsaid_pause = pause;
        self
    }

    /// Hands an answer with this status to the caller instead of making it an error.
    pub fn accept(mut self, status: u16) -> Self {
        self.accepted.push(status);
        self
    }

    /// Drops the Authorization header on any redirect, even within the host.
    pub fn redirect_without_authorization(mut self) -> Self {
        self.on_redirect = OnRedirect::DropAuthorization;
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
        serde_json::from_slice(&self.body).map_err(|error| self.misread(error))
    }

    /// An error for an answer whose meaning is not what was asked for.
    pub fn misread(&self, cause: impl std::fmt::Display) -> VendorError {
        // Decoders quote the value they stumbled over, which may be a token.
        let cause = self.redactor.excerpt(&cause.to_string());
        VendorError::new(self.vendor, self.action, ErrorKind::Decode(cause))
    }

    /// An error that says what the vendor said in other words than an HTTP status.
    pub fn refusal(&self, status: u16, message: &str) -> VendorError {
        VendorError::new(
            self.vendor,
            self.action,
            ErrorKind::Status {
                status,
                message: self.redactor.excerpt(message),
                retry_after: None,
            },
        )
    }
}
