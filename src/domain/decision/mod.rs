//! Who runs next, and why the others wait.
//!
//! [`decide`] gives every flagged issue exactly one decision per poll. It is pure; what it decides
//! to dispatch is checked once more in the commit that reserves it. (spec: *Blocker reasons*)

mod advice;
mod failed;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, IssueKey, TeamKey};
use super::issue::{FlaggedIssue, Phase};
use super::mapping::Mapping;
use super::stage::Stage;
use super::time::Timestamp;

pub use advice::advice;
pub use failed::failed;

/// What was decided about an issue in one poll.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub at: Timestamp,
    pub issue_identifier: IssueKey,
    pub team_key: TeamKey,
    pub outcome: Outcome,
    pub reason: Option<Reason>,
    pub message: String,
    pub phase: Option<Phase>,
}

impl Decision {
    /// Makes what was to run wait after all.
    pub fn hold(&mut self, reason: Reason, why: &str) {
        self.outcome = Outcome::Waiting;
        self.reason = Some(reason);
        self.message = why.to_owned();
    }

    /// Whether it says the same as an earlier one; the time apart.
    pub fn repeats(&self, earlier: &Decision) -> bool {
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
pub enum Outcome {
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
pub enum Reason {
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

impl Reason {
    pub const ALL: [Self; 9] = [
        Reason::Concurrency,
        Reason::Dedup,
        Reason::NoMapping,
        Reason::Blocked,
        Reason::Paused,
        Reason::Parked,
        Reason::Ineligible,
        Reason::Quota,
        Reason::Budget,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Concurrency => "concurrency",
            Reason::Dedup => "dedup",
            Reason::NoMapping => "no-mapping",
            Reason::Blocked => "blocked",
            Reason::Paused => "paused",
            Reason::Parked => "parked",
            Reason::Ineligible => "ineligible",
            Reason::Quota => "quota",
            Reason::Budget => "budget",
        }
    }
}

/// What the store knew when the poll began, before any ticketing system was asked: an issue whose
/// run ended while they answered still counts as busy, because the labels they show are older than
/// that end.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub mappings: BTreeMap<TeamKey, Mapping>,
    /// Issues with a job that has not ended, by the mapping it counts against.
    pub active: BTreeMap<IssueId, TeamKey>,
    /// Issues whose open pull request is being worked on. They take no slot: their marker says
    /// that they are past it.
    pub on_pulls: BTreeSet<IssueId>,
    pub deduped: BTreeSet<IssueId>,
    pub parked: BTreeSet<IssueId>,
    /// Issues that are owed an effect: their markers are about to change.
    pub owed: BTreeSet<IssueId>,
    /// Why no run of this mapping can start at all, whatever the issue: by mapping and phase.
    pub ineligible: BTreeMap<(TeamKey, Phase), String>,
    /// Until when the repository host takes no requests for this mapping.
    pub limited: BTreeMap<TeamKey, Timestamp>,
    /// Mappings whose budget of the month is used up, and how that is told.
    pub spent: BTreeMap<TeamKey, String>,
    /// Until when the model provider of this mapping's runs would refuse them.
    pub model_limited: BTreeMap<TeamKey, Timestamp>,
}

impl View {
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
    view: &View,
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
pub fn in_progress<'i>(
    view: &View,
    issues: impl Iterator<Item = &'i FlaggedIssue>,
) -> BTreeMap<TeamKey, u32> {
    Slots::count(view, issues).0
}

struct Verdict {
    outcome: Outcome,
    reason: Option<Reason>,
    message: String,
    phase: Option<Phase>,
}

impl Verdict {
    fn wait(reason: Reason, phase: Option<Phase>, message: String) -> Self {
        Self {
            outcome: Outcome::Waiting,
            reason: Some(reason),
            message,
            phase,
        }
    }

    fn rest(outcome: Outcome, message: &str) -> Self {
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

fn judge(view: &View, slots: &mut Slots, issue: &FlaggedIssue) -> Verdict {
    let (id, team) = (&issue.issue.id, &issue.team);
    let mapping = view.mapping_of(issue);
    let planning = mapping.is_some_and(|mapping| mapping.planning_enabled);
    if view.active.contains_key(id) || view.on_pulls.contains(id) {
        return Verdict::rest(Outcome::InProgress, "A run is in progress.");
    }
    let Some(phase) = issue.stage.phase_needed(planning) else {
        return at_rest(issue.stage);
    };
    let wait = |reason, message| Verdict::wait(reason, Some(phase), message);
    let Some(mapping) = mapping else {
        return wait(
            Reason::NoMapping,
            format!("No mapping for team {team}. Add one in Projects."),
        );
    };
    if mapping.paused {
        return wait(Reason::Paused, format!("{team} is paused."));
    }
    if !issue.open_blockers.is_empty() {
        let keys: Vec<&str> = issue
            .open_blockers
            .iter()
            .map(|blocker| blocker.key.as_str())
            .collect();
        return wait(
            Reason::Blocked,
            format!("Blocked by {}, still open.", keys.join(", ")),
        );
    }
    if view.parked.contains(id) {
        return wait(
            Reason::Parked,
            "Parked after repeated failures. Unpark it to try again.".to_owned(),
        );
    }
    if let Some(why) = view.ineligible.get(&(team.clone(), phase)) {
        return wait(Reason::Ineligible, why.clone());
    }
    if view.owed.contains(id) {
        return Verdict::rest(
            Outcome::InProgress,
            "The outcome of its last run is being posted.",
        );
    }
    if view.deduped.contains(id) {
        return wait(
            Reason::Dedup,
            "Already dispatched recently. Waiting for the in-flight job.".to_owned(),
        );
    }
    if let Some(told) = view.spent.get(team) {
        return wait(Reason::Budget, told.clone());
    }
    if let Some(until) = view.model_limited.get(team) {
        return wait(
            Reason::Quota,
            format!("The model provider's usage limit is reached. It goes on at {until}."),
        );
    }
    if let Some(until) = view.limited.get(team) {
        return wait(
            Reason::Quota,
            format!("The repository host takes no requests until {until}."),
        );
    }
    match slots.take(mapping) {
        Ok(()) => Verdict {
            outcome: Outcome::Dispatched,
            reason: None,
            message: format!("Dispatched for {}.", phase.as_str()),
            phase: Some(phase),
        },
        Err(taken) => wait(
            Reason::Concurrency,
            format!(
                "{team} at concurrency cap ({taken}/{}). Waiting for a slot.",
                mapping.max_in_progress
            ),
        ),
    }
}

fn at_rest(stage: Stage) -> Verdict {
    match stage {
        Stage::PrOpened => Verdict::rest(Outcome::Done, "The pull request is open."),
        Stage::PlanningFailed | Stage::ImplementationFailed => Verdict::rest(
            Outcome::Failed,
            "The run failed. Apply the trigger again to retry.",
        ),
        Stage::Planning | Stage::Implementing | Stage::Triggered | Stage::PlanComplete => {
            Verdict::rest(
                Outcome::InProgress,
                "Its marker says that work is in progress.",
            )
        }
    }
}

/// Slots taken per mapping: issues that carry an in-progress marker and issues with an active job
/// of ours, each counted once, so that a slow or lost marker never over-commits.
struct Slots(BTreeMap<TeamKey, u32>);

impl Slots {
    fn count<'i>(view: &View, issues: impl Iterator<Item = &'i FlaggedIssue>) -> Self {
        let marked = issues
            .filter(|issue| issue.stage.is_in_progress())
            .filter(|issue| view.mapping_of(issue).is_some())
            .filter(|issue| !view.active.contains_key(&issue.issue.id))
            .map(|issue| &issue.team);
        let mut taken = BTreeMap::new();
        for team in view.active.values().chain(marked) {
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
