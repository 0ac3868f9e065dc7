//! Who runs next, and why the others wait.
//!
//! [`decide`] gives every flagged issue exactly one decision per poll. It is pure; what it decides
//! to dispatch is checked once more in the commit that reserves it. (spec: *Blocker reasons*)

mod advice;
mod failure;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, IssueKey, TeamKey};
use super::issue::{FlaggedIssue, Phase};
use super::mapping::Mapping;
use super::stage::Stage;
use super::time::Timestamp;

pub use advice::advice;
pub use failure::decision_after_failure;

/// What was decided about an issue in one poll.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub at: Timestamp,
    pub issue_identifier: IssueKey,
    pub team_key: TeamKey,
    pub outcome: DecisionOutcome,
    pub reason: Option<WaitReason>,
    pub message: String,
    pub phase: Option<Phase>,
}

impl Decision {
    /// Makes what was to run wait after all.
    pub fn set_waiting(&mut self, reason: WaitReason, why: &str) {
        self.outcome = DecisionOutcome::Waiting;
        self.reason = Some(reason);
        self.message = why.to_owned();
    }

    /// Whether it says the same as an earlier one; the time apart.
    pub fn is_repeat_of(&self, earlier: &Decision) -> bool {
        let Decision {
            at: _,
            issue_identifier,
            team_key,
            outcome,
            reason,
            message,
            phase,
        } = self;
        *outcome == earlier.outcome
            && *reason == earlier.reason
            && *phase == earlier.phase
            && *message == earlier.message
            && *team_key == earlier.team_key
            && *issue_identifier == earlier.issue_identifier
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    Dispatched,
    Waiting,
    InProgress,
    Done,
    /// Its last run failed, and nothing was decided since.
    Failed,
}

/// Why an issue waits. The first three are the spec's; the others are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitReason {
    Concurrency,
    Dedup,
    NoMapping,
    Blocked,
    Paused,
    Parked,
    Ineligible,
    Quota,
    Budget,
}

impl WaitReason {
    pub const ALL: [Self; 9] = [
        WaitReason::Concurrency,
        WaitReason::Dedup,
        WaitReason::NoMapping,
        WaitReason::Blocked,
        WaitReason::Paused,
        WaitReason::Parked,
        WaitReason::Ineligible,
        WaitReason::Quota,
        WaitReason::Budget,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            WaitReason::Concurrency => "concurrency",
            WaitReason::Dedup => "dedup",
            WaitReason::NoMapping => "no-mapping",
            WaitReason::Blocked => "blocked",
            WaitReason::Paused => "paused",
            WaitReason::Parked => "parked",
            WaitReason::Ineligible => "ineligible",
            WaitReason::Quota => "quota",
            WaitReason::Budget => "budget",
        }
    }
}

/// What the store knew when the poll began, before any ticketing system was asked: an issue whose
/// run ended while they answered still counts as busy, because the labels they show are older than
/// that end.
#[derive(Debug, Clone, Default)]
pub struct SchedulingState {
    pub mappings: BTreeMap<TeamKey, Mapping>,
    /// Issues with a job that has not ended, by the mapping it counts against.
    pub active_issues: BTreeMap<IssueId, TeamKey>,
    /// Issues whose open pull request is being worked on. They take no slot: their marker says
    /// that they are past it.
    pub active_pull_request_issues: BTreeSet<IssueId>,
    pub deduped_issues: BTreeSet<IssueId>,
    pub parked_issues: BTreeSet<IssueId>,
    /// Issues that are owed an effect: their markers are about to change.
    pub issues_with_pending_effects: BTreeSet<IssueId>,
    /// Why no run of this mapping can start at all, whatever the issue: by mapping and phase.
    pub ineligible: BTreeMap<(TeamKey, Phase), String>,
    /// Until when the repository host takes no requests for this mapping.
    pub host_limited_until: BTreeMap<TeamKey, Timestamp>,
    /// Mappings whose budget of the month is used up, and how that is told.
    pub over_budget: BTreeMap<TeamKey, String>,
    /// Until when the model provider of this mapping's runs would refuse them.
    pub model_limited_until: BTreeMap<TeamKey, Timestamp>,
}

impl SchedulingState {
    /// The mapping that an issue runs by: its team's, in its own system. Both systems may have a
    /// team of one key, and a mapping belongs to one of them.
    fn mapping_of(&self, issue: &FlaggedIssue) -> Option<&Mapping> {
        let mapping = self.mappings.get(&issue.team);
        mapping.filter(|mapping| mapping.system() == issue.issue.system)
    }
}

/// Decides about every issue. The first in the answer is the first to run; the order of the input
/// does not matter.
pub fn decide(
    view: &SchedulingState,
    mut issues: Vec<FlaggedIssue>,
    now: Timestamp,
) -> Vec<(FlaggedIssue, Decision)> {
    issues.sort_by(|one, other| turn(one).cmp(&turn(other)));
    issues.dedup_by(|one, other| one.issue.id == other.issue.id);
    let mut slots = Slots::count(view, issues.iter());
    let judged = |issue: FlaggedIssue| {
        let verdict = judge(view, &mut slots, &issue);
        let decision = verdict.into_decision(&issue, now);
        (issue, decision)
    };
    issues.into_iter().map(judged).collect()
}

/// Planned issues come before new ones, then the more urgent, then the older. The id makes the
/// order total.
fn turn(issue: &FlaggedIssue) -> (bool, u8, Timestamp, &IssueId) {
    (
        issue.stage != Stage::PlanComplete,
        issue.priority,
        issue.created_at,
        &issue.issue.id,
    )
}

/// How many issues of each mapping are in progress.
pub fn in_progress_counts<'i>(
    view: &SchedulingState,
    issues: impl Iterator<Item = &'i FlaggedIssue>,
) -> BTreeMap<TeamKey, u32> {
    Slots::count(view, issues).0
}

struct Verdict {
    outcome: DecisionOutcome,
    reason: Option<WaitReason>,
    message: String,
    phase: Option<Phase>,
}

impl Verdict {
    fn wait(reason: WaitReason, phase: Option<Phase>, message: String) -> Self {
        Self {
            outcome: DecisionOutcome::Waiting,
            reason: Some(reason),
            message,
            phase,
        }
    }

    fn rest(outcome: DecisionOutcome, message: &str) -> Self {
        Self {
            outcome,
            reason: None,
            message: message.to_owned(),
            phase: None,
        }
    }

    fn into_decision(self, issue: &FlaggedIssue, now: Timestamp) -> Decision {
        Decision {
            at: now,
            issue_identifier: issue.issue.key.clone(),
            team_key: issue.team.clone(),
            outcome: self.outcome,
            reason: self.reason,
            message: self.message,
            phase: self.phase,
        }
    }
}

fn judge(view: &SchedulingState, slots: &mut Slots, issue: &FlaggedIssue) -> Verdict {
    let (id, team) = (&issue.issue.id, &issue.team);
    let mapping = view.mapping_of(issue);
    let planning = mapping.is_some_and(|mapping| mapping.planning_enabled);
    if view.active_issues.contains_key(id) || view.active_pull_request_issues.contains(id) {
        return Verdict::rest(DecisionOutcome::InProgress, "A run is in progress.");
    }
    let Some(phase) = issue.stage.required_phase(planning) else {
        return at_rest(issue.stage);
    };
    let wait = |reason, message| Verdict::wait(reason, Some(phase), message);
    let Some(mapping) = mapping else {
        return wait(
            WaitReason::NoMapping,
            format!("No mapping for team {team}. Add one in Projects."),
        );
    };
    if mapping.paused {
        return wait(WaitReason::Paused, format!("{team} is paused."));
    }
    if !issue.open_blockers.is_empty() {
        let keys: Vec<&str> = issue
            .open_blockers
            .iter()
            .map(|blocker| blocker.key.as_str())
            .collect();
        return wait(
            WaitReason::Blocked,
            format!("Blocked by {}, still open.", keys.join(", ")),
        );
    }
    if view.parked_issues.contains(id) {
        return wait(
            WaitReason::Parked,
            "Parked after repeated failures. Unpark it to try again.".to_owned(),
        );
    }
    if let Some(why) = view.ineligible.get(&(team.clone(), phase)) {
        return wait(WaitReason::Ineligible, why.clone());
    }
    if view.issues_with_pending_effects.contains(id) {
        return Verdict::rest(
            DecisionOutcome::InProgress,
            "The outcome of its last run is being posted.",
        );
    }
    if view.deduped_issues.contains(id) {
        return wait(
            WaitReason::Dedup,
            "Already dispatched recently. Waiting for the in-flight job.".to_owned(),
        );
    }
    if let Some(told) = view.over_budget.get(team) {
        return wait(WaitReason::Budget, told.clone());
    }
    if let Some(until) = view.model_limited_until.get(team) {
        return wait(
            WaitReason::Quota,
            format!("The model provider's usage limit is reached. It goes on at {until}."),
        );
    }
    if let Some(until) = view.host_limited_until.get(team) {
        return wait(
            WaitReason::Quota,
            format!("The repository host takes no requests until {until}."),
        );
    }
    match slots.take(mapping) {
        Ok(()) => Verdict {
            outcome: DecisionOutcome::Dispatched,
            reason: None,
            message: format!("Dispatched for {}.", phase.as_str()),
            phase: Some(phase),
        },
        Err(taken) => wait(
            WaitReason::Concurrency,
            format!(
                "{team} at concurrency cap ({taken}/{}). Waiting for a slot.",
                mapping.max_in_progress
            ),
        ),
    }
}

fn at_rest(stage: Stage) -> Verdict {
    match stage {
        Stage::PrOpened => Verdict::rest(DecisionOutcome::Done, "The pull request is open."),
        Stage::PlanningFailed | Stage::ImplementationFailed => Verdict::rest(
            DecisionOutcome::Failed,
            "The run failed. Apply the trigger again to retry.",
        ),
        Stage::Planning | Stage::Implementing | Stage::Triggered | Stage::PlanComplete => {
            Verdict::rest(
                DecisionOutcome::InProgress,
                "Its marker says that work is in progress.",
            )
        }
    }
}

/// Slots taken per mapping: issues that carry an in-progress marker and issues with an active job
/// of ours, each counted once, so that a slow or lost marker never over-commits.
struct Slots(BTreeMap<TeamKey, u32>);

impl Slots {
    fn count<'i>(view: &SchedulingState, issues: impl Iterator<Item = &'i FlaggedIssue>) -> Self {
        let marked = issues
            .filter(|issue| issue.stage.is_in_progress())
            .filter(|issue| view.mapping_of(issue).is_some())
            .filter(|issue| !view.active_issues.contains_key(&issue.issue.id))
            .map(|issue| &issue.team);
        let mut taken = BTreeMap::new();
        for team in view.active_issues.values().chain(marked) {
            *taken.entry(team.clone()).or_insert(0) += 1;
        }
        Self(taken)
    }

    fn take(&mut self, mapping: &Mapping) -> Result<(), u32> {
        let taken = self.0.entry(mapping.team_key.clone()).or_insert(0);
        if *taken >= mapping.max_in_progress {
            return Err(*taken);
        }
        *taken += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
