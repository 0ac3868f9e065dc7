//! What is in force about an issue after a run that failed.
//!
//! A failure takes an issue out of the poll: its labels are gone, and nothing is decided about it any
//! more. What is true of it then stands in its jobs.

use std::time::Duration;

use super::{Decision, DecisionOutcome, WaitReason};
use crate::comments;
use crate::job::{Job, JobState};
use crate::time::Timestamp;

/// How long after its end does a failed run decide what is shown of its issue?
const SHOWN_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The decision that follows from the jobs of an issue, oldest first, when its last run failed and
/// nothing was decided since. `last` is what the poll decided last.
pub fn decision_after_failure(
    jobs: &[Job],
    last: Option<&Decision>,
    is_parked: bool,
    now: Timestamp,
) -> Option<Decision> {
    let mut own = jobs.iter().filter(|job| !job.shadow);
    if own.clone().any(Job::is_active) {
        return None;
    }
    let job = own.rfind(|job| job.kind.phase().is_some())?;
    let ended_at = job.finished_at?;
    let is_newer = |decision: &Decision| {
        let decides = matches!(
            decision.outcome,
            DecisionOutcome::Waiting | DecisionOutcome::Dispatched | DecisionOutcome::Done
        );
        decides && decision.at > ended_at
    };
    if now.since(ended_at) >= SHOWN_FOR || last.is_some_and(is_newer) {
        return None;
    }
    let reason = reason(job)?;
    let (what, next) = (comments::run_kind_name(job.kind), comments::next_step(job));
    Some(Decision {
        at: ended_at,
        issue_identifier: job.issue.key.clone(),
        team_key: job.team.clone(),
        outcome: DecisionOutcome::Failed,
        reason: is_parked.then_some(WaitReason::Parked),
        message: format!(
            "{what} failed: {}. {next}",
            reason.trim_end().trim_end_matches('.')
        ),
        phase: job.kind.phase(),
    })
}

/// Why a run failed for good; one that is taken up again has not.
fn reason(job: &Job) -> Option<String> {
    match &job.state {
        JobState::Failed { reason, .. } if job.resumes_at.is_none() => Some(reason.clone()),
        JobState::TimedOut { reason } => Some(reason.message(job.timeout_minutes)),
        _ => None,
    }
}
