//! Decision about an issue whose last run failed.
//!
//! A failure removes the labels of an issue, so polls no longer return it and make no decision
//! about it. The decision then follows from its jobs.

use std::time::Duration;

use super::{Decision, DecisionOutcome, WaitReason};
use crate::comments;
use crate::job::{AfterCancel, ISSUE_CLOSED, Job, JobState};
use crate::report::FailureCode;
use crate::time::Timestamp;

/// Time after its end for which a failed run determines the decision.
pub const FAILURE_VALIDITY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Returns the decision that follows from the jobs of an issue, oldest first. `None` if its last
/// run did not fail, or if `last`, the latest decision of a poll, is newer than the failure.
pub fn decision_after_failure(
    jobs: &[Job],
    last: Option<&Decision>,
    is_parked: bool,
    now: Timestamp,
) -> Option<Decision> {
    let mut ticket_jobs = jobs.iter().filter(|job| !job.shadow);
    if ticket_jobs.clone().any(Job::is_active) {
        return None;
    }
    let job = ticket_jobs.rfind(|job| job.kind.phase().is_some())?;
    let ended_at = job.finished_at?;
    let is_newer = |decision: &Decision| {
        let replaces_failure = matches!(
            decision.outcome,
            DecisionOutcome::Waiting | DecisionOutcome::Dispatched | DecisionOutcome::Done
        );
        replaces_failure && decision.at > ended_at
    };
    if now.since(ended_at) >= FAILURE_VALIDITY || last.is_some_and(is_newer) {
        return None;
    }
    let reason = failure_reason(job)?;
    let headline = match job.cancellation {
        Some(_) => sentence_case(&reason),
        None => format!("Failed: {reason}"),
    };
    Some(Decision {
        at: ended_at,
        issue_identifier: job.issue.key.clone(),
        team_key: job.team.clone(),
        outcome: DecisionOutcome::Failed,
        reason: is_parked.then_some(WaitReason::Parked),
        message: format!(
            "{}. {}",
            headline.trim_end().trim_end_matches('.'),
            comments::retry_advice(job)
        ),
        phase: job.kind.phase(),
    })
}

fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// Returns the reason of a failed run. `None` if nobody has to act on the failure: its work is dispatched again
/// automatically or after an answer, or its issue was closed.
fn failure_reason(job: &Job) -> Option<String> {
    let is_released = matches!(
        job.after_cancel(),
        Some(AfterCancel::Retry | AfterCancel::Release)
    );
    if is_released || job.resumes_at.is_some() {
        return None;
    }
    match &job.state {
        JobState::Failed {
            code: Some(FailureCode::Cancelled),
            reason,
        } if reason == ISSUE_CLOSED => None,
        JobState::Failed {
            code: Some(FailureCode::NeedsInput),
            ..
        } => None,
        JobState::Failed { reason, .. } => Some(reason.clone()),
        JobState::TimedOut { reason } => Some(reason.message(job.timeout_minutes)),
        _ => None,
    }
}
