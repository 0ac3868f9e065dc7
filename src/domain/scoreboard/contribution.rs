//! Contributions of stored rows to the counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Day, Dimension, DurationHistogram, RunCounts, ScoreCounts};
use crate::feedback::{PullRequestRecord, PullRequestStatus};
use crate::ids::TeamKey;
use crate::job::{Job, JobKind, JobState};
use crate::job_filter::StateClass;
use crate::report::FailureCode;
use crate::time::Timestamp;
use crate::usage::UsageTotals;

/// Key of runs whose agent or model is unknown.
const UNKNOWN: &str = "unknown";

/// Key of tickets without labels.
const NO_LABEL: &str = "none";

/// Failure reason of runs that failed without a code.
const OTHER_FAILURE: &str = "OTHER";

/// Contribution to the counters of the hour and the day of `at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContribution {
    /// Time that it counts at.
    pub at: Timestamp,
    /// Project.
    pub team: TeamKey,
    /// Whether it is of a shadow run, which is counted apart.
    pub shadow: bool,
    /// Counters.
    pub counts: RunCounts,
}

/// Returns the contributions of a job to the counters of runs: its start and its end.
pub fn run_contributions(job: &Job) -> Vec<RunContribution> {
    let contribution = |at, counts| RunContribution {
        at,
        team: job.team.clone(),
        shadow: job.shadow,
        counts,
    };
    let started = job.dispatched_at.map(|at| {
        let counts = RunCounts {
            started: 1,
            ..RunCounts::default()
        };
        contribution(at, counts)
    });
    let ended = (!job.is_active()).then(|| {
        let (cost, priced) = cost(job);
        let mut counts = RunCounts {
            cost,
            priced,
            ..RunCounts::default()
        };
        counts.count_end(StateClass::of(&job.state));
        contribution(ended_at(job), counts)
    });
    started.into_iter().chain(ended).collect()
}

/// Attributes of a run by which the scoreboard groups it and the pull request that it opened.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAttributes {
    /// Project.
    pub team: TeamKey,
    /// Kind of the run.
    pub kind: JobKind,
    /// Agent program.
    #[serde(default)]
    pub agent: Option<String>,
    /// Model.
    #[serde(default)]
    pub model: Option<String>,
    /// Labels of the ticket.
    #[serde(default)]
    pub labels: Vec<String>,
}

impl RunAttributes {
    /// Returns the attributes of a job's run.
    pub fn of(job: &Job) -> Self {
        Self {
            team: job.team.clone(),
            kind: job.kind,
            agent: job.agent.clone(),
            model: job.model.clone(),
            labels: job.labels.clone(),
        }
    }

    fn rows(&self) -> Vec<(Dimension, String)> {
        let or_unknown = |name: &Option<String>| name.as_deref().unwrap_or(UNKNOWN).to_owned();
        let mut rows = vec![
            (Dimension::Total, String::new()),
            (Dimension::Team, self.team.to_string()),
            (Dimension::Kind, self.kind.as_str().to_owned()),
            (Dimension::Agent, or_unknown(&self.agent)),
            (Dimension::Model, or_unknown(&self.model)),
        ];
        let labels = self.labels.iter().cloned();
        rows.extend(labels.map(|label| (Dimension::Label, label)));
        if self.labels.is_empty() {
            rows.push((Dimension::Label, NO_LABEL.to_owned()));
        }
        rows
    }
}

/// Contribution to the rows of the scoreboard on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreContribution {
    /// Day.
    pub day: Day,
    /// Rows that it counts in. The store folds rare keys of a dimension into one row.
    pub rows: Vec<(Dimension, String)>,
    /// Counters.
    pub counts: ScoreCounts,
}

/// Returns the contribution of a job to the scoreboard. `None` for shadow runs, and until the job has ended.
pub fn score_contribution(job: &Job) -> Option<ScoreContribution> {
    if job.is_active() || job.shadow {
        return None;
    }
    let (cost, priced) = cost(job);
    Some(ScoreContribution {
        day: Day::of(ended_at(job)),
        rows: RunAttributes::of(job).rows(),
        counts: ScoreCounts {
            runs: 1,
            cost,
            priced,
            failures: failure_reason(&job.state)
                .map(|reason| BTreeMap::from([(reason, 1)]))
                .unwrap_or_default(),
            ..ScoreCounts::default()
        },
    })
}

/// Returns the contribution of a pull request to the scoreboard. `None` for pull requests that no run of the
/// service opened.
pub fn pull_contribution(record: &PullRequestRecord) -> Option<ScoreContribution> {
    let opening = record.opening.as_ref()?;
    let opened_at = record.created_at.unwrap_or(opening.at);
    let since_trigger = |at: Timestamp| {
        let triggered_at = opening.triggered_at;
        triggered_at.map(|trigger| DurationHistogram::of(at.since(trigger)))
    };
    let merged_at = match &record.status {
        PullRequestStatus::Merged { at, .. } => Some(*at),
        PullRequestStatus::Open | PullRequestStatus::Closed => None,
    };
    Some(ScoreContribution {
        day: Day::of(opened_at),
        rows: opening.run.rows(),
        counts: ScoreCounts {
            pulls: 1,
            merged: u64::from(merged_at.is_some()),
            closed: u64::from(record.status == PullRequestStatus::Closed),
            rounds: u64::from(record.review_rounds),
            read_pulls: u64::from(record.human_commits.is_some()),
            human_commits: record.human_commits.map_or(0, u64::from),
            to_pull: since_trigger(opened_at).unwrap_or_default(),
            to_merge: merged_at.and_then(since_trigger).unwrap_or_default(),
            ..ScoreCounts::default()
        },
    })
}

/// Time of the end. Jobs that ended before the field existed count at their reservation.
fn ended_at(job: &Job) -> Timestamp {
    job.finished_at.unwrap_or(job.reserved_at)
}

/// Cost in micro-dollars, and 1 if the run reported one.
fn cost(job: &Job) -> (u64, u64) {
    let used = UsageTotals::from_ended_run(job.usage.as_ref());
    (used.cost.as_micros(), u64::from(used.unpriced == Some(0)))
}

/// Reason of a failed run. A run that was cancelled or asked a question has not failed.
fn failure_reason(state: &JobState) -> Option<String> {
    match state {
        JobState::Reserved | JobState::Dispatched | JobState::Running | JobState::Completed => None,
        JobState::ReviewFailed { .. } => Some(code_name(FailureCode::ReviewUnapproved)),
        JobState::Failed {
            code: Some(FailureCode::Cancelled | FailureCode::NeedsInput),
            ..
        } => None,
        JobState::Failed { code, .. } => {
            Some(code.map_or_else(|| OTHER_FAILURE.to_owned(), code_name))
        }
        JobState::TimedOut { reason } => Some(reason.as_str().to_uppercase()),
    }
}

fn code_name(code: FailureCode) -> String {
    let name = serde_json::to_value(code).ok();
    let name = name.as_ref().and_then(|name| name.as_str());
    name.unwrap_or(OTHER_FAILURE).to_owned()
}
