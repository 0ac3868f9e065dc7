//! Checks of a pull request's head commit, and what the service does when they fail.
//!
//! [`judge`] separates failing checks from those that fail on the base branch too. [`CiRecord::next_step`] decides:
//! failed jobs of GitHub Actions run once more, then at most two runs of the service repair the failure. A failure
//! that a repair did not change, and one that remains after the last attempt, is left to a person.

mod decision;
mod failures;
mod fingerprint;
mod record;
mod status;

#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::ci_settings::CiSettings;
use crate::sanitize;
use crate::time::Timestamp;

pub use decision::{ActionsRun, CiSituation, CiStep};
pub use failures::{FailedCheck, MAX_LOG_BYTES, format_failures};
pub use fingerprint::fingerprint;
pub use record::{CiAttempt, CiFlake, CiRecord, CiRerun};
pub use status::{CiStatus, CiStop};

/// Maximum number of names of checks that are kept.
const MAX_NAMES: usize = 20;

/// Maximum length of the name of a check, in bytes.
const MAX_NAME_BYTES: usize = 120;

/// Check of a commit: a check run, or a commit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadCheck {
    /// Name of the check run, or context of the commit status.
    pub name: String,
    /// Slug of the App. Empty if a person created the status.
    pub app: String,
    /// Outcome.
    pub outcome: CheckOutcome,
    /// Address of the details.
    pub url: Option<String>,
    /// Workflow job and its run. `None` for checks of other Apps and for commit statuses.
    pub job: Option<ActionsJob>,
    /// Title of the output, or description of the commit status.
    pub title: String,
    /// Summary of the output.
    pub summary: String,
}

/// Job of a workflow of GitHub Actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionsJob {
    /// Id of the job, which is also the id of the check run.
    pub id: u64,
    /// Id of the workflow run. `None` if the check does not name it.
    pub run: Option<u64>,
    /// Id of the check suite.
    pub suite: Option<u64>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckOutcome {
    /// Not ended.
    Pending,
    /// Succeeded, or ended without a result that counts.
    Passed,
    /// Cancelled or outdated: says nothing about the commit.
    Inconclusive,
    /// Failed.
    Failed,
    /// Did not run, or waits for a person. A failure only if the base branch requires the check.
    FailedIfRequired,
}

impl CheckOutcome {
    /// Returns the outcome for the conclusion of a check run, or the state of a commit status. `None` is a check
    /// that has not ended. An unknown conclusion is no failure.
    pub fn of(conclusion: Option<&str>) -> Self {
        match conclusion {
            None | Some("pending" | "expected") => CheckOutcome::Pending,
            Some("failure" | "timed_out" | "error") => CheckOutcome::Failed,
            Some("action_required" | "startup_failure") => CheckOutcome::FailedIfRequired,
            Some("success" | "neutral" | "skipped") => CheckOutcome::Passed,
            Some(_) => CheckOutcome::Inconclusive,
        }
    }
}

/// Name and App of a check. The name alone does not prove the origin.
pub type CheckKey = (String, String);

impl HeadCheck {
    /// Returns name and App.
    pub fn key(&self) -> CheckKey {
        (self.name.clone(), self.app.clone())
    }
}

/// Result of all checks of a head commit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadVerdict {
    /// A check has not ended, and nothing is decided before.
    Pending,
    /// None fails.
    Green,
    /// Some fail.
    Red {
        /// Checks that the pull request makes fail.
        ours: Vec<HeadCheck>,
        /// Names of checks that fail on the base branch too.
        inherited: Vec<String>,
    },
}

/// Judges the checks of a head commit. `required` holds the required checks of those that fail only if required,
/// `on_base` the checks that fail on the head commit of the base branch.
pub fn judge(
    checks: &[HeadCheck],
    settings: &CiSettings,
    required: &BTreeSet<CheckKey>,
    on_base: &BTreeSet<CheckKey>,
) -> HeadVerdict {
    let counted = || checks.iter().filter(|check| !settings.ignores(&check.name));
    let fails = |check: &&HeadCheck| match check.outcome {
        CheckOutcome::Failed => true,
        CheckOutcome::FailedIfRequired => required.contains(&check.key()),
        CheckOutcome::Pending | CheckOutcome::Passed | CheckOutcome::Inconclusive => false,
    };
    if counted().any(|check| check.outcome == CheckOutcome::Pending) {
        return HeadVerdict::Pending;
    }
    let failing = counted().filter(fails).cloned();
    let (inherited, mut ours): (Vec<HeadCheck>, Vec<HeadCheck>) =
        failing.partition(|check| on_base.contains(&check.key()));
    ours.sort_by(|a, b| a.name.cmp(&b.name));
    match (ours.is_empty(), inherited.is_empty()) {
        (true, true) => HeadVerdict::Green,
        _ => HeadVerdict::Red {
            ours,
            inherited: names(&inherited),
        },
    }
}

/// Returns the names of checks in order, each once, cleaned and truncated.
pub fn names(checks: &[HeadCheck]) -> Vec<String> {
    let names: BTreeSet<String> = checks.iter().map(|check| shown_name(&check.name)).collect();
    names.into_iter().take(MAX_NAMES).collect()
}

/// Returns the name of a check as it is shown.
fn shown_name(name: &str) -> String {
    let name = sanitize::single_line(name);
    sanitize::truncate(name.trim(), MAX_NAME_BYTES, sanitize::ELLIPSIS).into_owned()
}

/// Returns the first name and the number of the others.
pub(crate) fn summary(names: &[String]) -> String {
    let first = names.first().map(String::as_str).unwrap_or_default();
    match names.len() {
        0 | 1 => first.to_owned(),
        count => format!("{first} and {} more", count - 1),
    }
}
