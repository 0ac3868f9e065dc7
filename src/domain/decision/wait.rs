//! Reasons for waiting that lie with people and with limits.

use super::{SchedulingState, WaitReason};
use crate::issue::{FlaggedIssue, Phase};
use crate::mapping::Mapping;
use crate::plan_approval::{PlanApproval, PlanGate};

/// Returns what an issue waits for a person to do. Its marker does not matter: not every status field can show it.
pub(super) fn awaited_person(
    state: &SchedulingState,
    issue: &FlaggedIssue,
    mapping: Option<&Mapping>,
) -> Option<(WaitReason, Option<Phase>, String)> {
    if state.open_questions.contains(&issue.issue.id) {
        let message = "The last run asked a question. Answer it in a comment on the ticket.";
        return Some((WaitReason::Question, None, message.to_owned()));
    }
    let mapping = mapping.filter(|mapping| mapping.awaits_approval())?;
    let gate = state.plan_gates.get(&issue.issue.id);
    // A marker is no approval: anybody may have set it, and the plan may be that of another project.
    let is_approved = gate.is_some_and(|gate| gate.is_approved_in(&mapping.team_key));
    let is_waiting = gate.is_some_and(PlanGate::is_waiting) || issue.stage.has_plan();
    (is_waiting && !is_approved).then(|| {
        let objection = gate.and_then(|gate| gate.objection.as_deref());
        let mut message = "The plan waits for an approval.".to_owned();
        if let Some(objection) = objection.filter(|_| mapping.plan_approval == PlanApproval::Auto) {
            message = format!("{message} {objection}");
        }
        (WaitReason::Approval, Some(Phase::Implementation), message)
    })
}

/// Returns the limit that keeps a project from being dispatched until it resets.
pub(super) fn exhausted_limit(
    state: &SchedulingState,
    issue: &FlaggedIssue,
) -> Option<(WaitReason, String)> {
    let team = &issue.team;
    let chosen = (team.clone(), issue.agent_choice.agent);
    if let Some(message) = state.over_budget.get(team) {
        return Some((WaitReason::Budget, message.clone()));
    }
    if let Some(until) = state.model_limited_until.get(&chosen) {
        let message = format!(
            "The model provider's usage limit is reached. Runs resume at {}.",
            until.date_text()
        );
        return Some((WaitReason::Quota, message));
    }
    let until = state.host_limited_until.get(team)?;
    let message = format!("GitHub is rate limited until {}.", until.date_text());
    Some((WaitReason::Quota, message))
}
