//! Advice for operators about a decision.

use super::trigger_trust::is_about_trigger;
use super::{Decision, DecisionOutcome, TRIGGER_NOT_REMOVED, WaitReason};
use crate::mapping::ticket_match::NO_MATCH;

/// Returns how an operator can help a waiting or failed issue, in one or two sentences. Names what
/// the panel shows, and the command if there is one. `None` if nothing needs to be done.
pub fn advice(decision: &Decision) -> Option<String> {
    let reason = match (decision.outcome, decision.reason) {
        (DecisionOutcome::Waiting | DecisionOutcome::Failed, Some(reason)) => reason,
        (
            DecisionOutcome::Waiting
            | DecisionOutcome::Dispatched
            | DecisionOutcome::InProgress
            | DecisionOutcome::Done
            | DecisionOutcome::Failed,
            _,
        ) => {
            return None;
        }
    };
    let (team, issue) = (&decision.team_key, &decision.issue_identifier);
    Some(match reason {
        WaitReason::Concurrency => format!(
            "It starts when another run of {team} ends. To run more at once, raise \"Max parallel issues\" of \
             project {team} in the panel (Projects, Edit). If no run works on a ticket that is marked as in \
             progress, remove the mark: the label `Agent-Working` or `Agent-Planning` (Linear, GitHub), or the status \
             `Implementing` or `Planning` (Jira)."
        ),
        WaitReason::Dedup => format!(
            "It was dispatched recently. If no run works on it, clear its dedup entry in the panel (Blockers), or run \
             `agent-implement retry {issue}`."
        ),
        WaitReason::NoMapping if decision.message.starts_with(NO_MATCH) => {
            "Set on the ticket what its message names, or add a project that takes it in the panel (Projects, New \
             project)."
                .to_owned()
        }
        WaitReason::NoMapping => {
            format!("Add a project for team {team} in the panel (Projects, New project).")
        }
        WaitReason::Ambiguous => {
            "Remove a label from the ticket, or change which tickets one of the projects takes in the panel \
             (Projects, Edit)."
                .to_owned()
        }
        WaitReason::Blocked => "Close the ticket that blocks it, or remove the link.".to_owned(),
        WaitReason::Paused => format!("Resume project {team} in the panel (Projects)."),
        WaitReason::Parked => format!(
            "Its runs failed several times in a row. Fix the cause (see the reason of the last run). Then unpark it \
             in the panel (Blockers), or run `agent-implement retry {issue}`."
        ),
        WaitReason::Ineligible if decision.message == TRIGGER_NOT_REMOVED => format!(
            "To run it again, run `agent-implement retry {issue}`. To leave it cancelled, remove its trigger in the \
             ticket, and drop the failed update in the panel (Overview)."
        ),
        WaitReason::Ineligible if is_about_trigger(&decision.message) => format!(
            "Remove the label and set it again as somebody with write access to the repository. If a run has worked \
             on it before, `agent-implement retry {issue}` starts it, too."
        ),
        WaitReason::Ineligible => {
            "Its runs cannot start on the configured runner. Run `agent-implement doctor` to see what is missing and \
             how to fix it."
                .to_owned()
        }
        WaitReason::Quota => {
            "Nothing needs to be done. It starts when the limit resets.".to_owned()
        }
        WaitReason::Question => format!(
            "Answer in a comment on the ticket, in the panel (Questions), or with `agent-implement answer {issue} \
             \"...\"`."
        ),
        WaitReason::Approval => format!(
            "Read the plan on the ticket. Then approve it with a comment `/agent-implement approve`, in the panel \
             (Questions), or with `agent-implement approve {issue}`."
        ),
        WaitReason::TakenOver => format!(
            "A person continues it by hand. To let runs start again, give it back in the panel (Issues), or run \
             `agent-implement give-back {issue}`."
        ),
        WaitReason::OutsideHours => format!(
            "It starts by itself at that time. To start it now, run `agent-implement retry {issue}` if a run has worked \
             on it before, or change \"Dispatch days\" of project {team} in the panel (Projects, Edit)."
        ),
        WaitReason::ReviewCapacity => format!(
            "It starts when one of them is merged or closed. To start more at once, raise \"Max open pull requests\" or \
             \"Max waiting for review\" of project {team} in the panel (Projects, Edit)."
        ),
        WaitReason::Collision => format!(
            "It starts when the other ticket is done: its pull request merged or closed. To run both at once, change \
             \"Same files side by side\" or \"Files that never collide\" of project {team} in the panel (Projects, Edit)."
        ),
        WaitReason::Budget => format!(
            "It starts when the month ends. To continue earlier, raise \"Monthly budget\" of project {team} in the \
             panel (Projects, Edit)."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn decision(outcome: DecisionOutcome, reason: Option<WaitReason>, message: &str) -> Decision {
        Decision {
            at: Timestamp::EPOCH,
            issue_identifier: "ENG-1".into(),
            team_key: "ENG".into(),
            outcome,
            reason,
            message: message.to_owned(),
            phase: None,
        }
    }

    #[test]
    fn names_what_the_panel_shows_and_the_command() {
        for (reason, message, word) in [
            (
                WaitReason::Concurrency,
                "",
                "\"Max parallel issues\" of project ENG",
            ),
            (WaitReason::Dedup, "", "`agent-implement retry ENG-1`"),
            (WaitReason::NoMapping, "", "Add a project for team ENG"),
            (WaitReason::NoMapping, NO_MATCH, "what its message names"),
            (WaitReason::Ambiguous, "", "Remove a label"),
            (WaitReason::Blocked, "", "blocks it"),
            (WaitReason::Paused, "", "Resume project ENG"),
            (WaitReason::Parked, "", "`agent-implement retry ENG-1`"),
            (WaitReason::Ineligible, "", "`agent-implement doctor`"),
            (
                WaitReason::Ineligible,
                TRIGGER_NOT_REMOVED,
                "drop the failed update",
            ),
            (
                WaitReason::Ineligible,
                "mallory set the label, but has no write access to acme/shop.",
                "somebody with write access",
            ),
            (WaitReason::Quota, "", "when the limit resets"),
            (WaitReason::Budget, "", "\"Monthly budget\" of project ENG"),
            (WaitReason::Question, "", "`agent-implement answer ENG-1"),
            (WaitReason::Approval, "", "`agent-implement approve ENG-1`"),
            (
                WaitReason::TakenOver,
                "",
                "`agent-implement give-back ENG-1`",
            ),
            (
                WaitReason::OutsideHours,
                "",
                "\"Dispatch days\" of project ENG",
            ),
            (WaitReason::ReviewCapacity, "", "\"Max open pull requests\""),
            (WaitReason::Collision, "", "\"Same files side by side\""),
        ] {
            let text = advice(&decision(DecisionOutcome::Waiting, Some(reason), message)).unwrap();
            assert!(text.contains(word), "{reason:?}: {text}");
            assert!(!text.contains("/api/"), "{reason:?}: {text}");
        }
    }

    #[test]
    fn advises_only_on_waiting_and_parked_issues() {
        for outcome in [
            DecisionOutcome::Dispatched,
            DecisionOutcome::InProgress,
            DecisionOutcome::Done,
            DecisionOutcome::Failed,
        ] {
            assert_eq!(advice(&decision(outcome, None, "")), None);
        }
    }
}
