//! Cancellation of a job, and the end of its steps.

use serde::{Deserialize, Serialize};

use super::{Job, JobState};
use crate::audit::Actor;
use crate::report::{FailureCode, StepEnd};

/// Cancellation of a run.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// Name of the actor, as in the audit log.
    pub by: String,
    /// Consequence for the work of the run.
    pub then: AfterCancel,
}

impl Cancellation {
    /// Returns the actor as people call it, without the address of an operator.
    pub fn actor(&self) -> String {
        let actor = Actor::stored(self.by.clone());
        actor.display_name().to_owned()
    }
}

/// Reason of a run that was cancelled because its issue was closed.
pub(crate) const ISSUE_CLOSED: &str = "the issue was closed";

/// Consequence of a cancellation for the work of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterCancel {
    /// The work is given up: all markers and the trigger are removed from the issue.
    Stop,
    /// The work is dispatched again: the trigger is set, even if a person removed it.
    Retry,
    /// The marker returns to the trigger stage. The work is dispatched again if the trigger is
    /// still set.
    Release,
}

impl Job {
    /// Returns the end of the steps that are open when the job ends. `None` for an active job.
    ///
    /// A run reports its result from inside its last step, so the open steps of a successful run
    /// have passed.
    pub fn step_end(&self) -> Option<StepEnd> {
        let status = match &self.state {
            JobState::Reserved | JobState::Dispatched | JobState::Running => return None,
            JobState::Completed | JobState::ReviewFailed { .. } => "passed",
            JobState::Failed {
                code: Some(FailureCode::Cancelled),
                ..
            } => "cancelled",
            JobState::Failed { .. } | JobState::TimedOut { .. } => "failed",
        };
        let at = self.finished_at?;
        Some(StepEnd { status, at })
    }

    /// Returns the consequence of the cancellation that ended the job, if one did.
    pub fn after_cancel(&self) -> Option<AfterCancel> {
        Some(self.cancellation.as_ref()?.then)
    }
}
