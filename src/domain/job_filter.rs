//! Filter of the dispatch log.
//!
//! [`JobFilter::classes`] and [`JobFilter::kinds`] select ranges of the index; [`JobFilter::matches`]
//! decides about each job.

use std::time::Duration;

use super::ids::TeamKey;
use super::job::{Job, JobKind, JobState};
use super::report::FailureCode;
use super::time::Timestamp;

/// Longest time from the reservation of a job to its end. GitHub cancels a workflow run after 35 days.
const MAX_RUN_TIME: Duration = Duration::from_secs(36 * 24 * 60 * 60);

/// Class of a job's state, by which jobs are indexed and counted. Cancelled runs and runs that asked a question are
/// apart from failed ones: nothing is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateClass {
    /// Not ended.
    Active,
    /// Succeeded.
    Completed,
    /// Pull request opened, with blocking findings.
    ReviewFailed,
    /// Failed; not cancelled, and without a question.
    Failed,
    /// Cancelled by a person or because its issue was closed, or ended with a question.
    Cancelled,
    /// Exceeded a time limit.
    TimedOut,
}

impl StateClass {
    /// All classes.
    pub const ALL: [Self; 6] = [
        StateClass::Active,
        StateClass::Completed,
        StateClass::ReviewFailed,
        StateClass::Failed,
        StateClass::Cancelled,
        StateClass::TimedOut,
    ];

    /// Returns the class of a state.
    pub fn of(state: &JobState) -> Self {
        match state {
            JobState::Reserved | JobState::Dispatched | JobState::Running => StateClass::Active,
            JobState::Completed => StateClass::Completed,
            JobState::ReviewFailed { .. } => StateClass::ReviewFailed,
            JobState::Failed {
                code: Some(FailureCode::Cancelled | FailureCode::NeedsInput),
                ..
            } => StateClass::Cancelled,
            JobState::Failed { .. } => StateClass::Failed,
            JobState::TimedOut { .. } => StateClass::TimedOut,
        }
    }

    /// Returns the name in the API and in index keys.
    pub fn as_str(self) -> &'static str {
        match self {
            StateClass::Active => "active",
            StateClass::Completed => "completed",
            StateClass::ReviewFailed => "review_failed",
            StateClass::Failed => "failed",
            StateClass::Cancelled => "cancelled",
            StateClass::TimedOut => "timed_out",
        }
    }
}

/// Value of the `status` filter: a status of the API, or one of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFilter {
    /// `unknown`, `dispatched` or `running`.
    Active(&'static str),
    /// Any state of a class. `active` stands for all jobs that have not ended.
    Class(StateClass),
    /// `failed`, as in the API: with the cancelled ones.
    FailedOrCancelled,
}

impl StatusFilter {
    /// Accepted values, for error messages.
    pub const NAMES: &str = "unknown, dispatched, running, active, completed, review_failed, failed, cancelled, timed_out";

    /// Parses a value.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "unknown" => StatusFilter::Active("unknown"),
            "dispatched" => StatusFilter::Active("dispatched"),
            "running" => StatusFilter::Active("running"),
            "failed" => StatusFilter::FailedOrCancelled,
            _ => StatusFilter::Class(
                StateClass::ALL
                    .into_iter()
                    .find(|class| class.as_str() == text)?,
            ),
        })
    }

    fn includes_class(self, class: StateClass) -> bool {
        match self {
            StatusFilter::Active(_) => class == StateClass::Active,
            StatusFilter::Class(own) => class == own,
            StatusFilter::FailedOrCancelled => {
                matches!(class, StateClass::Failed | StateClass::Cancelled)
            }
        }
    }

    fn matches(self, state: &JobState) -> bool {
        match self {
            StatusFilter::Active(name) => state.status() == name,
            _ => self.includes_class(StateClass::of(state)),
        }
    }
}

/// Filter of the dispatch log. An empty list or `None` matches every job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Statuses.
    pub statuses: Vec<StatusFilter>,
    /// Whether cancelled jobs are left out.
    pub excludes_cancelled: bool,
    /// Whether shadow runs are left out.
    pub excludes_shadow: bool,
    /// Kinds.
    pub kinds: Vec<JobKind>,
    /// Key of the project.
    pub team: Option<TeamKey>,
    /// Id or key of the issue, the key in any case.
    pub issue: Option<String>,
    /// Text in the key or title of the issue, in the branch or in the repository, in any case.
    pub text: Option<String>,
    /// Earliest time of the reservation.
    pub from: Option<Timestamp>,
    /// End of the time of the reservation, exclusive.
    pub to: Option<Timestamp>,
    /// Earliest time of the end. Jobs that have not ended do not match.
    pub ended_from: Option<Timestamp>,
    /// End of the time of the end, exclusive. Jobs that have not ended do not match.
    pub ended_to: Option<Timestamp>,
}

impl JobFilter {
    /// Returns the classes that can match.
    pub fn classes(&self) -> Vec<StateClass> {
        let all = StateClass::ALL.into_iter();
        let wanted = all.filter(|class| {
            let is_wanted = self.statuses.is_empty()
                || self.statuses.iter().any(|one| one.includes_class(*class));
            is_wanted && !(self.excludes_cancelled && *class == StateClass::Cancelled)
        });
        wanted.collect()
    }

    /// Returns the kinds that can match.
    pub fn kinds(&self) -> Vec<JobKind> {
        match self.kinds.is_empty() {
            true => JobKind::ALL.to_vec(),
            false => self.kinds.clone(),
        }
    }

    /// Returns the earliest time at which a job that matches can have been reserved.
    pub fn reserved_from(&self) -> Option<Timestamp> {
        let by_end = self.ended_from.map(|from| from - MAX_RUN_TIME);
        self.from.max(by_end)
    }

    /// Returns the end of the time at which a job that matches can have been reserved, exclusive.
    pub fn reserved_to(&self) -> Option<Timestamp> {
        [self.to, self.ended_to].into_iter().flatten().min()
    }

    /// Returns whether status or kind is limited.
    pub fn is_limited_by_state_or_kind(&self) -> bool {
        !self.statuses.is_empty() || !self.kinds.is_empty() || self.excludes_cancelled
    }

    /// Returns whether a job matches.
    pub fn matches(&self, job: &Job) -> bool {
        let is_any_status =
            self.statuses.is_empty() || self.statuses.iter().any(|one| one.matches(&job.state));
        let is_any_kind = self.kinds.is_empty() || self.kinds.contains(&job.kind);
        is_any_status
            && is_any_kind
            && !(self.excludes_cancelled && StateClass::of(&job.state) == StateClass::Cancelled)
            && self.team.as_ref().is_none_or(|team| *team == job.team)
            && self
                .issue
                .as_ref()
                .is_none_or(|issue| job.issue.matches_id_or_key(issue))
            && self.from.is_none_or(|from| job.reserved_at >= from)
            && self.to.is_none_or(|to| job.reserved_at < to)
            && !(self.excludes_shadow && job.shadow)
            && self
                .ended_from
                .is_none_or(|from| job.finished_at.is_some_and(|end| end >= from))
            && self
                .ended_to
                .is_none_or(|to| job.finished_at.is_some_and(|end| end < to))
            && self.text.as_ref().is_none_or(|text| contains(job, text))
    }
}

fn contains(job: &Job, text: &str) -> bool {
    let text = text.to_lowercase();
    let repo = job.repo.to_string();
    [job.issue.key.as_str(), &job.issue.title, &job.branch, &repo]
        .iter()
        .any(|field| field.to_lowercase().contains(&text))
}
