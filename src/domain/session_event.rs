//! Events that a session reports: the body of `POST /api/status`, and the ticket comment of each
//! event. See docs/behaviour.md#session-events.

use serde_json::{Value, json};

use super::comments;
use super::job::PullRequestRef;
use super::json_number::non_negative_integer;

/// Maximum length of an event id, in bytes.
const MAX_ID: usize = 64;

/// Event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The repository is cloned and set up.
    SetupComplete,
    /// The pull request is open.
    ImplementationComplete {
        /// Pull request.
        pull: PullRequestRef,
    },
    /// The verification script started.
    VerifyRunning,
    /// The verification script succeeded.
    VerifyPassed,
    /// The verification script failed.
    VerifyFailed {
        /// Summary of the failure.
        summary: String,
    },
    /// The run failed and is about to end.
    Error {
        /// Failure reason.
        reason: String,
    },
}

/// Reason why a body is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEventError {
    /// `event` is missing or not a string.
    EventRequired,
    /// This event is unknown.
    Unknown(String),
    /// The event requires a pull request.
    PullRequired,
}

impl SessionEvent {
    /// Parses an untrusted body.
    ///
    /// # Errors
    /// The event is missing or unknown, or lacks its pull request.
    pub fn parse(body: &Value) -> Result<Self, SessionEventError> {
        let text = |name: &str| body[name].as_str().map(str::trim).unwrap_or_default();
        let reason = |name: &str| comments::reason_or_default(Some(text(name)));
        let event = match body["event"].as_str() {
            Some(event) if !event.is_empty() => event,
            _ => return Err(SessionEventError::EventRequired),
        };
        Ok(match event {
            "setup_complete" => SessionEvent::SetupComplete,
            "implementation_complete" => SessionEvent::ImplementationComplete {
                pull: pull(body).ok_or(SessionEventError::PullRequired)?,
            },
            "verify_running" => SessionEvent::VerifyRunning,
            "verify_passed" => SessionEvent::VerifyPassed,
            "verify_failed" => SessionEvent::VerifyFailed {
                summary: reason("summary"),
            },
            "error" => SessionEvent::Error {
                reason: reason("reason"),
            },
            unknown => return Err(SessionEventError::Unknown(unknown.to_owned())),
        })
    }

    /// Returns the name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            SessionEvent::SetupComplete => "setup_complete",
            SessionEvent::ImplementationComplete { .. } => "implementation_complete",
            SessionEvent::VerifyRunning => "verify_running",
            SessionEvent::VerifyPassed => "verify_passed",
            SessionEvent::VerifyFailed { .. } => "verify_failed",
            SessionEvent::Error { .. } => "error",
        }
    }

    /// Returns the body as a run sends it, without nonce and id.
    pub fn to_body(&self) -> Value {
        match self {
            SessionEvent::ImplementationComplete { pull } => {
                json!({"event": self.name(), "prNumber": pull.number, "prUrl": pull.url})
            }
            SessionEvent::VerifyFailed { summary } => {
                json!({"event": self.name(), "summary": summary})
            }
            SessionEvent::Error { reason } => json!({"event": self.name(), "reason": reason}),
            SessionEvent::SetupComplete
            | SessionEvent::VerifyRunning
            | SessionEvent::VerifyPassed => json!({ "event": self.name() }),
        }
    }

    /// Returns the key by which a repeated event of a job is recognized: the id that the session
    /// set, or the content if there is no id.
    pub fn dedup_key(&self, body: &Value) -> String {
        match body["id"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => format!("{}:{}", self.name(), &id[..id.floor_char_boundary(MAX_ID)]),
            None => self.to_body().to_string(),
        }
    }

    /// Returns the ticket comment. `page` returns the address of a pull request by its number,
    /// because an address that a run reports is untrusted.
    pub fn ticket_message(&self, page: impl Fn(u64) -> String) -> String {
        match self {
            SessionEvent::SetupComplete => comments::SESSION_READY.to_owned(),
            SessionEvent::ImplementationComplete { pull } => {
                comments::session_finished(pull.number, &page(pull.number))
            }
            SessionEvent::VerifyRunning => comments::VERIFY_RUNNING.to_owned(),
            SessionEvent::VerifyPassed => comments::VERIFY_PASSED.to_owned(),
            SessionEvent::VerifyFailed { summary } => comments::verify_failed(summary),
            SessionEvent::Error { reason } => comments::session_failed(reason),
        }
    }
}

/// Returns the pull request of a body. The number is optional.
fn pull(body: &Value) -> Option<PullRequestRef> {
    let read = PullRequestRef::from_url(body["prUrl"].as_str()?)?;
    match &body["prNumber"] {
        Value::Null => Some(read),
        number => (non_negative_integer(number) == Some(read.number)).then_some(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_messages_have_the_specified_wording() {
        let page = |number: u64| format!("https://github.com/acme/shop/pull/{number}");
        let url = page(7);
        let rows = [
            (
                json!({"event": "setup_complete"}),
                "Environment ready. Implementation is running...".to_owned(),
            ),
            (
                json!({"event": "implementation_complete", "prNumber": 7, "prUrl": url}),
                format!("Finished. PR #7 opened: {url}"),
            ),
            (
                json!({"event": "implementation_complete", "prNumber": 7.0, "prUrl": url}),
                format!("Finished. PR #7 opened: {url}"),
            ),
            (
                json!({"event": "verify_running"}),
                "Running verification script...".to_owned(),
            ),
            (
                json!({"event": "verify_passed"}),
                "Verification passed".to_owned(),
            ),
            (
                json!({"event": "verify_failed", "summary": "2 tests"}),
                "Verification failed: 2 tests".to_owned(),
            ),
            (
                json!({"event": "error", "reason": "it broke"}),
                "Session failed: it broke. Machine will be cleaned up.".to_owned(),
            ),
            (
                json!({"event": "error"}),
                "Session failed: the run gave no reason. Machine will be cleaned up.".to_owned(),
            ),
        ];
        for (body, sentence) in rows {
            let event = SessionEvent::parse(&body).unwrap();
            assert_eq!(event.ticket_message(page), sentence);
            assert_eq!(SessionEvent::parse(&event.to_body()), Ok(event));
        }
    }

    #[test]
    fn rejects_invalid_events() {
        use SessionEventError as E;
        let rows = [
            (json!({}), E::EventRequired),
            (json!({"event": 7}), E::EventRequired),
            (json!({"event": "party"}), E::Unknown("party".into())),
            (json!({"event": "implementation_complete"}), E::PullRequired),
            (
                json!({"event": "implementation_complete", "prUrl": "javascript:x/pull/7"}),
                E::PullRequired,
            ),
            (
                json!({"event": "implementation_complete", "prUrl": "https://h/o/r/pull/7", "prNumber": 8}),
                E::PullRequired,
            ),
        ];
        for (body, error) in rows {
            assert_eq!(SessionEvent::parse(&body), Err(error), "{body}");
        }
    }

    #[test]
    fn repeated_events_have_the_same_dedup_key() {
        let body = |id: Value| json!({"event": "verify_running", "id": id});
        let identity = |body: &Value| SessionEvent::VerifyRunning.dedup_key(body);
        assert_eq!(identity(&body(json!("a"))), identity(&body(json!("a"))));
        assert_ne!(identity(&body(json!("a"))), identity(&body(json!("b"))));
        assert_eq!(identity(&body(Value::Null)), identity(&json!({})));
    }
}
