//! The life of a job: what happened to it, and what follows.
//!
//! [`advance`] is the one pivot of the engine. Everything that happens to a run is an [`Event`];
//! everything we do about it is an effect that the same commit stores. Two rules hold whatever
//! comes in whatever order, and a property test keeps them:
//!
//! - A terminal state never changes again. What arrives late is refused, with one exception: a run
//!   that turns out to exist after its job has ended is noted and owed its end.
//! - A job ends once, and what its end owes is owed once.
//!
//! Races, and what was decided:
//!
//! - *A report before the start is known* (we crashed between starting a run and noting it): the
//!   report proves the run; the job ends, and the start that is still owed finds it ended.
//! - *The run's end before its report*: the report is the truth about the outcome, so the end is
//!   noted and judged only after a grace (spec is silent; two minutes).
//! - *A deadline and a report at once*: whichever commits first; the other is refused. Deadlines are
//!   looked at here and not by whoever asks, so that what was heard meanwhile counts.
//! - *The model provider's usage limit*: the run has failed and its issue has not. A report that says
//!   when to go on leaves the issue as it was found; who weighs what the report says is `flow/limit`.
//! - *A deadline while the runner cannot be asked*: a run that was not seen is not called missing.
//!   The time budget holds all the same, unless the run is known to have ended.

mod termination;

use super::comments;
use super::effect::{DraftState, Effect};
use super::issue::Phase;
use super::job::{
    Job, JobKind, JobState, PullRequestRef, RunHandle, RunnerKind, TimeoutReason, UnconfirmedResult,
};
use super::limits;
use super::report::{FailureCode, ResultReport, RunOutcome};
use super::stage::Stage;
use super::time::Timestamp;

use termination::{
    JobFailure, add_destroy_machine, add_stop_run, cancel, complete, fail, fail_review,
    fail_without_pull_request, finish_without_report, pause, time_out,
};

/// Something that happened to a job's run.
#[derive(Debug, Clone, PartialEq)]
pub enum JobEvent {
    /// The runner took the dispatch; some answer with the run itself.
    Started { run: Option<RunHandle> },
    /// The runner will not take the dispatch; `status` is its HTTP status, if it answered.
    StartRejected {
        kind: FailureKind,
        status: Option<u16>,
        reason: String,
    },
    /// The run was found at its runner.
    RunFound {
        run: RunHandle,
        activity: RunActivity,
    },
    /// The run reported a step.
    StepReported,
    /// The run reported its result. The pull request that it names has been confirmed at the host.
    ResultReported { report: ResultReport },
    /// The run reported its result, and the pull request that it names is still to be looked up.
    UnconfirmedResultReported { report: ResultReport },
    /// The runner says that the run is over. Its pull request was looked for, if it is time to.
    RunEnded {
        run: RunHandle,
        conclusion: String,
        pull: Option<(PullRequestRef, DraftState)>,
    },
    /// The runner listed its runs, and this one is not among them.
    RunMissing,
    /// The session's machine was taken down.
    MachineDestroyed,
    /// Time passed; a budget may have run out.
    Tick,
    /// An operator, or the reaper, took the run away.
    Cancelled { by: String },
    /// The issue was closed or deleted.
    IssueClosed,
}

/// Whether trying again may help by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Permanent,
    Transient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunActivity {
    Queued,
    InProgress,
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    pub job: Job,
    pub planned: PlannedEffects,
}

/// What one commit stores beside the job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlannedEffects {
    pub effects: Vec<Effect>,
    pub dedup: DedupUpdate,
    pub breaker: BreakerUpdate,
    pub plan: PlanUpdate,
}

/// What becomes of the issue's entry in the dedup window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DedupUpdate {
    #[default]
    Keep,
    Clear,
}

/// What the dispatch breaker learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerUpdate {
    #[default]
    Keep,
    CountFailure,
    Reset,
}

/// What becomes of the plan that the issue's implementation is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlanUpdate {
    #[default]
    Keep,
    /// The ticket comments that are owed here are the plan from now on.
    Replace,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRejection {
    AlreadyEnded,
    NoChange,
}

/// Answers the job after `event`, and everything that is owed because of it.
pub fn apply_event(
    job: &Job,
    event: JobEvent,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    if event == JobEvent::MachineDestroyed {
        return machine_gone(job, now);
    }
    if !job.is_active() {
        return after_the_end(job, event);
    }
    if event == JobEvent::StepReported && job.state == JobState::Running {
        // The most frequent of all, and nothing follows from it.
        return Err(EventRejection::NoChange);
    }
    if job.unconfirmed_result.is_some() && !may_come_before_confirmation(&event) {
        return Err(EventRejection::NoChange);
    }
    let mut job = job.clone();
    match event {
        JobEvent::Started { run } => started(job, run, now),
        JobEvent::StartRejected {
            kind: cause,
            status,
            reason,
        } => match job.state {
            JobState::Reserved => {
                job.start_refusal_status = status;
                Ok(fail(
                    job,
                    JobFailure::new(None, reason).with_kind(cause),
                    now,
                ))
            }
            _ => Err(EventRejection::NoChange),
        },
        JobEvent::RunFound { run, activity } => run_seen(job, run, activity, now),
        JobEvent::StepReported => Ok(run(job, now)),
        JobEvent::ResultReported { report } => Ok(report_result(job, report, now)),
        JobEvent::UnconfirmedResultReported { report } => Ok(hold_result(job, report, now)),
        JobEvent::RunEnded {
            run,
            conclusion,
            pull,
        } => run_ended(link(job, run), conclusion, pull, now),
        JobEvent::RunMissing if job.is_lost(now) => {
            Ok(time_out(job, TimeoutReason::RunNotFound, now))
        }
        JobEvent::Tick => match job.exceeded_timeout(now) {
            Some(reason) => Ok(time_out(job, reason, now)),
            None => Err(EventRejection::NoChange),
        },
        JobEvent::RunMissing | JobEvent::MachineDestroyed => Err(EventRejection::NoChange),
        JobEvent::Cancelled { by } => Ok(cancel(job, format!("stopped by {by}"), now)),
        JobEvent::IssueClosed => Ok(cancel(job, "the issue was closed".to_owned(), now)),
    }
}

/// The job has ended, so nothing is left to decide; but a run that shows up only now would go on
/// for nobody, so it is owed its end, once.
fn after_the_end(job: &Job, event: JobEvent) -> Result<Transition, EventRejection> {
    let found = match event {
        JobEvent::Started { run } => run,
        JobEvent::RunFound { run, .. } => Some(run),
        _ => None,
    };
    let run = found
        .filter(|_| job.run.is_none())
        .ok_or(EventRejection::AlreadyEnded)?;
    let mut job = job.clone();
    job.run = Some(run);
    let mut owed = PlannedEffects::default();
    add_stop_run(&job, &mut owed);
    add_destroy_machine(&job, &mut owed);
    Ok(Transition { job, planned: owed })
}

fn started(
    mut job: Job,
    run: Option<RunHandle>,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let news = run.is_some() && job.run.is_none();
    if news {
        job.run = run;
    }
    if job.state == JobState::Reserved {
        return Ok(dispatch(job, now));
    }
    if news {
        Ok(Transition {
            job,
            planned: PlannedEffects::default(),
        })
    } else {
        Err(EventRejection::NoChange)
    }
}

fn run_seen(
    job: Job,
    run: RunHandle,
    activity: RunActivity,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let news = !is_linked(&job);
    let job = link(job, run);
    match (&job.state, activity) {
        (JobState::Reserved | JobState::Dispatched, RunActivity::InProgress) => {
            Ok(self::run(job, now))
        }
        (JobState::Reserved, RunActivity::Queued) => Ok(dispatch(job, now)),
        _ if news => Ok(Transition {
            job,
            planned: PlannedEffects::default(),
        }),
        _ => Err(EventRejection::NoChange),
    }
}

fn link(mut job: Job, run: RunHandle) -> Job {
    if !is_linked(&job) {
        job.run = Some(run);
    }
    job
}

/// A run that is known by its own report only has no address to show yet.
fn is_linked(job: &Job) -> bool {
    match &job.run {
        Some(RunHandle::Ci { url, .. }) => !url.is_empty(),
        Some(RunHandle::Machine { .. } | RunHandle::Container { .. }) => true,
        None => false,
    }
}

/// The last thing a session tells. A job whose machine is taken from under it ends by what its
/// runner shows next.
fn machine_gone(job: &Job, now: Timestamp) -> Result<Transition, EventRejection> {
    if job.machine_destroyed_at.is_some() {
        return Err(EventRejection::NoChange);
    }
    let mut job = job.clone();
    job.machine_destroyed_at = Some(now);
    let mut owed = PlannedEffects::default();
    let began = job.dispatched_at.unwrap_or(job.reserved_at);
    let sentence = comments::session_cleaned_up(now.since(began));
    add_session_comment(&job, &sentence, now, &mut owed);
    Ok(Transition { job, planned: owed })
}

/// A session tells its ticket how it goes; work on an open pull request and shadows tell nobody.
fn add_session_comment(job: &Job, sentence: &str, now: Timestamp, owed: &mut PlannedEffects) {
    if job.runner == RunnerKind::Ci || job.shadow || job.kind.phase().is_none() {
        return;
    }
    let log_url = job.run.as_ref().and_then(RunHandle::log_url);
    owed.effects.push(Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::session_comment(sentence, now, log_url),
    });
}

/// To `dispatched`: the ticket shows that work is under way.
fn dispatch(mut job: Job, now: Timestamp) -> Transition {
    job.state = JobState::Dispatched;
    job.dispatched_at = Some(now);
    let mut owed = PlannedEffects::default();
    if !job.shadow
        && let Some(phase) = job.kind.phase()
    {
        let stage = match phase {
            Phase::Planning => Stage::Planning,
            Phase::Implementation => Stage::Implementing,
        };
        owed.effects.push(Effect::SetMarker {
            issue: job.issue.clone(),
            stage,
        });
        add_session_comment(&job, comments::SESSION_CREATED, now, &mut owed);
        owed.effects.push(Effect::Chat {
            message: comments::chat_dispatched(&job),
        });
    }
    Transition { job, planned: owed }
}

/// To `running`, by way of `dispatched` when nobody had noticed the start.
fn run(job: Job, now: Timestamp) -> Transition {
    let mut next = match job.state {
        JobState::Reserved => dispatch(job, now),
        _ => Transition {
            job,
            planned: PlannedEffects::default(),
        },
    };
    next.job.state = JobState::Running;
    next.job.started_at.get_or_insert(now);
    next
}

/// A held result is the outcome, whatever the run or its host does meanwhile. People may still end
/// the job.
fn may_come_before_confirmation(event: &JobEvent) -> bool {
    matches!(
        event,
        JobEvent::ResultReported { .. }
            | JobEvent::Started { .. }
            | JobEvent::RunFound { .. }
            | JobEvent::Cancelled { .. }
            | JobEvent::IssueClosed
    )
}

/// Keeps the result until its pull request has been looked up.
fn hold_result(job: Job, report: ResultReport, now: Timestamp) -> Transition {
    let mut job = reported(job, &report);
    job.unconfirmed_result = Some(Box::new(UnconfirmedResult { report, since: now }));
    Transition {
        job,
        planned: PlannedEffects::default(),
    }
}

fn reported(mut job: Job, report: &ResultReport) -> Job {
    job.result_accepted = true;
    job.usage = report.usage.or(job.usage);
    if let (None, RunnerKind::Ci, Some(id)) = (&job.run, job.runner, report.run_id) {
        job.run = Some(RunHandle::Ci {
            id,
            url: String::new(),
        });
    }
    job
}

fn report_result(job: Job, report: ResultReport, now: Timestamp) -> Transition {
    let mut job = reported(job, &report);
    job.unconfirmed_result = None;
    if job.may_open_pull_request() {
        job.pull = report.pr_url.as_deref().and_then(PullRequestRef::from_url);
    }
    let is_without_pull = job.may_open_pull_request();
    let said = if job.shadow {
        Vec::new()
    } else {
        ticket_comments(&job, &report)
    };
    let unapproved = report.failure_code == Some(FailureCode::ReviewUnapproved)
        && job.pull.is_some()
        && job.kind != JobKind::Planning;
    let is_open = !report.unresolved.is_empty();
    let mut next = match report.outcome {
        RunOutcome::Success if is_without_pull => {
            fail_without_pull_request(job, report.failure_reason, now)
        }
        // A plan has no review.
        RunOutcome::Success if is_open && job.kind != JobKind::Planning => {
            fail_review(job, report.unresolved, now)
        }
        RunOutcome::Success => complete(job, now),
        RunOutcome::Failure if unapproved => fail_review(job, report.unresolved, now),
        RunOutcome::Failure => {
            let reason = comments::reason_or_default(report.failure_reason.as_deref());
            match (report.failure_code, report.retry_at) {
                (Some(FailureCode::ProviderLimit), Some(until)) => pause(job, &reason, until, now),
                (Some(FailureCode::TimedOut), _) => {
                    let used_up = job.timeout_reason();
                    time_out(job, used_up, now)
                }
                (Some(FailureCode::Cancelled), _) if job.has_reached_host_timeout(now) => {
                    time_out(job, TimeoutReason::TimedOut, now)
                }
                (code, _) => {
                    let ending = JobFailure::new(code, reason)
                        .with_last_agent_message(report.last_agent_message);
                    fail(job, ending, now)
                }
            }
        }
    };
    let after_marker = next
        .planned
        .effects
        .iter()
        .take_while(|e| matches!(e, Effect::SetMarker { .. }))
        .count();
    next.planned
        .effects
        .splice(after_marker..after_marker, said);
    next
}

fn ticket_comments(job: &Job, report: &ResultReport) -> Vec<Effect> {
    let comment = |body: &str| Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::sanitize_markdown(body),
    };
    report
        .comments
        .iter()
        .filter(|said| !said.body.trim().is_empty())
        .take(limits::MAX_RUN_COMMENTS)
        .map(|said| comment(&said.body))
        .collect()
}

/// The end of a run is judged only when its report had time to come, or cannot come at all.
fn run_ended(
    mut job: Job,
    conclusion: String,
    pull: Option<(PullRequestRef, DraftState)>,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let news = job.run_ended_at.is_none();
    let ended_at = *job.run_ended_at.get_or_insert(now);
    job.conclusion = Some(conclusion.clone());
    if job.has_callbacks && now.since(ended_at) < limits::REPORT_GRACE {
        return if news {
            Ok(Transition {
                job,
                planned: PlannedEffects::default(),
            })
        } else {
            Err(EventRejection::NoChange)
        };
    }
    let (pull, draft) = pull.unzip();
    job.pull = pull.or(job.pull);
    Ok(finish_without_report(job, &conclusion, draft, now))
}

#[cfg(test)]
mod tests;
