//! Time limits of a job, and the reasons of timeouts.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Job, JobState, RunnerKind};
use crate::limits;
use crate::time::Timestamp;

/// Reason of a timeout. See docs/behaviour.md#job-status.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutReason {
    /// Container or Kubernetes Job exceeded the time budget.
    ContainerTimeout,
    /// Machine exceeded the time budget.
    MachineTimeout,
    /// No run was found after the dispatch.
    RunNotFound,
    /// CI run exceeded the time budget.
    TimedOut,
}

impl TimeoutReason {
    /// Returns the text for people, for a time budget of `minutes`.
    pub fn message(self, minutes: u32) -> String {
        match self {
            TimeoutReason::RunNotFound => {
                "no run was found within 10 minutes of the dispatch".to_owned()
            }
            TimeoutReason::TimedOut
            | TimeoutReason::MachineTimeout
            | TimeoutReason::ContainerTimeout => {
                format!("the run exceeded its time budget of {minutes} minutes")
            }
        }
    }

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            TimeoutReason::ContainerTimeout => "container_timeout",
            TimeoutReason::MachineTimeout => "machine_timeout",
            TimeoutReason::RunNotFound => "run_not_found",
            TimeoutReason::TimedOut => "timed_out",
        }
    }
}

impl Job {
    /// Returns the time budget of the run since its dispatch. CI runs get
    /// 5 minutes in addition.
    pub fn timeout(&self) -> Duration {
        let budget = Duration::from_secs(u64::from(self.timeout_minutes) * 60);
        match self.runner {
            RunnerKind::Ci => budget + limits::JOB_TIMEOUT_GRACE,
            RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => budget,
        }
    }

    /// Returns whether no run was found within [`limits::RUN_LOOKUP_TIMEOUT`]. Always false for a
    /// reserved job: its start is an effect, which has its own retries and limits.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.state == JobState::Dispatched
            && self.run.is_none()
            && self.age(now) >= Some(limits::RUN_LOOKUP_TIMEOUT)
    }

    /// Returns the timeout reason if the run is still in progress and its time budget is used up.
    pub fn exceeded_timeout(&self, now: Timestamp) -> Option<TimeoutReason> {
        let in_progress =
            self.is_active() && self.run_ended_at.is_none() && self.unconfirmed_result.is_none();
        let is_over = in_progress && self.age(now) >= Some(self.timeout());
        is_over.then(|| self.timeout_reason())
    }

    /// Returns whether the run ended longer than [`limits::OUTCOME_LOOKUP_TIMEOUT`] ago. The job
    /// then ends without the outcome that its host does not return.
    pub fn is_outcome_lookup_expired(&self, now: Timestamp) -> bool {
        self.run_ended_at
            .is_some_and(|ended_at| now.since(ended_at) >= limits::OUTCOME_LOOKUP_TIMEOUT)
    }

    /// Returns the timeout reason of this job's runner.
    pub fn timeout_reason(&self) -> TimeoutReason {
        match self.runner {
            RunnerKind::Ci => TimeoutReason::TimedOut,
            RunnerKind::Vm => TimeoutReason::MachineTimeout,
            RunnerKind::Local | RunnerKind::Kubernetes => TimeoutReason::ContainerTimeout,
        }
    }

    /// Returns whether the run had used about all of its time budget when it ended. A host that
    /// stops such a run reports it as cancelled only.
    pub(crate) fn has_reached_host_timeout(&self, now: Timestamp) -> bool {
        let budget = Duration::from_secs(u64::from(self.timeout_minutes) * 60);
        let tolerance = limits::MAX_START_DETECTION_DELAY.min(budget / 10);
        let ended_at = self.run_ended_at.unwrap_or(now);
        self.runner == RunnerKind::Ci
            && self
                .started_at
                .is_some_and(|started_at| ended_at.since(started_at) + tolerance >= budget)
    }

    /// Returns the time since the dispatch.
    fn age(&self, now: Timestamp) -> Option<Duration> {
        Some(now.since(self.dispatched_at?))
    }
}
