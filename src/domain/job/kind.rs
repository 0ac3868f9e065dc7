//! Kinds and runners of jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::issue::Phase;
use crate::report::RunPhase;

/// Kind of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Writes a plan on the ticket.
    Planning,
    /// Implements the ticket and opens a pull request.
    Implementation,
    /// Works on an open pull request on request of a person.
    GapFill,
    /// Works on an open pull request because of review feedback.
    FollowUp,
    /// Works on an open pull request because its checks fail.
    CiFix,
    /// Merges the base branch into the branch of an open pull request that is in conflict with it.
    Conflict,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        JobKind::Planning,
        JobKind::Implementation,
        JobKind::GapFill,
        JobKind::FollowUp,
        JobKind::CiFix,
        JobKind::Conflict,
    ];

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Planning => "planning",
            JobKind::Implementation => "implementation",
            JobKind::GapFill => "gap-fill",
            JobKind::FollowUp => "follow-up",
            JobKind::CiFix => "ci-fix",
            JobKind::Conflict => "conflict",
        }
    }

    /// Parses the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns the phase in the tokens and reports of the run.
    pub fn run_phase(self) -> RunPhase {
        match self {
            JobKind::Planning => RunPhase::Planning,
            JobKind::Implementation => RunPhase::Implementation,
            JobKind::GapFill | JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict => {
                RunPhase::GapAnalysis
            }
        }
    }

    /// Returns the phase of the issue that this job advances. `None` for work on an open pull
    /// request.
    pub fn phase(self) -> Option<Phase> {
        match self {
            JobKind::Planning => Some(Phase::Planning),
            JobKind::Implementation => Some(Phase::Implementation),
            JobKind::GapFill | JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict => None,
        }
    }

    /// Returns whether the service starts such runs on an open pull request by itself. They share a
    /// daily limit.
    pub fn is_automatic(self) -> bool {
        matches!(self, JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict)
    }
}

impl From<Phase> for JobKind {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Planning => JobKind::Planning,
            Phase::Implementation => JobKind::Implementation,
        }
    }
}

/// Runner of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerKind {
    /// CI workflow of the repository host.
    Ci,
    /// Virtual machine.
    Vm,
    /// Local container.
    Local,
    /// Kubernetes Job.
    Kubernetes,
}

impl RunnerKind {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            RunnerKind::Ci => "ci",
            RunnerKind::Vm => "vm",
            RunnerKind::Local => "local",
            RunnerKind::Kubernetes => "kubernetes",
        }
    }
}
