//! Jobs: one run each, from its reservation to its end. See docs/behaviour.md#job-status.

mod end;
mod kind;
mod time_limits;

use serde::{Deserialize, Serialize};

use super::agent_choice::JobAgents;
use super::ids::{JobId, Repo, TeamKey};
use super::issue::IssueRef;
use super::merge_report::MergeReport;
use super::report::{FailureCode, ResultReport, Usage};
use super::stage::Stage;
use super::time::Timestamp;

pub(crate) use end::ISSUE_CLOSED;
pub use end::{AfterCancel, Cancellation};
pub use kind::{JobKind, RunnerKind};
pub use time_limits::TimeoutReason;

/// Job: one dispatched run and its state.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Identifier of the job.
    pub id: JobId,
    /// Identifier of the first job of the issue. Planning and implementation of one issue share it.
    pub group: JobId,
    /// Kind of the run.
    pub kind: JobKind,
    /// Issue that the run is for.
    pub issue: IssueRef,
    /// Key of the project mapping.
    pub team: TeamKey,
    /// Repository that the run works on.
    pub repo: Repo,
    /// Runner that executes the run.
    pub runner: RunnerKind,
    /// Whether the run is a shadow run. It is tracked like any other, but its only effects end the
    /// run itself.
    #[serde(default)]
    pub shadow: bool,
    /// Container image of the session, for machines and containers.
    #[serde(default)]
    pub session_image: Option<String>,
    /// Number of dispatches of the issue, including this one.
    pub dispatch_number: u32,
    /// Number of dispatches of the issue with this kind, including this one. `None` for jobs of
    /// older versions.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// Branch that the run pushes to.
    pub branch: String,
    /// Whether the run can report to the service. Otherwise a CI run leaves its report as an artifact.
    #[serde(rename = "callbacks")]
    pub has_callbacks: bool,
    /// Time budget of the run, in minutes.
    #[serde(rename = "minutes")]
    pub timeout_minutes: u32,
    /// Current state.
    pub state: JobState,
    /// Handle of the run at its runner, once known.
    #[serde(default)]
    pub run: Option<RunHandle>,
    /// Pull request that the run opened or works on.
    #[serde(default)]
    pub pull: Option<PullRequestRef>,
    /// Conclusion of the run as reported by its host.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// HTTP status with which the host refused to start the run.
    #[serde(rename = "refusedWith", default)]
    pub start_refusal_status: Option<u16>,
    /// Time of the reservation.
    pub reserved_at: Timestamp,
    /// Time at which the runner accepted the dispatch.
    #[serde(default)]
    pub dispatched_at: Option<Timestamp>,
    /// Time at which the run was first seen in progress.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Time at which the run was first found ended without a reported result.
    #[serde(default)]
    pub run_ended_at: Option<Timestamp>,
    /// Time at which the job reached a terminal state.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    /// Cancellation that ended the job, by an operator or the reaper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Cancellation>,
    /// Usage reported by the run.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Agent program of the run, as the run reported it.
    #[serde(default)]
    pub agent: Option<String>,
    /// Model of the run's first agent pass, as the run reported it.
    #[serde(default)]
    pub model: Option<String>,
    /// Labels of the ticket at the dispatch, without the labels of the service.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Time at which the service first saw the request that led to the run. `None` for jobs stored
    /// before the field existed.
    #[serde(default)]
    pub triggered_at: Option<Timestamp>,
    /// Stage of the issue at the dispatch.
    #[serde(rename = "askedAt", default)]
    pub trigger_stage: Option<Stage>,
    /// Agents of the run.
    #[serde(default, skip_serializing_if = "JobAgents::is_empty")]
    pub agents: JobAgents,
    /// Time at which the work is dispatched again. Set if the run reached the usage limit of its
    /// model provider.
    #[serde(default)]
    pub resumes_at: Option<Timestamp>,
    /// Outcome of merging the base branch, as the run reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeReport>,
    /// Hosts, with their ports, that the run was not allowed to reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_hosts: Vec<String>,
    /// SHA-256 of the session nonce, in lower-case hexadecimal.
    #[serde(default)]
    pub nonce_hash: Option<String>,
    /// Whether the session already reported its failure on the ticket.
    #[serde(rename = "failureTold", default)]
    pub failure_reported: bool,
    /// Time at which the session machine was destroyed.
    #[serde(rename = "machineGoneAt", default)]
    pub machine_destroyed_at: Option<Timestamp>,
    /// Whether a result of the run was accepted. Its result token is then used up.
    #[serde(rename = "reported", default)]
    pub result_accepted: bool,
    /// Accepted result whose pull request the repository host has not confirmed yet.
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed_result: Option<Box<UnconfirmedResult>>,
}

/// Result that is applied after its pull request was looked up at the host.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnconfirmedResult {
    /// Result as reported.
    pub report: ResultReport,
    /// Time at which the result was accepted.
    pub since: Timestamp,
}

/// Fields of a stored job that a step report can change. Read without the rest of the job, because
/// step reports are frequent and most change nothing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// Runner that executes the run.
    pub runner: RunnerKind,
    /// Current state.
    pub state: JobState,
    /// Handle of the run at its runner, once known.
    #[serde(default)]
    pub run: Option<RunHandle>,
    /// Usage reported by the run.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Agent program of the run.
    #[serde(default)]
    pub agent: Option<String>,
    /// Model of the run.
    #[serde(default)]
    pub model: Option<String>,
}

/// State of a job, with the data that belongs to the state. Terminal states never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum JobState {
    /// Reserved and not dispatched yet.
    #[serde(rename = "unknown")]
    Reserved,
    /// Accepted by the runner and not in progress yet.
    Dispatched,
    /// In progress.
    Running,
    /// Succeeded.
    Completed,
    /// Pull request opened, but its review left blocking findings open.
    ReviewFailed {
        /// One line per open finding.
        unresolved: Vec<String>,
    },
    /// Failed, or ended without opening a pull request.
    Failed {
        /// Machine-readable reason, if known.
        code: Option<FailureCode>,
        /// Reason, as text.
        reason: String,
    },
    /// Exceeded a time limit.
    TimedOut {
        /// Limit that was exceeded.
        reason: TimeoutReason,
    },
}

impl JobState {
    /// Returns the status name in the API.
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

    /// Returns whether the state never changes again.
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

/// Identity of a run at its runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RunHandle {
    /// CI run.
    Ci {
        /// Run id at the repository host.
        id: u64,
        /// Address of the run's page. Empty if the run is only known from its own report.
        url: String,
    },
    /// Run in a virtual machine.
    Machine {
        /// Machine id at the host.
        id: String,
        /// Address of the log page.
        #[serde(default)]
        log_url: Option<String>,
    },
    /// Run in a local container.
    Container {
        /// Container id.
        id: String,
    },
    /// Run in a Kubernetes Job.
    KubernetesJob {
        /// Name of the Job.
        id: String,
    },
}

impl RunHandle {
    /// Returns the address of the run's log page, if its host has one.
    pub fn log_url(&self) -> Option<&str> {
        match self {
            RunHandle::Ci { url, .. } => Some(url.as_str()),
            RunHandle::Machine { log_url, .. } => log_url.as_deref(),
            RunHandle::Container { .. } | RunHandle::KubernetesJob { .. } => None,
        }
        .filter(|url| !url.is_empty())
    }
}

/// Pull request that a run opened or works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRef {
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
}

impl PullRequestRef {
    /// Parses the address of a pull request, such as `https://…/pull/7`. The address is untrusted:
    /// text that could contain more than an address is rejected.
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

    /// Returns whether `page` is the address of the pull request, ignoring case.
    pub fn matches_url(&self, page: &str) -> bool {
        let own = self.url.trim_end_matches('/');
        own.eq_ignore_ascii_case(page.trim_end_matches('/'))
    }
}

impl Job {
    /// Returns whether the state is not terminal.
    pub fn is_active(&self) -> bool {
        !self.state.is_terminal()
    }

    /// Returns whether a result of the run may name a pull request for its ticket. False for
    /// planning and shadow runs, and for work on an existing pull request.
    pub fn may_open_pull_request(&self) -> bool {
        self.kind == JobKind::Implementation && !self.shadow && self.pull.is_none()
    }

    /// Returns whether the job completed its ticket: it has a pull request that waits for people.
    pub fn has_opened_pull_request(&self) -> bool {
        let is_complete = matches!(
            self.state,
            JobState::Completed | JobState::ReviewFailed { .. }
        );
        self.kind == JobKind::Implementation && !self.shadow && is_complete
    }
}
