//! Dispatch decisions: the issues that run next, and the reasons why others wait.
//!
//! [`decide`] makes exactly one decision per flagged issue and poll. It is pure. The commit that
//! reserves a run checks the decision again. See docs/behaviour.md#reasons-for-waiting.

mod advice;
mod failure;
mod repositories;
mod trigger_trust;
mod wait;
mod wait_reason;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::AgentName;
use super::ids::{IssueId, IssueKey, Repo, TeamKey};
use super::issue::{FlaggedIssue, Phase, System};
use super::mapping::Mapping;
use super::mapping::ticket_match::{Unmatched, choose_mapping};
use super::plan_approval::PlanGate;
use super::repository_load::RepositoryLoad;
use super::stage::Stage;
use super::time::Timestamp;

pub use advice::advice;
pub use failure::{FAILURE_VALIDITY, decision_after_failure};
use repositories::Repositories;
pub use trigger_trust::{trigger_refusal, unchecked_trigger};
use wait::{awaited_person, exhausted_limit};
pub use wait_reason::WaitReason;

/// Decision about an issue in one poll.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Time of the poll.
    pub at: Timestamp,
    /// Key of the issue.
    pub issue_identifier: IssueKey,
    /// Key of the mapping.
    pub team_key: TeamKey,
    /// Outcome.
    pub outcome: DecisionOutcome,
    /// Reason for waiting.
    pub reason: Option<WaitReason>,
    /// Sentence for operators.
    pub message: String,
    /// Phase that the decision is about.
    pub phase: Option<Phase>,
}

impl Decision {
    /// Changes the decision to waiting.
    pub fn set_waiting(&mut self, reason: WaitReason, message: &str) {
        self.outcome = DecisionOutcome::Waiting;
        self.reason = Some(reason);
        self.message = message.to_owned();
    }

    /// Returns whether the decision equals an earlier one, apart from its time.
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

/// Outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    /// A run is dispatched.
    Dispatched,
    /// The issue waits for a run.
    Waiting,
    /// A run or its effects are in progress.
    InProgress,
    /// The pull request is open.
    Done,
    /// The last run failed, and no later decision was made.
    Failed,
}

/// State at the start of a poll, before the ticketing systems are queried: rows of the store, the
/// availability of runners, and rate limits. An issue whose run ends during the poll still counts as
/// busy, because the labels returned may be older than that end.
#[derive(Debug, Clone, Default)]
pub struct SchedulingState {
    /// All mappings.
    pub mappings: BTreeMap<TeamKey, Mapping>,
    /// Issues with an active job, and the mapping that the job counts against.
    pub active_issues: BTreeMap<IssueId, TeamKey>,
    /// Issues with an active job on their open pull request. These jobs do not count against the
    /// cap, because the issue is past implementation.
    pub active_pull_request_issues: BTreeSet<IssueId>,
    /// Issues in the dedup window.
    pub deduped_issues: BTreeSet<IssueId>,
    /// Parked issues.
    pub parked_issues: BTreeSet<IssueId>,
    /// Issues with effects in the outbox. Their markers are about to change.
    pub issues_with_pending_effects: BTreeSet<IssueId>,
    /// Issues whose trigger could not be removed after a cancellation.
    pub uncleared_issues: BTreeSet<IssueId>,
    /// Reason why no run of a mapping can start, by mapping and phase.
    pub ineligible: BTreeMap<(TeamKey, Phase), String>,
    /// End of the repository host's rate limit, by mapping.
    pub host_limited_until: BTreeMap<TeamKey, Timestamp>,
    /// Message about the used-up monthly budget, by mapping.
    pub over_budget: BTreeMap<TeamKey, String>,
    /// Issues whose trigger was set by an account that may not start runs, with the reason.
    pub untrusted_issues: BTreeMap<IssueId, String>,
    /// Issues whose last run asked a question that is open.
    pub open_questions: BTreeSet<IssueId>,
    /// Plans that wait for an approval, or have one, by issue.
    pub plan_gates: BTreeMap<IssueId, PlanGate>,
    /// Sentence about the person who has taken over an issue, by issue.
    pub taken_over: BTreeMap<IssueId, String>,
    /// End of the model provider's usage limit, by mapping and by the agent that labels choose.
    pub model_limited_until: BTreeMap<(TeamKey, Option<AgentName>), Timestamp>,
    /// Message about the dispatch hours, by mapping outside of them.
    pub outside_hours: BTreeMap<TeamKey, String>,
    /// Issues for which an operator requested another run, at whatever hour.
    pub operator_retries: BTreeSet<IssueId>,
    /// Open pull requests and runs that may open one, by repository.
    pub repository_loads: BTreeMap<Repo, RepositoryLoad>,
    /// Files that the plan of an issue declares.
    pub declared_files: BTreeMap<IssueId, Arc<[String]>>,
}

impl SchedulingState {
    /// Returns the mapping of an issue: the chosen one, else the one of its team or repository that matches. It must be for the
    /// ticketing system of the issue: Linear and Jira may have teams with the same key.
    fn mapping_of(&self, issue: &FlaggedIssue) -> Result<&Mapping, Unmatched> {
        let is_of_system = |mapping: &&Mapping| mapping.system() == issue.issue.system;
        let found = match &issue.facts {
            None => {
                let chosen = self.mappings.get(&issue.team);
                chosen.filter(is_of_system).ok_or(None)
            }
            Some(facts) => {
                let of_system = self.mappings.values().filter(is_of_system);
                let repo = self.repo_of_issues(issue);
                let is_of_source = |mapping: &&Mapping| match &repo {
                    Some(repo) => mapping.targets(repo),
                    None => *mapping.source_team() == issue.team,
                };
                choose_mapping(of_system.filter(is_of_source), facts)
            }
        };
        found.map_err(|unmatched| {
            unmatched.unwrap_or_else(|| Unmatched {
                reason: WaitReason::NoMapping,
                message: format!("No mapping for team {}. Add one in Projects.", issue.team),
            })
        })
    }

    /// Returns the repository in which an issue of GitHub was found.
    fn repo_of_issues(&self, issue: &FlaggedIssue) -> Option<Repo> {
        let found_by = self.mappings.get(&issue.team)?;
        (issue.issue.system == System::GitHub).then(|| found_by.target_repo())
    }

    /// Sets the mapping of an issue. The mapping of an active job stays in force if the labels or the project of the
    /// issue have changed since.
    fn set_mapping(&self, issue: &mut FlaggedIssue) {
        let chosen = match self.active_issues.get(&issue.issue.id) {
            Some(team) => Some(team),
            None => self.mapping_of(issue).ok().map(|mapping| &mapping.team_key),
        };
        if let Some(team) = chosen {
            issue.team = team.clone();
            issue.facts = None;
        }
    }
}

/// Decides about every issue. The result is in order of priority and does not depend on the order
/// of `issues`.
pub fn decide(
    state: &SchedulingState,
    mut issues: Vec<FlaggedIssue>,
    now: Timestamp,
) -> Vec<(FlaggedIssue, Decision)> {
    issues.sort_by(|left, right| sort_key(left).cmp(&sort_key(right)));
    issues.dedup_by(|left, right| left.issue.id == right.issue.id);
    issues.iter_mut().for_each(|issue| state.set_mapping(issue));
    let mut slots = Slots::count(state, issues.iter());
    let mut repositories = Repositories::new(state, now);
    let with_decision = |issue: FlaggedIssue| {
        let decision = decide_issue(state, &mut slots, &mut repositories, &issue);
        let decision = decision.into_decision(&issue, now);
        (issue, decision)
    };
    issues.into_iter().map(with_decision).collect()
}

/// Returns the sort key: planned issues first, then by priority, then by age. The id makes the
/// order total.
fn sort_key(issue: &FlaggedIssue) -> (bool, u8, Timestamp, &IssueId) {
    (
        !issue.stage.has_plan(),
        issue.priority,
        issue.created_at,
        &issue.issue.id,
    )
}

/// Returns the number of issues in progress, by mapping.
pub fn in_progress_counts<'i>(
    state: &SchedulingState,
    issues: impl Iterator<Item = &'i FlaggedIssue>,
) -> BTreeMap<TeamKey, u32> {
    Slots::count(state, issues).0
}

/// Message about an issue whose trigger could not be removed after a cancellation.
const TRIGGER_NOT_REMOVED: &str =
    "Its last run was cancelled, but its trigger could not be removed from the ticket.";

/// Decision without the data of its issue.
struct DecisionDraft {
    outcome: DecisionOutcome,
    reason: Option<WaitReason>,
    message: String,
    phase: Option<Phase>,
}

impl DecisionDraft {
    fn waiting(reason: WaitReason, phase: Option<Phase>, message: String) -> Self {
        Self {
            outcome: DecisionOutcome::Waiting,
            reason: Some(reason),
            message,
            phase,
        }
    }

    fn without_phase(outcome: DecisionOutcome, message: &str) -> Self {
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

fn decide_issue(
    state: &SchedulingState,
    slots: &mut Slots,
    repositories: &mut Repositories<'_>,
    issue: &FlaggedIssue,
) -> DecisionDraft {
    let (id, team) = (&issue.issue.id, &issue.team);
    let mapping = state.mapping_of(issue);
    let planning = matches!(&mapping, Ok(mapping) if mapping.planning_enabled);
    if state.active_issues.contains_key(id) || state.active_pull_request_issues.contains(id) {
        return DecisionDraft::without_phase(DecisionOutcome::InProgress, "A run is in progress.");
    }
    if let Some((reason, phase, message)) =
        awaited_person(state, issue, mapping.as_ref().ok().copied())
    {
        return DecisionDraft::waiting(reason, phase, message);
    }
    let Some(phase) = issue.stage.required_phase(planning) else {
        return without_run(issue.stage);
    };
    let wait = |reason, message| DecisionDraft::waiting(reason, Some(phase), message);
    if let Some(sentence) = state.taken_over.get(id) {
        return wait(WaitReason::TakenOver, format!("{sentence}."));
    }
    let mapping = match mapping {
        Ok(mapping) => mapping,
        Err(unmatched) => return wait(unmatched.reason, unmatched.message),
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
    if state.parked_issues.contains(id) {
        return wait(
            WaitReason::Parked,
            "Parked after repeated failures. Unpark it to try again.".to_owned(),
        );
    }
    let by_mapping = state.ineligible.get(&(team.clone(), phase));
    if let Some(message) = by_mapping.or_else(|| state.untrusted_issues.get(id)) {
        return wait(WaitReason::Ineligible, message.clone());
    }
    if state.issues_with_pending_effects.contains(id) {
        return DecisionDraft::without_phase(
            DecisionOutcome::InProgress,
            "The outcome of its last run is being posted.",
        );
    }
    if state.uncleared_issues.contains(id) {
        return wait(WaitReason::Ineligible, TRIGGER_NOT_REMOVED.to_owned());
    }
    if state.deduped_issues.contains(id) {
        return wait(
            WaitReason::Dedup,
            "Already dispatched recently. Waiting for the in-flight job.".to_owned(),
        );
    }
    if let Some((reason, message)) = exhausted_limit(state, issue) {
        return wait(reason, message);
    }
    if let Some((reason, message)) = repositories.wait_for(mapping, issue, phase) {
        return wait(reason, message);
    }
    match slots.try_take(mapping) {
        Ok(()) => {
            repositories.begin_run(mapping, issue, phase);
            DecisionDraft {
                outcome: DecisionOutcome::Dispatched,
                reason: None,
                message: format!("Dispatched for {}.", phase.as_str()),
                phase: Some(phase),
            }
        }
        Err(in_use) => wait(
            WaitReason::Concurrency,
            format!(
                "{team} at concurrency cap ({in_use}/{}). Waiting for a slot.",
                mapping.max_in_progress
            ),
        ),
    }
}

/// Returns the decision about an issue whose stage requires no run.
fn without_run(stage: Stage) -> DecisionDraft {
    match stage {
        Stage::PrOpened => {
            DecisionDraft::without_phase(DecisionOutcome::Done, "The pull request is open.")
        }
        // A cancelled issue has no marker and is not polled.
        Stage::PlanningFailed | Stage::ImplementationFailed | Stage::Cancelled => {
            DecisionDraft::without_phase(
                DecisionOutcome::Failed,
                "The run failed. Apply the trigger again to retry.",
            )
        }
        Stage::Planning
        | Stage::Implementing
        | Stage::Triggered
        | Stage::Retriggered
        | Stage::NeedsInput
        | Stage::PlanReady
        | Stage::PlanApproved
        | Stage::PlanComplete => DecisionDraft::without_phase(
            DecisionOutcome::InProgress,
            "Its marker shows that work is in progress.",
        ),
    }
}

/// Slots in use, by mapping: issues with an in-progress marker and issues with an active job, each
/// counted once. A late or lost marker therefore never causes too many runs.
struct Slots(BTreeMap<TeamKey, u32>);

impl Slots {
    /// Counts the slots in use.
    fn count<'i>(state: &SchedulingState, issues: impl Iterator<Item = &'i FlaggedIssue>) -> Self {
        let marked = issues
            .filter(|issue| issue.stage.is_in_progress())
            .filter(|issue| !state.active_issues.contains_key(&issue.issue.id))
            .filter(|issue| awaited_person(state, issue, state.mapping_of(issue).ok()).is_none())
            .filter_map(|issue| state.mapping_of(issue).ok())
            .map(|mapping| &mapping.team_key);
        let mut in_use = BTreeMap::new();
        for team in state.active_issues.values().chain(marked) {
            *in_use.entry(team.clone()).or_insert(0) += 1;
        }
        Self(in_use)
    }

    /// Takes a slot of a mapping. Returns the number of slots in use if none is free.
    fn try_take(&mut self, mapping: &Mapping) -> Result<(), u32> {
        let in_use = self.0.entry(mapping.team_key.clone()).or_insert(0);
        if *in_use >= mapping.max_in_progress {
            return Err(*in_use);
        }
        *in_use += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
