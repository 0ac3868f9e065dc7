//! Advice for operators about a decision.

use super::{Decision, DecisionOutcome, WaitReason};

/// Returns how an operator can help a waiting or failed issue, in one or two sentences. `None` if
/// nothing needs to be done.
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
            "It starts when another run of the team ends. To run more at once, raise maxInProgressAiIssues of the \
             project. Remove the progress marker from tickets that no run works on."
        }
        WaitReason::Dedup => {
            "It was dispatched within the dedup window. If no run works on it, delete its dedup entry: in the panel, or \
             with DELETE /api/dedup/<issue>."
        }
        WaitReason::NoMapping => {
            "Map its team to a repository: in the panel under Projects, or with POST /api/mappings."
        }
        WaitReason::Blocked => "Close the ticket that blocks it, or remove the link.",
        WaitReason::Paused => {
            "Resume the project: in the panel under Projects, or with PATCH /api/mappings/<team> and paused false."
        }
        WaitReason::Parked => {
            "Its runs failed several times in a row. Fix the cause (see the reason of the last run), then unpark it: in \
             the panel, or with POST /api/parked/unpark."
        }
        WaitReason::Ineligible => {
            "Its runs cannot start on the configured runner. Run `agent-implement doctor` to see what is missing and \
             how to fix it."
        }
        WaitReason::Quota => {
            "A rate limit or usage limit of a vendor is reached. The ticket resumes automatically when the limit resets."
        }
        WaitReason::Budget => {
            "The budget of the project is used up. Runs resume when the period ends. To continue earlier, raise the \
             budget of the project."
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn advises_only_on_waiting_issues() {
        let decision = |outcome, reason| Decision {
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
            (WaitReason::Quota, "automatically"),
            (WaitReason::Budget, "budget"),
        ] {
            let text = advice(&decision(DecisionOutcome::Waiting, Some(reason)));
            assert!(text.is_some_and(|text| text.contains(word)), "{reason:?}");
        }
        for outcome in [
            DecisionOutcome::Dispatched,
            DecisionOutcome::InProgress,
            DecisionOutcome::Done,
            DecisionOutcome::Failed,
        ] {
            assert_eq!(advice(&decision(outcome, None)), None);
        }
    }
}
