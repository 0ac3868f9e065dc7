//! Counters of runs and pull requests.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use super::DurationHistogram;
use crate::decision::WaitReason;
use crate::job_filter::StateClass;
use crate::usage::MicroUsd;

/// Counters of the runs of a project in an hour or a day.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunCounts {
    /// Runs whose start a host accepted.
    pub started: u64,
    /// Ended runs with this status; likewise below.
    pub completed: u64,
    /// See [`StateClass::ReviewFailed`].
    pub review_failed: u64,
    /// See [`StateClass::Failed`].
    pub failed: u64,
    /// See [`StateClass::Cancelled`].
    pub cancelled: u64,
    /// See [`StateClass::TimedOut`].
    pub timed_out: u64,
    /// Cost of the ended runs that reported one, in micro-dollars.
    pub cost: u64,
    /// Number of these runs.
    pub priced: u64,
}

impl RunCounts {
    /// Returns the number of ended runs.
    pub fn ended(&self) -> u64 {
        self.completed + self.review_failed + self.failed + self.cancelled + self.timed_out
    }

    /// Returns the cost in dollars. `None` if runs ended and none reported a cost.
    pub fn cost_usd(&self) -> Option<f64> {
        known_cost(self.ended(), self.priced, self.cost)
    }

    /// Counts an ended run of this class.
    pub(super) fn count_end(&mut self, class: StateClass) {
        let counter = match class {
            StateClass::Active => return,
            StateClass::Completed => &mut self.completed,
            StateClass::ReviewFailed => &mut self.review_failed,
            StateClass::Failed => &mut self.failed,
            StateClass::Cancelled => &mut self.cancelled,
            StateClass::TimedOut => &mut self.timed_out,
        };
        *counter += 1;
    }

    fn combine(&mut self, other: &Self, combine: impl Fn(u64, u64) -> u64) {
        let both = |left: &mut u64, right: u64| *left = combine(*left, right);
        both(&mut self.started, other.started);
        both(&mut self.completed, other.completed);
        both(&mut self.review_failed, other.review_failed);
        both(&mut self.failed, other.failed);
        both(&mut self.cancelled, other.cancelled);
        both(&mut self.timed_out, other.timed_out);
        both(&mut self.cost, other.cost);
        both(&mut self.priced, other.priced);
    }
}

impl AddAssign<&Self> for RunCounts {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }
}

impl SubAssign<&Self> for RunCounts {
    fn sub_assign(&mut self, other: &Self) {
        self.combine(other, u64::saturating_sub);
    }
}

fn known_cost(runs: u64, priced: u64, micros: u64) -> Option<f64> {
    let is_known = runs == 0 || priced > 0;
    is_known.then(|| MicroUsd::from_micros(micros).to_usd())
}

/// Counters of the scoreboard: runs by the day of their end, waits by the day of their begin, and pull
/// requests by the day on which they were opened.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScoreCounts {
    /// Ended runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub runs: u64,
    /// Ended runs that reported a cost.
    #[serde(skip_serializing_if = "is_zero")]
    pub priced: u64,
    /// Their cost, in micro-dollars.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost: u64,
    /// Failed runs by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// Begun waits by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<WaitReason, u64>,
    /// Opened pull requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub pulls: u64,
    /// Pull requests that are merged now.
    #[serde(skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Pull requests that are closed now.
    #[serde(skip_serializing_if = "is_zero")]
    pub closed: u64,
    /// Runs for feedback on the pull requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub rounds: u64,
    /// Pull requests whose commits were read.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_pulls: u64,
    /// Commits of people in these pull requests, after the first commit of a run.
    #[serde(skip_serializing_if = "is_zero")]
    pub human_commits: u64,
    /// Time from the request to the pull request.
    #[serde(skip_serializing_if = "DurationHistogram::is_empty")]
    pub to_pull: DurationHistogram,
    /// Time from the request to the merge.
    #[serde(skip_serializing_if = "DurationHistogram::is_empty")]
    pub to_merge: DurationHistogram,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ScoreCounts {
    /// Returns the number of pull requests that are open now.
    pub fn open(&self) -> u64 {
        self.pulls.saturating_sub(self.merged + self.closed)
    }

    fn combine(&mut self, other: &Self, combine: impl Fn(u64, u64) -> u64) {
        let both = |left: &mut u64, right: u64| *left = combine(*left, right);
        both(&mut self.runs, other.runs);
        both(&mut self.priced, other.priced);
        both(&mut self.cost, other.cost);
        both(&mut self.pulls, other.pulls);
        both(&mut self.merged, other.merged);
        both(&mut self.closed, other.closed);
        both(&mut self.rounds, other.rounds);
        both(&mut self.read_pulls, other.read_pulls);
        both(&mut self.human_commits, other.human_commits);
        for (reason, count) in &other.failures {
            both(self.failures.entry(reason.clone()).or_default(), *count);
        }
        for (reason, count) in &other.waits {
            both(self.waits.entry(*reason).or_default(), *count);
        }
        self.failures.retain(|_, count| *count > 0);
        self.waits.retain(|_, count| *count > 0);
    }
}

impl AddAssign<&Self> for ScoreCounts {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
        self.to_pull.add(&other.to_pull);
        self.to_merge.add(&other.to_merge);
    }
}

impl SubAssign<&Self> for ScoreCounts {
    fn sub_assign(&mut self, other: &Self) {
        self.combine(other, u64::saturating_sub);
        self.to_pull.subtract(&other.to_pull);
        self.to_merge.subtract(&other.to_merge);
    }
}

/// Counters of a row of the scoreboard over its range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScoreTotals {
    /// Sums of the counters.
    pub counts: ScoreCounts,
    /// Pull requests that have been open for 7 days.
    pub stale_open: u64,
}

impl AddAssign<&Self> for ScoreTotals {
    fn add_assign(&mut self, other: &Self) {
        self.counts += &other.counts;
        self.stale_open += other.stale_open;
    }
}

impl ScoreTotals {
    /// Returns merged ÷ (merged + closed + open for 7 days). `None` without such a pull request.
    pub fn merged_share(&self) -> Option<f64> {
        let counts = &self.counts;
        ratio(
            counts.merged,
            counts.merged + counts.closed + self.stale_open,
        )
    }

    /// Returns the mean number of rounds of review per pull request.
    pub fn review_rounds(&self) -> Option<f64> {
        ratio(self.counts.rounds, self.counts.pulls)
    }

    /// Returns the mean number of commits of people per pull request whose commits were read.
    pub fn human_commits_after(&self) -> Option<f64> {
        ratio(self.counts.human_commits, self.counts.read_pulls)
    }

    /// Returns the cost of the runs in dollars. `None` if runs ended and none reported a cost.
    pub fn cost_usd(&self) -> Option<f64> {
        known_cost(self.counts.runs, self.counts.priced, self.counts.cost)
    }

    /// Returns the cost of the runs per merged pull request, in dollars, rounded to cents.
    pub fn cost_per_merged_usd(&self) -> Option<f64> {
        let merged = self.counts.merged;
        let cost = self.cost_usd().filter(|_| merged > 0)?;
        Some((cost / merged as f64 * 100.0).round() / 100.0)
    }
}

/// Quotient of two counts, rounded to four decimals. `None` if the divisor is zero.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 10_000.0).round() / 10_000.0)
}
