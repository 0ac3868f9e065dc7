//! What an operator can do about a decision.

use super::{Decision, DecisionOutcome, WaitReason};

/// What helps an issue on, in a sentence or two for operators; none where nothing needs to be done.
pub fn advice(decision: &Decision) -> Option<&'static str> {
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
    Some(match reason {
        WaitReason::Concurrency => {
            "It runs when a run of the team ends. Raise maxInProgressAiIssues of the project for more at once; take the \
             progress marker off tickets that nothing works on."
        }
        WaitReason::Dedup => {
            "It was dispatched within the dedup window. If nothing works on it, clear its entry: DELETE /api/dedup/<issue>, or \
             the panel's dedup list."
        }
        WaitReason::NoMapping => {
            "Map its team to a repository: the panel's Projects, or POST /api/mappings."
        }
        WaitReason::Blocked => "End the ticket that blocks it, or take the link away.",
        WaitReason::Paused => {
            "Resume the project: the panel's Projects, or PATCH /api/mappings/<team> with paused false."
        }
        WaitReason::Parked => {
            "Its runs failed several times in a row. Mend the cause (the last run's reason), then unpark it: the panel, or POST \
             /api/parked/unpark."
        }
        WaitReason::Ineligible => {
            "Its runs cannot start where they are to execute. `agent-implement doctor` names what is missing and how to mend it."
        }
        WaitReason::Quota => "A vendor lets us ask no more for a while. It goes on by itself then.",
        WaitReason::Budget => {
            "What may be spent is spent. It goes on when the period is over; raise the budget of the project for more."
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn who_waits_is_helped_and_who_does_not_is_left_alone() {
        let decided = |outcome, reason| Decision {
            at: Timestamp::EPOCH,
            issue_identifier: "ENG-1".into(),
            team_key: "ENG".into(),
            outcome,
            reason,
            message: String::new(),
            phase: None,
        };
        for (reason, word) in [
            (WaitReason::Concurrency, "maxInProgressAiIssues"),
            (WaitReason::Dedup, "/api/dedup/"),
            (WaitReason::NoMapping, "/api/mappings"),
            (WaitReason::Blocked, "blocks it"),
            (WaitReason::Paused, "paused false"),
            (WaitReason::Parked, "/api/parked/unpark"),
            (WaitReason::Ineligible, "doctor"),
            (WaitReason::Quota, "by itself"),
            (WaitReason::Budget, "budget"),
        ] {
            let told = advice(&decided(DecisionOutcome::Waiting, Some(reason)));
            assert!(told.is_some_and(|told| told.contains(word)), "{reason:?}");
        }
        for outcome in [
            DecisionOutcome::Dispatched,
            DecisionOutcome::InProgress,
            DecisionOutcome::Done,
            DecisionOutcome::Failed,
        ] {
            assert_eq!(advice(&decided(outcome, None)), None);
        }
    }
}
