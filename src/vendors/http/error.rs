//! What can go wrong between us and a vendor, told so that the caller can decide what to do.

use std::fmt;
use std::time::Duration;

use super::now_millis;

/// A call to a vendor that did not do what was asked. Holds no secret and no body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorError {
    /// Whom we asked, such as `github`.
    pub vendor: &'static str,
    /// What we were doing, such as `dispatching the workflow`.
    pub action: &'static str,
    pub kind: VendorErrorKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VendorErrorKind {
    /// The vendor refused, or broke while working on it. GraphQL errors come with the HTTP status
    /// that says the same.
    Status {
        status: u16,
        /// The vendor's own words, redacted and cut.
        message: String,
        /// When the vendor asks to be left alone for a while.
        retry_after: Option<Duration>,
    },
    /// No whole answer in time; the request may have been carried out.
    Timeout,
    /// No connection: the request was surely not received.
    Connect(String),
    /// The connection broke: the request may have been received.
    Transport(String),
    /// An answer came that we do not understand; the request was received.
    Decode(String),
    /// The vendor allows no requests before `until`, in milliseconds since the epoch.
    RateLimited { until: u64 },
}

impl VendorError {
    pub fn new(vendor: &'static str, action: &'static str, kind: VendorErrorKind) -> Self {
        Self {
            vendor,
            action,
            kind,
        }
    }

    /// The status the vendor answered with, if it refused.
    pub fn status(&self) -> Option<u16> {
        match self.kind {
            VendorErrorKind::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether asking again cannot help.
    pub fn is_permanent(&self) -> bool {
        self.status()
            .is_some_and(|status| status < 500 && !matches!(status, 408 | 425 | 429))
    }

    /// Whether the effect may have happened although we were not told so. What was asked must be
    /// looked for before it is asked again.
    pub fn is_ambiguous(&self) -> bool {
        match &self.kind {
            VendorErrorKind::Timeout
            | VendorErrorKind::Transport(_)
            | VendorErrorKind::Decode(_) => true,
            VendorErrorKind::Status { status, .. } => *status >= 500,
            VendorErrorKind::Connect(_) | VendorErrorKind::RateLimited { .. } => false,
        }
    }

    /// Returns whether no answer came at all.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self.kind,
            VendorErrorKind::Timeout | VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_)
        )
    }

    /// Whether the vendor does not know us: an operator's doing, and an operator's to mend.
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(401)
    }

    /// Whether the thing is gone, archived or hidden from us.
    pub fn is_not_found(&self) -> bool {
        matches!(self.status(), Some(404 | 410))
    }

    /// Whether the vendor asks us to wait, rather than being out of order.
    pub fn is_rate_limited(&self) -> bool {
        matches!(self.kind, VendorErrorKind::RateLimited { .. })
    }

    /// How long the vendor wants to be left alone, if it said so.
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
                write!(f, "{action}: no connection to {vendor}: {cause}")
            }
            VendorErrorKind::Transport(cause) => {
                write!(f, "{action}: the connection to {vendor} broke: {cause}")
            }
            VendorErrorKind::Decode(cause) => {
                write!(f, "{action}: {vendor}'s answer was not understood: {cause}")
            }
            VendorErrorKind::RateLimited { until } => {
                let moment = i64::try_from(*until)
                    .ok()
                    .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
                    .unwrap_or(jiff::Timestamp::MAX);
                write!(
                    f,
                    "{action}: {vendor} is rate limited and takes no requests before {moment:.0}"
                )
            }
        }
    }
}

impl std::error::Error for VendorError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> VendorError {
        VendorError::new(
            "github",
            "reading the run",
            VendorErrorKind::Status {
                status,
                message: "no".into(),
                retry_after: None,
            },
        )
    }

    #[test]
    fn each_failure_says_whether_to_repeat_and_whether_to_look_first() {
        let kind = |kind| VendorError::new("github", "reading the run", kind);
        let limited = kind(VendorErrorKind::RateLimited { until: 0 });
        let rows = [
            (status(401), true, false),
            (status(404), true, false),
            (status(408), false, false),
            (status(425), false, false),
            (status(429), false, false),
            (status(500), false, true),
            (status(503), false, true),
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
            (kind(VendorErrorKind::Decode("no json".into())), false, true),
            (limited.clone(), false, false),
        ];
        for (error, permanent, ambiguous) in rows {
            assert_eq!(error.is_permanent(), permanent, "{error}");
            assert_eq!(error.is_ambiguous(), ambiguous, "{error}");
        }
        assert!(status(404).is_not_found() && !status(403).is_not_found());
        assert_eq!(limited.retry_after(), Some(Duration::ZERO));
        assert_eq!(
            limited.to_string(),
            "reading the run: github is rate limited and takes no requests before 1970-01-01T00:00:00Z"
        );
        assert_eq!(
            status(404).to_string(),
            "reading the run: github answered 404: no"
        );
    }
}
