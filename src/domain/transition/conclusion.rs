//! How a run ended, as its host states it.

use super::FailureKind;
use crate::machine::MachineProblem;

/// Why a run that has ended has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingReport {
    /// None has arrived.
    NotArrived,
    /// The report that it left was refused, for this reason.
    Refused(String),
}

/// How a run ended, as its host states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunConclusion {
    /// Conclusion of the host, such as `success` or `exit code 1`.
    Reported(String),
    /// Problem of its machine, see [`MachineProblem`].
    MachineProblem {
        /// Sentence about the machine.
        message: String,
        /// Kind of the failure.
        kind: FailureKind,
    },
}

impl RunConclusion {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Reported(text) | Self::MachineProblem { message: text, .. } => text,
        }
    }
}

impl From<&MachineProblem> for RunConclusion {
    fn from(problem: &MachineProblem) -> Self {
        Self::MachineProblem {
            message: problem.message.clone(),
            kind: problem.kind,
        }
    }
}

impl<T: Into<String>> From<T> for RunConclusion {
    fn from(reported: T) -> Self {
        Self::Reported(reported.into())
    }
}
