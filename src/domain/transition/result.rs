//! Transitions caused by the result that a run reported.

use super::termination::JobFailure;
use super::termination::ask;
use super::termination::complete_with_plan;
use super::termination::fail;
use super::termination::fail_review;
use super::termination::fail_without_pull_request;
use super::termination::pause;
use super::termination::time_out;

use super::super::comments;
use super::super::effect::Effect;
use super::super::job::Job;
use super::super::job::JobKind;
use super::super::job::PullRequestRef;
use super::super::job::RunHandle;
use super::super::job::RunnerKind;
use super::super::job::TimeoutReason;
use super::super::job::UnconfirmedResult;
use super::super::limits;
use super::super::report::FailureCode;
use super::super::report::ResultReport;
use super::super::report::RunOutcome;
use super::super::sanitize;
use super::super::stage::Stage;
use super::super::time::Timestamp;
use super::JobEvent;
use super::PlannedEffects;
use super::Transition;

/// Returns whether an event applies while a result is unconfirmed. The unconfirmed result decides
/// the outcome, whatever the runner reports. People can still cancel the job.
pub(super) fn is_allowed_before_confirmation(event: &JobEvent) -> bool {
    matches!(
        event,
        JobEvent::ResultReported { .. }
            | JobEvent::Started { .. }
            | JobEvent::RunFound { .. }
            | JobEvent::Cancelled { .. }
            | JobEvent::IssueClosed
    )
}

/// Stores a result until its pull request was looked up.
pub(super) fn store_unconfirmed_result(
    job: Job,
    report: ResultReport,
    now: Timestamp,
) -> Transition {
    let mut job = accept_result(job, &report);
    job.unconfirmed_result = Some(Box::new(UnconfirmedResult { report, since: now }));
    Transition {
        job,
        planned: PlannedEffects::default(),
    }
}

/// Records the fields that every accepted result sets.
pub(super) fn accept_result(mut job: Job, report: &ResultReport) -> Job {
    job.result_accepted = true;
    job.usage = report.usage.or(job.usage);
    job.agent = report.agent.clone().or(job.agent);
    job.model = report.model.clone().or(job.model);
    job.merge = report.merge.as_deref().cloned().or(job.merge);
    job.agents
        .with_credentials
        .clone_from(&report.agents_with_credentials);
    if let (None, RunnerKind::Ci, Some(id)) = (&job.run, job.runner, report.run_id) {
        job.run = Some(RunHandle::Ci {
            id,
            url: String::new(),
        });
    }
    job
}

pub(super) fn apply_result(job: Job, report: ResultReport, now: Timestamp) -> Transition {
    let mut job = accept_result(job, &report);
    job.unconfirmed_result = None;
    if job.may_open_pull_request() {
        job.pull = report.pr_url.as_deref().and_then(PullRequestRef::from_url);
    }
    let lacks_pull_request = job.may_open_pull_request();
    let comments = if job.shadow {
        Vec::new()
    } else {
        ticket_comments(&job, &report)
    };
    let unapproved = report.failure_code == Some(FailureCode::ReviewUnapproved)
        && job.pull.is_some()
        && job.kind != JobKind::Planning;
    let has_open_findings = !report.unresolved.is_empty();
    let mut next = match report.outcome {
        RunOutcome::Success if lacks_pull_request => {
            fail_without_pull_request(job, report.failure_reason, now)
        }
        // Plans have no review.
        RunOutcome::Success if has_open_findings && job.kind != JobKind::Planning => {
            fail_review(job, report.unresolved, now)
        }
        RunOutcome::Success => {
            let stage = match report.awaits_approval {
                true => Stage::PlanReady,
                false => Stage::PlanComplete,
            };
            complete_with_plan(job, stage, now)
        }
        RunOutcome::Failure if unapproved => fail_review(job, report.unresolved, now),
        RunOutcome::Failure => {
            let reason = comments::reason_or_default(report.failure_reason.as_deref());
            match (report.failure_code, report.retry_at) {
                (Some(FailureCode::ProviderLimit), Some(until)) => {
                    job.agents.next = report.next_agent;
                    pause(job, &reason, until, now)
                }
                (Some(FailureCode::NeedsInput), _)
                    if job.kind.phase().is_some() && !report.questions.is_empty() =>
                {
                    ask(job, report.questions, now)
                }
                (Some(FailureCode::TimedOut), _) => {
                    let reason = job.timeout_reason();
                    time_out(job, reason, now)
                }
                (Some(FailureCode::Cancelled), _) if job.has_reached_host_timeout(now) => {
                    time_out(job, TimeoutReason::TimedOut, now)
                }
                (code, _) => {
                    // A cancelled job has ended before its run reports the signal.
                    let is_stopped = code == Some(FailureCode::Cancelled)
                        && job.runner == RunnerKind::Kubernetes;
                    let reason = match is_stopped {
                        true => comments::STOPPED_FROM_OUTSIDE.to_owned(),
                        false => reason,
                    };
                    let failure = JobFailure::new(code, reason)
                        .with_last_agent_message(report.last_agent_message);
                    fail(job, failure, now)
                }
            }
        }
    };
    let after_marker = next
        .planned
        .effects
        .iter()
        .take_while(|effect| matches!(effect, Effect::SetMarker { .. }))
        .count();
    next.planned
        .effects
        .splice(after_marker..after_marker, comments);
    next
}

pub(super) fn ticket_comments(job: &Job, report: &ResultReport) -> Vec<Effect> {
    let to_effect = |body: &str| Effect::TicketComment {
        issue: job.issue.clone(),
        body: sanitize::markdown(body, limits::MAX_COMMENT_BYTES, comments::TRUNCATION_MARK),
    };
    report
        .comments
        .iter()
        .filter(|comment| !comment.body.trim().is_empty())
        .take(limits::MAX_RUN_COMMENTS)
        .map(|comment| to_effect(&comment.body))
        .collect()
}
