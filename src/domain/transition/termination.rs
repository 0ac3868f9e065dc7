//! Terminal transitions of a job: the final state and the effects of the end.

use crate::comments;
use crate::effect::{DraftState, Effect, LogLabel};
use crate::issue::Phase;
use crate::job::{
    AfterCancel, Cancellation, ISSUE_CLOSED, Job, JobKind, JobState, RunHandle, RunnerKind,
    TimeoutReason,
};
use crate::question::Question;
use crate::report::FailureCode;
use crate::stage::Stage;
use crate::time::Timestamp;

use super::pull_comments::{failed_on_pull, pull_comment};
use super::{
    BreakerUpdate, DedupUpdate, FailureKind, MissingReport, PlanUpdate, PlannedEffects,
    RunConclusion, Transition, add_session_comment,
};

/// Reason of a failed run that succeeded at its host but opened no pull request.
const NO_PULL_REQUEST: &str = "the run ended without opening a pull request";

/// Ends a job whose run reported no result, by the conclusion at the host and the pull request that
/// it left.
pub(super) fn finish_without_report(
    job: Job,
    conclusion: &RunConclusion,
    draft: Option<DraftState>,
    report: &MissingReport,
    now: Timestamp,
) -> Transition {
    let failure = |reason: String| {
        let reason = match report {
            MissingReport::NotArrived => reason,
            MissingReport::Refused(why) => {
                format!("{reason}. The report that it left as an artifact was refused: {why}")
            }
        };
        JobFailure::new(None, reason)
    };
    match (conclusion.as_str(), job.kind) {
        ("success", JobKind::GapFill | JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict) => {
            complete(job, now)
        }
        // A run opens a draft only if its review left blocking findings open.
        ("success", JobKind::Implementation) if draft == Some(DraftState::Draft) => {
            fail_review(job, Vec::new(), now)
        }
        ("success", JobKind::Implementation) if job.pull.is_some() => complete(job, now),
        ("success", JobKind::Implementation) => {
            let failure = failure(NO_PULL_REQUEST.to_owned());
            fail(job, failure.with_label(LogLabel::PrNotFound), now)
        }
        ("success", JobKind::Planning) => fail(
            job,
            failure("the run ended without reporting a plan".to_owned()),
            now,
        ),
        ("timed_out", _) => time_out(job, TimeoutReason::TimedOut, now),
        ("cancelled", _) if job.has_reached_host_timeout(now) => {
            time_out(job, TimeoutReason::TimedOut, now)
        }
        ("cancelled", _) => {
            let cancelled = "the run was cancelled at its host".to_owned();
            let failure = JobFailure::new(Some(FailureCode::Cancelled), cancelled);
            fail(job, failure, now)
        }
        (other, _) => {
            let failure = match (conclusion, job.runner) {
                (RunConclusion::MachineProblem { message, kind }, _) => {
                    failure(format!("{}{message}", comments::MACHINE_PROBLEM)).with_kind(*kind)
                }
                (RunConclusion::Reported(_), RunnerKind::Ci) => failure(format!(
                    "the run ended with conclusion {other} and reported no result"
                )),
                (
                    RunConclusion::Reported(_),
                    RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes,
                ) => failure(format!(
                    "the session ended with {other} and reported no result"
                )),
            };
            fail(job, failure, now)
        }
    }
}

/// Fails a job whose run succeeded but opened no pull request.
pub(super) fn fail_without_pull_request(
    job: Job,
    reason: Option<String>,
    now: Timestamp,
) -> Transition {
    let reason = reason.unwrap_or_else(|| NO_PULL_REQUEST.to_owned());
    let failure = JobFailure::new(None, reason).with_label(LogLabel::PrNotFound);
    fail(job, failure, now)
}

/// Completes a job.
pub(super) fn complete(job: Job, now: Timestamp) -> Transition {
    complete_with_plan(job, Stage::PlanComplete, now)
}

/// Completes a job. If it made a plan, the issue enters this stage.
pub(super) fn complete_with_plan(job: Job, planned_stage: Stage, now: Timestamp) -> Transition {
    let (mut job, mut planned) = end(job, JobState::Completed, now);
    planned.breaker = BreakerUpdate::Reset;
    match job.kind.phase() {
        Some(Phase::Planning) => {
            // The implementation is dispatched next and must not count as a duplicate.
            planned.dedup = DedupUpdate::Clear;
            planned.plan = PlanUpdate::Replace;
            planned.effects.push(Effect::SetMarker {
                issue: job.issue.clone(),
                stage: planned_stage,
            });
        }
        Some(Phase::Implementation) => add_pull_request_opened(&job, &mut planned),
        None => {}
    }
    finish(&mut job, planned)
}

/// Ends a job whose review left blocking findings open.
pub(super) fn fail_review(job: Job, unresolved: Vec<String>, now: Timestamp) -> Transition {
    let state = JobState::ReviewFailed {
        unresolved: unresolved.clone(),
    };
    let (mut job, mut planned) = end(job, state, now);
    planned.breaker = BreakerUpdate::Reset;
    if job.kind.phase() == Some(Phase::Implementation) {
        add_pull_request_opened(&job, &mut planned);
        let body = comments::review_unresolved(&unresolved);
        planned.effects.push(Effect::TicketComment {
            issue: job.issue.clone(),
            body,
        });
    }
    finish(&mut job, planned)
}

fn add_pull_request_opened(job: &Job, planned: &mut PlannedEffects) {
    planned.effects.push(Effect::SetMarker {
        issue: job.issue.clone(),
        stage: Stage::PrOpened,
    });
    if let Some(pull) = &job.pull {
        let body = comments::pull_request_opened(pull);
        planned.effects.push(Effect::TicketComment {
            issue: job.issue.clone(),
            body,
        });
    }
}

/// Failure of a run.
pub(super) struct JobFailure {
    code: Option<FailureCode>,
    reason: String,
    kind: FailureKind,
    label: Option<LogLabel>,
    last_agent_message: Option<String>,
}

impl JobFailure {
    /// Creates a failure. Its kind follows from the code.
    pub(super) fn new(code: Option<FailureCode>, reason: String) -> Self {
        let kind = match code {
            Some(
                FailureCode::ProviderUnavailable
                | FailureCode::ProviderLimit
                | FailureCode::Cancelled,
            ) => FailureKind::Transient,
            _ => FailureKind::Permanent,
        };
        Self {
            code,
            reason,
            kind,
            label: None,
            last_agent_message: None,
        }
    }

    /// Sets the last message of the agent.
    pub(super) fn with_last_agent_message(self, last_agent_message: Option<String>) -> Self {
        Self {
            last_agent_message,
            ..self
        }
    }

    /// Sets the label of the log excerpt. The default depends on the runner.
    fn with_label(self, label: LogLabel) -> Self {
        Self {
            label: Some(label),
            ..self
        }
    }

    /// Sets whether a retry may succeed.
    pub(super) fn with_kind(self, kind: FailureKind) -> Self {
        Self { kind, ..self }
    }
}

/// Fails a job.
pub(super) fn fail(job: Job, failure: JobFailure, now: Timestamp) -> Transition {
    let state = JobState::Failed {
        code: failure.code,
        reason: failure.reason.clone(),
    };
    let (mut job, mut planned) = end(job, state, now);
    planned.dedup = DedupUpdate::Clear;
    if failure.kind == FailureKind::Permanent {
        planned.breaker = BreakerUpdate::CountFailure;
    }
    let label = failure.label.unwrap_or(match job.runner {
        RunnerKind::Local | RunnerKind::Kubernetes => LogLabel::ContainerFailed,
        RunnerKind::Ci | RunnerKind::Vm => LogLabel::SessionFailed,
    });
    if job.run.is_some() && !job.failure_reported {
        let sentence = comments::session_failed(&failure.reason);
        add_session_comment(&job, &sentence, now, &mut planned);
    }
    let comment = comments::failure_comment(
        &job,
        failure.code,
        &failure.reason,
        failure.last_agent_message.as_deref(),
    );
    add_failure_effects(&job, failure.code, comment, label, &mut planned);
    finish(&mut job, planned)
}

/// Ends a job that exceeded a time limit.
pub(super) fn time_out(job: Job, reason: TimeoutReason, now: Timestamp) -> Transition {
    let label = match (reason, job.runner) {
        (TimeoutReason::ContainerTimeout, _) | (_, RunnerKind::Local | RunnerKind::Kubernetes) => {
            LogLabel::ContainerTimeout
        }
        (TimeoutReason::MachineTimeout, _) | (_, RunnerKind::Vm) => LogLabel::MachineTimeout,
        (TimeoutReason::RunNotFound | TimeoutReason::TimedOut, RunnerKind::Ci) => {
            LogLabel::SessionFailed
        }
    };
    let message = reason.message(job.timeout_minutes);
    let (mut job, mut planned) = end(job, JobState::TimedOut { reason }, now);
    planned.dedup = DedupUpdate::Clear;
    planned.breaker = BreakerUpdate::CountFailure;
    add_session_comment(
        &job,
        &comments::session_timed_out(&message),
        now,
        &mut planned,
    );
    let comment = comments::failure_comment(&job, None, &message, None);
    add_failure_effects(&job, None, comment, label, &mut planned);
    // A run that reported the timeout itself is about to end. Its host may still save its work.
    if !job.result_accepted {
        add_stop_run(&job, &mut planned);
    }
    finish(&mut job, planned)
}

/// Adds the marker, the comment and the log excerpt of a failure.
fn add_failure_effects(
    job: &Job,
    code: Option<FailureCode>,
    comment: String,
    label: LogLabel,
    planned: &mut PlannedEffects,
) {
    let stage = match job.kind.phase() {
        Some(Phase::Planning) => Stage::PlanningFailed,
        Some(Phase::Implementation) => Stage::ImplementationFailed,
        // The run was requested on the pull request.
        None => return planned.effects.extend(failed_on_pull(job, comment)),
    };
    planned.effects.push(Effect::SetMarker {
        issue: job.issue.clone(),
        stage,
    });
    planned.effects.push(Effect::TicketComment {
        issue: job.issue.clone(),
        body: comment,
    });
    // The log of a blocked push may quote the blocked contents. Review findings are in the pull
    // request.
    let without_excerpt = [
        FailureCode::SensitiveFilesBlocked,
        FailureCode::ReviewUnapproved,
    ];
    if !code.is_some_and(|code| without_excerpt.contains(&code)) {
        add_log_excerpt(job, label, planned);
    }
}

/// Adds the log excerpt, if there was a run.
fn add_log_excerpt(job: &Job, label: LogLabel, planned: &mut PlannedEffects) {
    planned
        .effects
        .extend(job.run.clone().map(|run| Effect::LogExcerpt {
            issue: job.issue.clone(),
            repo: job.repo.clone(),
            run,
            label,
            comment: None,
        }));
}

/// Conclusion of a cancelled job.
const CANCELLED: &str = "cancelled";

/// Cancels a job on request of an operator or the reaper, or, without a cancellation, because its
/// issue was closed. No failure is counted.
///
/// The markers of the issue follow from the cancellation, so that it no longer shows work in
/// progress. For work on a pull request, one comment is posted there.
pub(super) fn cancel(
    mut job: Job,
    cancellation: Option<Cancellation>,
    now: Timestamp,
) -> Transition {
    let reason = match &cancellation {
        Some(one) if one.then == AfterCancel::Release => format!("stopped by {}", one.actor()),
        Some(one) => format!("cancelled by {}", one.actor()),
        None => ISSUE_CLOSED.to_owned(),
    };
    job.conclusion = Some(CANCELLED.to_owned());
    job.cancellation = cancellation;
    let state = JobState::Failed {
        code: Some(FailureCode::Cancelled),
        reason,
    };
    let (mut job, mut planned) = end(job, state, now);
    planned.dedup = DedupUpdate::Clear;
    if job.kind.phase().is_some() {
        add_cancel_effects(&job, &mut planned);
    } else {
        let comment = comments::cancelled_on_pull_request(&job);
        planned.effects.extend(pull_comment(&job, comment));
    }
    add_stop_run(&job, &mut planned);
    finish(&mut job, planned)
}

/// Adds the markers of a cancelled ticket run, and the comment if no other run follows.
fn add_cancel_effects(job: &Job, planned: &mut PlannedEffects) {
    match job.after_cancel() {
        Some(AfterCancel::Stop) => planned.effects.extend([
            set_marker(job, Stage::Cancelled),
            Effect::TicketComment {
                issue: job.issue.clone(),
                body: comments::cancelled(job),
            },
        ]),
        Some(AfterCancel::Retry) => planned.effects.extend(retry_markers(job)),
        Some(AfterCancel::Release) | None => {
            planned.effects.push(set_marker(job, Stage::Triggered));
        }
    }
}

/// Returns the effects that put the issue of a ticket run back into the stage in which it was
/// dispatched, with its trigger.
pub fn retry_markers(job: &Job) -> Vec<Effect> {
    let mut markers = vec![set_marker(job, Stage::Retriggered)];
    let planned = job.trigger_stage.filter(|stage| stage.has_plan());
    markers.extend(planned.map(|stage| set_marker(job, stage)));
    markers
}

fn set_marker(job: &Job, stage: Stage) -> Effect {
    Effect::SetMarker {
        issue: job.issue.clone(),
        stage,
    }
}

/// Ends a job that reached the usage limit of its model provider. Its work is dispatched again at
/// `until`, or at once with another agent. The marker of the issue is restored, no failure is counted, and one comment is posted.
pub(super) fn pause(job: Job, reason: &str, until: Timestamp, now: Timestamp) -> Transition {
    let state = JobState::Failed {
        code: Some(FailureCode::ProviderLimit),
        reason: comments::paused_failure_reason(reason, until, job.agents.next),
    };
    let (mut job, mut planned) = end(job, state, now);
    job.resumes_at = Some(until);
    planned.dedup = DedupUpdate::Clear;
    let comment = comments::paused(job.kind, until, job.agents.next);
    match job.kind.phase() {
        Some(_) => planned.effects.extend([
            Effect::SetMarker {
                issue: job.issue.clone(),
                stage: job.trigger_stage.unwrap_or(Stage::Triggered),
            },
            Effect::TicketComment {
                issue: job.issue.clone(),
                body: comment,
            },
        ]),
        None => planned.effects.extend(pull_comment(&job, comment)),
    }
    finish(&mut job, planned)
}

/// Ends a job whose run asked people questions. The issue waits for the answer, and no failure is counted. The commit
/// that stores the questions also posts them.
pub(super) fn ask(job: Job, questions: Vec<Question>, now: Timestamp) -> Transition {
    let state = JobState::Failed {
        code: Some(FailureCode::NeedsInput),
        reason: comments::question_reason(&questions),
    };
    let (mut job, mut planned) = end(job, state, now);
    planned.dedup = DedupUpdate::Clear;
    planned.effects.push(set_marker(&job, Stage::NeedsInput));
    planned.questions = questions;
    finish(&mut job, planned)
}

/// Sets the terminal state.
fn end(mut job: Job, state: JobState, now: Timestamp) -> (Job, PlannedEffects) {
    job.state = state;
    job.finished_at = Some(now);
    (job, PlannedEffects::default())
}

/// Adds the effects that all ends have in common. Runs on an open pull request change no ticket and
/// are only reported to chat if they failed. Of a shadow run, only the effects that end the run
/// remain.
fn finish(job: &mut Job, mut planned: PlannedEffects) -> Transition {
    let is_ticket_run = job.kind.phase().is_some();
    if !is_ticket_run {
        planned.dedup = DedupUpdate::Keep;
        planned.breaker = BreakerUpdate::Keep;
    }
    if is_ticket_run || job.state != JobState::Completed {
        planned.effects.push(Effect::Chat {
            message: comments::chat_ended(job),
        });
    }
    // The service destroys machines and containers. CI runs end on their own.
    add_destroy_machine(job, &mut planned);
    if job.shadow {
        planned.effects.retain(|effect| {
            matches!(
                effect,
                Effect::StopRun { .. } | Effect::DestroyMachine { .. }
            )
        });
        planned.dedup = DedupUpdate::Keep;
        planned.breaker = BreakerUpdate::Keep;
        planned.plan = PlanUpdate::Keep;
        planned.questions.clear();
    }
    Transition {
        job: job.clone(),
        planned,
    }
}

/// Adds the effect that stops a run. A CI run that was dispatched may exist although it was not
/// found yet.
pub(super) fn add_stop_run(job: &Job, planned: &mut PlannedEffects) {
    let may_exist = job.runner == RunnerKind::Ci && job.dispatched_at.is_some();
    if job.run.is_some() || may_exist {
        planned.effects.push(stop_run(job));
    }
}

/// Returns the effect that stops a run. Without a handle, the run is looked up first.
pub(super) fn stop_run(job: &Job) -> Effect {
    Effect::StopRun {
        job: job.id.clone(),
        repo: job.repo.clone(),
        run: job.run.clone(),
    }
}

/// Adds the effect that destroys the machine of a run. It is performed after the ticket's earlier
/// effects, because the log excerpt is read from the machine.
pub(super) fn add_destroy_machine(job: &Job, planned: &mut PlannedEffects) {
    let machine = job.run.as_ref().and_then(RunHandle::machine);
    let has_ticket_effects = job.kind.phase().is_some() && !job.shadow;
    planned
        .effects
        .extend(machine.map(|machine| Effect::DestroyMachine {
            machine,
            job: Some(job.id.clone()),
            issue: has_ticket_effects.then(|| job.issue.clone()),
        }));
}
