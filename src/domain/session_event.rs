//! What a session says of itself on the way: the body of `POST /api/status`, and the comment that
//! each event becomes. (spec: *Ticket comments posted*)

use serde_json::{Value, json};

use super::comments;
use super::job::PullRequestRef;
use super::json_number::non_negative_integer;

/// Longest name that a session may give an event, in bytes.
const MAX_ID: usize = 64;

/// An event of a session's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The repository is cloned and installed.
    SetupComplete,
    /// The pull request is open.
    ImplementationComplete {
        pull: PullRequestRef,
    },
    VerifyRunning,
    VerifyPassed,
    VerifyFailed {
        summary: String,
    },
    /// The run is about to end badly.
    Error {
        reason: String,
    },
}

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEventError {
    EventRequired,
    Unknown(String),
    PullRequired,
}

impl SessionEvent {
    /// Reads an untrusted body.
    ///
    /// # Errors
    /// When it names no event that we know, or no pull request where it must.
    pub fn parse(body: &Value) -> Result<Self, SessionEventError> {
        let text = |name: &str| body[name].as_str().map(str::trim).unwrap_or_default();
        let told = |name: &str| comments::reason_or_default(Some(text(name)));
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
                summary: told("summary"),
            },
            "error" => SessionEvent::Error {
                reason: told("reason"),
            },
            unknown => return Err(SessionEventError::Unknown(unknown.to_owned())),
        })
    }

    /// Its name on the wire.
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

    /// The fields beside nonce and id, as a run sends them.
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

    /// What tells it from others of its job, so that a repeat is known: the id that the session gave
    /// it. An event without one happens once in its words.
    pub fn dedup_key(&self, body: &Value) -> String {
        match body["id"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => format!("{}:{}", self.name(), comments::truncate(id, MAX_ID, "")),
            None => self.to_body().to_string(),
        }
    }

    /// The sentence on the ticket. The address of a pull request is the host's own, by its number: what
    /// a run reports may lead anywhere.
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

/// The pull request of a body; its address alone will do.
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
    fn each_event_becomes_its_sentence_word_for_word() {
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
    fn what_is_no_event_is_told_apart() {
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
    fn a_repeat_has_the_same_identity() {
        let body = |id: Value| json!({"event": "verify_running", "id": id});
        let identity = |body: &Value| SessionEvent::VerifyRunning.dedup_key(body);
        assert_eq!(identity(&body(json!("a"))), identity(&body(json!("a"))));
        assert_ne!(identity(&body(json!("a"))), identity(&body(json!("b"))));
        assert_eq!(identity(&body(Value::Null)), identity(&json!({})));
    }
}
