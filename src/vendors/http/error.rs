//! Errors of calls to vendors, classified by whether a retry is safe and useful.

use std::fmt;
use std::time::Duration;

use domain::time::Timestamp;

use super::now_millis;

/// Error of a call to a vendor. Contains no secret and no response body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorError {
    /// Name of the vendor as people know it, such as `GitHub`.
    pub vendor: &'static str,
    /// Description of the call, such as `dispatching the workflow`.
    pub action: &'static str,
    /// Cause of the error.
    pub kind: VendorErrorKind,
}

/// Cause of a vendor error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VendorErrorKind {
    /// Vendor responded with an error status. GraphQL errors are mapped to the equivalent HTTP status.
    Status {
        /// HTTP status.
        status: u16,
        /// Error message of the vendor, redacted and cut.
        message: String,
        /// Delay from the `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// No complete response in time. The request may have been executed.
    Timeout,
    /// Connection failed. The request was not received.
    Connect(String),
    /// Connection closed early. The request may have been received.
    Transport(String),
    /// Response could not be decoded. The request was received.
    Decode(String),
    /// Rate limit of the vendor exhausted.
    RateLimited {
        /// End of the limit, in milliseconds since the epoch.
        until: u64,
    },
    /// The call cannot succeed in the state that was found, such as a credential that cannot be read, or an object
    /// that is being deleted. Nothing was created. A retry may find another state.
    Precondition(String),
}

impl VendorError {
    /// Creates an error.
    pub fn new(vendor: &'static str, action: &'static str, kind: VendorErrorKind) -> Self {
        Self {
            vendor,
            action,
            kind,
        }
    }

    /// Returns the cause as a sentence about `vendor`, the name that people know. Without times, which the
    /// reader shows in the own time zone.
    pub fn sentence(&self, vendor: &str) -> String {
        match &self.kind {
            VendorErrorKind::Status {
                status, message, ..
            } if message.is_empty() => format!("{vendor} answered with status {status}."),
            VendorErrorKind::Status {
                status, message, ..
            } => format!(
                "{vendor} answered with status {status}: {}.",
                message.trim_end_matches('.')
            ),
            VendorErrorKind::Timeout => format!("{vendor} did not answer in time."),
            VendorErrorKind::Connect(cause) => format!("Cannot connect to {vendor}: {cause}."),
            VendorErrorKind::Transport(cause) => {
                format!("The connection to {vendor} failed: {cause}.")
            }
            VendorErrorKind::Decode(cause) => {
                format!("The response of {vendor} is not readable: {cause}.")
            }
            VendorErrorKind::RateLimited { .. } => format!("{vendor} is rate limited."),
            VendorErrorKind::Precondition(cause) => format!("Cannot use {vendor}: {cause}."),
        }
    }

    /// Returns the status of the response, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self.kind {
            VendorErrorKind::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns whether the message begins with this code, as those of S3 do.
    pub fn has_code(&self, code: &str) -> bool {
        matches!(&self.kind, VendorErrorKind::Status { message, .. } if message.starts_with(code))
    }

    /// Returns whether a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        self.status()
            .is_some_and(|status| status < 500 && !matches!(status, 408 | 425 | 429))
    }

    /// Returns whether the vendor answered with a body that is too long or not in the expected form.
    pub fn is_undecodable(&self) -> bool {
        matches!(self.kind, VendorErrorKind::Decode(_))
    }

    /// Returns whether the request may have been executed although the call failed. Look up its effect at the
    /// vendor before a retry.
    pub fn is_ambiguous(&self) -> bool {
        match &self.kind {
            VendorErrorKind::Timeout
            | VendorErrorKind::Transport(_)
            | VendorErrorKind::Decode(_) => true,
            VendorErrorKind::Status { status, .. } => *status >= 500,
            VendorErrorKind::Connect(_)
            | VendorErrorKind::RateLimited { .. }
            | VendorErrorKind::Precondition(_) => false,
        }
    }

    /// Returns whether no response was received.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self.kind,
            VendorErrorKind::Timeout | VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_)
        )
    }

    /// Returns whether the vendor rejected the credential (401). An operator has to replace it.
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(401)
    }

    /// Returns whether the resource is deleted, archived or not visible (404, 410).
    pub fn is_not_found(&self) -> bool {
        matches!(self.status(), Some(404 | 410))
    }

    /// Returns whether the vendor's rate limit is exhausted.
    pub fn is_rate_limited(&self) -> bool {
        matches!(self.kind, VendorErrorKind::RateLimited { .. })
    }

    /// Returns the delay that the vendor requested, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.kind {
            VendorErrorKind::RateLimited { until } => {
                Some(Duration::from_millis(until.saturating_sub(now_millis())))
            }
            VendorErrorKind::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for VendorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, action, .. } = self;
        match &self.kind {
            VendorErrorKind::Status {
                status, message, ..
            } if message.is_empty() => write!(f, "{action}: {vendor} answered {status}"),
            VendorErrorKind::Status {
                status, message, ..
            } => write!(f, "{action}: {vendor} answered {status}: {message}"),
            VendorErrorKind::Timeout => write!(f, "{action}: {vendor} did not answer in time"),
            VendorErrorKind::Connect(cause) => {
                write!(f, "{action}: cannot connect to {vendor}: {cause}")
            }
            VendorErrorKind::Transport(cause) => {
                write!(f, "{action}: the connection to {vendor} failed: {cause}")
            }
            VendorErrorKind::Decode(cause) => {
                write!(
                    f,
                    "{action}: cannot decode the response of {vendor}: {cause}"
                )
            }
            VendorErrorKind::RateLimited { until } => {
                let until = Timestamp::from_millis(*until).date_text();
                write!(f, "{action}: {vendor} is rate limited until {until}")
            }
            VendorErrorKind::Precondition(cause) => write!(f, "{action}: {cause}"),
        }
    }
}

impl std::error::Error for VendorError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_error(status: u16) -> VendorError {
        VendorError::new(
            "GitHub",
            "reading the run",
            VendorErrorKind::Status {
                status,
                message: "no".into(),
                retry_after: None,
            },
        )
    }

    #[test]
    fn classifies_failures_as_permanent_and_ambiguous() {
        let kind = |kind| VendorError::new("GitHub", "reading the run", kind);
        let precondition = kind(VendorErrorKind::Precondition("no token".into()));
        assert!(!precondition.is_permanent() && !precondition.is_ambiguous());
        assert!(!precondition.is_unanswered());
        assert_eq!(precondition.to_string(), "reading the run: no token");
        let limited = kind(VendorErrorKind::RateLimited { until: 0 });
        let rows = [
            (status_error(401), true, false),
            (status_error(404), true, false),
            (status_error(408), false, false),
            (status_error(425), false, false),
            (status_error(429), false, false),
            (status_error(500), false, true),
            (status_error(503), false, true),
            (kind(VendorErrorKind::Timeout), false, true),
            (
                kind(VendorErrorKind::Connect("refused".into())),
                false,
                false,
            ),
            (
                kind(VendorErrorKind::Transport("reset".into())),
                false,
                true,
            ),
            (
                kind(VendorErrorKind::Decode("invalid JSON".into())),
                false,
                true,
            ),
            (limited.clone(), false, false),
        ];
        for (error, permanent, ambiguous) in rows {
            assert_eq!(error.is_permanent(), permanent, "{error}");
            assert_eq!(error.is_ambiguous(), ambiguous, "{error}");
        }
        assert!(status_error(404).is_not_found() && !status_error(403).is_not_found());
        assert_eq!(limited.retry_after(), Some(Duration::ZERO));
        assert_eq!(
            limited.to_string(),
            "reading the run: GitHub is rate limited until 1 Jan 00:00 UTC"
        );
        assert_eq!(
            status_error(404).to_string(),
            "reading the run: GitHub answered 404: no"
        );
    }
}
