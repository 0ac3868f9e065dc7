//! State of the failing checks of a pull request, as it is shown.

use serde::{Deserialize, Serialize};

use super::summary;

/// State of the failing checks of a pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum CiStatus {
    /// None fails, or that is not known yet.
    #[default]
    Quiet,
    /// Some failed before the last push of a person. Those of the new head commit have not ended.
    Unjudged,
    /// Those that fail also fail on the base branch.
    OnBase {
        /// Names of the checks.
        checks: Vec<String>,
    },
    /// Failed jobs run again.
    Rerunning {
        /// Names of the checks.
        checks: Vec<String>,
    },
    /// A run is about to start.
    Due {
        /// Names of the checks.
        checks: Vec<String>,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        of: u32,
    },
    /// A run works on them, or its push is being checked.
    Repairing {
        /// Names of the checks.
        checks: Vec<String>,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        of: u32,
    },
    /// Left to a person.
    Stopped {
        /// Names of the checks.
        checks: Vec<String>,
        /// Reason.
        reason: CiStop,
    },
}

/// Reason why no run for failing checks starts until a person pushes.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CiStop {
    /// The repository sets `attempts: 0`.
    Off,
    /// A run left the failure as it was.
    SameFailure,
    /// All attempts are used.
    AttemptsUsed,
    /// An operator cancelled a run.
    Cancelled,
}

impl CiStatus {
    /// Returns the state as a sentence without a full stop. `None` if nothing fails.
    pub fn message(&self) -> Option<String> {
        let (checks, state) = match self {
            CiStatus::Quiet | CiStatus::Unjudged => return None,
            CiStatus::OnBase { checks } => (checks, "also on the base branch".to_owned()),
            CiStatus::Rerunning { checks } => (checks, "running again".to_owned()),
            CiStatus::Due {
                checks,
                attempt,
                of,
            } => (checks, format!("before attempt {attempt} of {of}")),
            CiStatus::Repairing {
                checks,
                attempt,
                of,
            } => (checks, format!("attempt {attempt} of {of}")),
            CiStatus::Stopped { checks, reason } => (checks, reason.as_str().to_owned()),
        };
        Some(format!("CI is red: {}, {state}", summary(checks)))
    }
}

impl CiStop {
    /// Returns the reason as the end of a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            CiStop::Off => "not repaired automatically",
            CiStop::SameFailure => "stopped after the same failure came back",
            CiStop::AttemptsUsed => "stopped after the last attempt",
            CiStop::Cancelled => "stopped by an operator",
        }
    }
}
