//! One run that we asked for, from its reservation to its end. (spec: *Job status*)

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{JobId, Repo, TeamKey};
use super::issue::{IssueRef, Phase};
use super::limits;
use super::report::{FailureCode, ResultReport, RunPhase, Usage};
use super::stage::Stage;
use super::time::Timestamp;

/// A job.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub id: JobId,
    /// The first job of the issue; planning and implementation of one issue share it.
    pub group: JobId,
    pub kind: JobKind,
    pub issue: IssueRef,
    pub team: TeamKey,
    pub repo: Repo,
    pub runner: RunnerKind,
    /// A shadow run is watched like any other and owes nothing to the outside.
    #[serde(default)]
    pub shadow: bool,
    #[serde(default)]
    pub session_image: Option<String>,
    /// How many dispatches the issue has had, this one included.
    pub dispatch_number: u32,
    pub branch: String,
    /// Whether the run can report to us; without that it is judged by its end alone.
    #[serde(rename = "callbacks")]
    pub has_callbacks: bool,
    /// How long the run may take, in minutes.
    #[serde(rename = "minutes")]
    pub timeout_minutes: u32,
    pub state: JobState,
    #[serde(default)]
    pub run: Option<RunHandle>,
    #[serde(default)]
    pub pull: Option<PullRequestRef>,
    /// The host's own word for how the run ended.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// The HTTP status with which the host refused to start the run, if it did.
    #[serde(rename = "refusedWith", default)]
    pub start_refusal_status: Option<u16>,
    pub reserved_at: Timestamp,
    #[serde(default)]
    pub dispatched_at: Option<Timestamp>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When the run was first seen to have ended without having reported.
    #[serde(default)]
    pub run_ended_at: Option<Timestamp>,
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    /// What it used, as far as it told.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// The stage of the issue that asked for the run.
    #[serde(rename = "askedAt", default)]
    pub trigger_stage: Option<Stage>,
    /// When what the run was to do is taken up again by itself: of a run that ended because the model
    /// provider's usage limit was reached.
    #[serde(default)]
    pub resumes_at: Option<Timestamp>,
    /// SHA-256 of the nonce that the run's session shows, in lower-case hexadecimal.
    #[serde(default)]
    pub nonce_hash: Option<String>,
    /// Whether the session itself has told its ticket that it fails.
    #[serde(rename = "failureTold", default)]
    pub failure_reported: bool,
    /// When the session's machine was taken down.
    #[serde(rename = "machineGoneAt", default)]
    pub machine_destroyed_at: Option<Timestamp>,
    /// Whether the run's own result was accepted; its token is spent then.
    #[serde(rename = "reported", default)]
    pub result_accepted: bool,
    /// The accepted result, until the repository host has confirmed the pull request that it names.
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed_result: Option<Box<UnconfirmedResult>>,
}

/// Result of a run that is judged when its pull request has been looked up.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnconfirmedResult {
    pub report: ResultReport,
    pub since: Timestamp,
}

/// What a step of a job may change in it, read by itself: steps are many, and change nothing mostly.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    pub runner: RunnerKind,
    pub state: JobState,
    #[serde(default)]
    pub run: Option<RunHandle>,
    #[serde(default)]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    Planning,
    Implementation,
    GapFill,
    FollowUp,
}

impl JobKind {
    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Planning => "planning",
            JobKind::Implementation => "implementation",
            JobKind::GapFill => "gap-fill",
            JobKind::FollowUp => "follow-up",
        }
    }

    /// The phase that its run token is good for.
    pub fn run_phase(self) -> RunPhase {
        match self {
            JobKind::Planning => RunPhase::Planning,
            JobKind::Implementation => RunPhase::Implementation,
            JobKind::GapFill | JobKind::FollowUp => RunPhase::GapAnalysis,
        }
    }

    /// The phase of the issue that this job moves along; none for work on an open pull request.
    pub fn phase(self) -> Option<Phase> {
        match self {
            JobKind::Planning => Some(Phase::Planning),
            JobKind::Implementation => Some(Phase::Implementation),
            JobKind::GapFill | JobKind::FollowUp => None,
        }
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

/// Where a run executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerKind {
    Ci,
    Vm,
    Local,
}

impl RunnerKind {
    pub fn as_str(self) -> &'static str {
        match self {
            RunnerKind::Ci => "ci",
            RunnerKind::Vm => "vm",
            RunnerKind::Local => "local",
        }
    }
}

/// Status of a job, each with what it alone knows. Terminal states never change again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum JobState {
    /// Reserved; nobody outside knows of it yet.
    #[serde(rename = "unknown")]
    Reserved,
    Dispatched,
    Running,
    Completed,
    ReviewFailed {
        unresolved: Vec<String>,
    },
    Failed {
        code: Option<FailureCode>,
        reason: String,
    },
    TimedOut {
        reason: TimeoutReason,
    },
}

impl JobState {
    /// The spec's word for it.
    pub fn status(&self) -> &'static str {
        match self {
            JobState::Reserved => "unknown",
            JobState::Dispatched => "dispatched",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::ReviewFailed { .. } => "review_failed",
            JobState::Failed { .. } => "failed",
            JobState::TimedOut { .. } => "timed_out",
        }
    }

    pub fn is_terminal(&self) -> bool {
        match self {
            JobState::Reserved | JobState::Dispatched | JobState::Running => false,
            JobState::Completed
            | JobState::ReviewFailed { .. }
            | JobState::Failed { .. }
            | JobState::TimedOut { .. } => true,
        }
    }
}

/// Why a job timed out. (spec: *Job status*)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutReason {
    ContainerTimeout,
    MachineTimeout,
    RunNotFound,
    TimedOut,
}

impl TimeoutReason {
    /// What happened, of a run with this time budget.
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

    pub fn as_str(self) -> &'static str {
        match self {
            TimeoutReason::ContainerTimeout => "container_timeout",
            TimeoutReason::MachineTimeout => "machine_timeout",
            TimeoutReason::RunNotFound => "run_not_found",
            TimeoutReason::TimedOut => "timed_out",
        }
    }
}

/// How to reach a run at its runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RunHandle {
    Ci {
        id: u64,
        url: String,
    },
    Machine {
        id: String,
        /// Where people read its log.
        #[serde(default)]
        log_url: Option<String>,
    },
    Container {
        id: String,
    },
}

impl RunHandle {
    /// Where people read the run's log, when its host has a page for it.
    pub fn log_url(&self) -> Option<&str> {
        match self {
            RunHandle::Ci { url, .. } => Some(url.as_str()),
            RunHandle::Machine { log_url, .. } => log_url.as_deref(),
            RunHandle::Container { .. } => None,
        }
        .filter(|url| !url.is_empty())
    }
}

/// A pull request that a run opened, or works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRef {
    pub number: u64,
    pub url: String,
}

impl PullRequestRef {
    /// Reads the page address of a pull request, `https://…/pull/7`. Whoever reports one may be a
    /// stranger: what could be read as more than an address is none.
    pub fn from_url(url: &str) -> Option<Self> {
        let is_web = url.starts_with("https://") || url.starts_with("http://");
        let is_plain = url
            .chars()
            .all(|c| c.is_ascii_graphic() && !"<>()[]`".contains(c));
        let (_, number) = url.trim_end_matches('/').rsplit_once("/pull/")?;
        (is_web && is_plain).then_some(Self {
            number: number.parse().ok()?,
            url: url.to_owned(),
        })
    }

    /// Whether `page` is its address; hosts ignore case.
    pub fn matches_url(&self, page: &str) -> bool {
        let own = self.url.trim_end_matches('/');
        own.eq_ignore_ascii_case(page.trim_end_matches('/'))
    }
}

impl Job {
    pub fn is_active(&self) -> bool {
        !self.state.is_terminal()
    }

    /// The run's time budget, from its dispatch, with the grace a CI job gets.
    pub fn timeout(&self) -> Duration {
        let budget = Duration::from_secs(u64::from(self.timeout_minutes) * 60);
        match self.runner {
            RunnerKind::Ci => budget + limits::JOB_TIMEOUT_GRACE,
            RunnerKind::Vm | RunnerKind::Local => budget,
        }
    }

    /// Whether the run should have shown up by `now`. A job that is still reserved waits for
    /// nothing: its start is an effect that is retried and given up by itself.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.state == JobState::Dispatched
            && self.run.is_none()
            && self.age(now) >= Some(limits::RUN_LOOKUP_TIMEOUT)
    }

    /// The time budget that the run has used up by `now`, if it is still at work.
    pub fn exceeded_timeout(&self, now: Timestamp) -> Option<TimeoutReason> {
        let at_work =
            self.is_active() && self.run_ended_at.is_none() && self.unconfirmed_result.is_none();
        let over = at_work && self.age(now) >= Some(self.timeout());
        over.then(|| self.timeout_reason())
    }

    /// Whether its run ended so long ago that it is not to wait any longer for what its host refuses
    /// to tell.
    pub fn is_outcome_lookup_expired(&self, now: Timestamp) -> bool {
        self.run_ended_at
            .is_some_and(|ended_at| now.since(ended_at) >= limits::OUTCOME_LOOKUP_TIMEOUT)
    }

    /// Whether a report of its run may open a pull request for its ticket. Work on an open pull
    /// request stays with that one; a plan and a shadow open none.
    pub fn may_open_pull_request(&self) -> bool {
        self.kind == JobKind::Implementation && !self.shadow && self.pull.is_none()
    }

    /// What it is called when this job's time is used up.
    pub fn timeout_reason(&self) -> TimeoutReason {
        match self.runner {
            RunnerKind::Ci => TimeoutReason::TimedOut,
            RunnerKind::Vm => TimeoutReason::MachineTimeout,
            RunnerKind::Local => TimeoutReason::ContainerTimeout,
        }
    }

    /// Whether its run had been at work about as long as the host lets it, when it ended. A host that
    /// ends it for that says no more than that it was cancelled.
    pub fn has_reached_host_timeout(&self, now: Timestamp) -> bool {
        let budget = Duration::from_secs(u64::from(self.timeout_minutes) * 60);
        let late = limits::MAX_START_DETECTION_DELAY.min(budget / 10);
        let ended_at = self.run_ended_at.unwrap_or(now);
        self.runner == RunnerKind::Ci
            && self
                .started_at
                .is_some_and(|began| ended_at.since(began) + late >= budget)
    }

    /// Time since the dispatch.
    fn age(&self, now: Timestamp) -> Option<Duration> {
        Some(now.since(self.dispatched_at?))
    }
}
