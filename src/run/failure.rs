//! Failure of a run.

use crate::git::GitError;
use domain::report::FailureCode;
use domain::time::Timestamp;

/// Reason of a run that reached its time limit.
pub(crate) const OUT_OF_TIME: &str = "the run reached its time limit";

/// Failure of a step, and so of the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RunFailure {
    /// Machine-readable cause, if any.
    pub code: Option<FailureCode>,
    /// Reason for people.
    pub reason: String,
    /// Time at which the model provider accepts requests again, if it is rate limited.
    pub retry_at: Option<Timestamp>,
}

impl RunFailure {
    /// Creates a failure with a code.
    pub(crate) fn new(code: FailureCode, reason: impl ToString) -> Self {
        Self {
            code: Some(code),
            reason: reason.to_string(),
            retry_at: None,
        }
    }

    /// Creates the failure of a run that reached its time limit.
    pub(crate) fn out_of_time() -> Self {
        Self::new(FailureCode::TimedOut, OUT_OF_TIME)
    }

    /// Creates the failure of a run that was stopped by a signal.
    pub(crate) fn stopped() -> Self {
        Self::new(FailureCode::Cancelled, "the run was stopped by a signal")
    }

    /// Whether the run ended to ask people a question, which is no defect.
    pub(crate) fn is_question(&self) -> bool {
        self.code == Some(FailureCode::NeedsInput)
    }

    /// Creates a failure without a code.
    pub(crate) fn other(reason: impl ToString) -> Self {
        Self {
            code: None,
            reason: reason.to_string(),
            retry_at: None,
        }
    }
}

/// Formats the failure. See docs/behaviour.md#run-failures.
pub(crate) fn clone_failed(error: GitError) -> RunFailure {
    let reason = match &error {
        GitError::Failed { code, stderr, .. } => {
            format!("git clone failed (exit {code}): {stderr}")
        }
        other => format!("git clone failed: {other}"),
    };
    RunFailure::new(FailureCode::CloneFailed, reason)
}
