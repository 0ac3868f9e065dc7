//! State machine of a job: events, and the transitions that follow from them.
//!
//! Everything that happens to a run is a [`JobEvent`]. [`apply_event`] returns the changed job and
//! the effects that the same commit stores. Two rules hold for events in any order, and property
//! tests check them:
//!
//! - A terminal state never changes. Late events are rejected, with one exception: if a run is
//!   found after its job has ended, it is recorded and stopped.
//! - A job ends at most once, and the effects of its end are planned once.
//!
//! Races and their outcome:
//!
//! - *Report before the start is recorded* (a crash between starting a run and recording it): the
//!   report proves that the run exists. The job ends, and the pending start effect finds the job
//!   ended.
//! - *End of the run before its report*: the report decides the outcome. The end is recorded, and
//!   judged after [`limits::REPORT_GRACE`] if no report arrived.
//! - *Timeout and report at the same time*: the first commit wins and the other event is rejected.
//!   Timeouts are checked here, on the current job, not by the caller.
//! - *Usage limit of the model provider*: the run failed, but its issue did not. A report with a
//!   retry time restores the issue's earlier stage. The engine validates the report before.
//! - *Cancellation while a result is unconfirmed*: the cancellation wins. A pull request that the run
//!   opened stays open, but the ticket does not link it, because nobody confirmed that it is ours.
//! - *Cancellation before the start is recorded*: the job ends, and the pending start effect finds
//!   it ended. A start that was never attempted is not attempted. A start whose outcome is unknown
//!   is looked up and stopped by an effect of its own, so that the ticket does not wait for the host.
//! - *Cancellation and result at the same time*: the first commit wins.
//! - *Timeout while the runner cannot be reached*: a run is only treated as missing if its runner
//!   was listed. The time budget still applies, unless the run is known to have ended.

mod conclusion;
mod pull_comments;
mod result;
mod termination;

use result::{apply_result, is_allowed_before_confirmation, store_unconfirmed_result};

use super::comments;
use super::effect::{DraftState, Effect};
use super::issue::Phase;
use super::job::{
    AfterCancel, Cancellation, Job, JobState, PullRequestRef, RunHandle, RunnerKind, TimeoutReason,
};
use super::limits;
use super::question::Question;
use super::report::ResultReport;
use super::stage::Stage;
use super::time::Timestamp;

pub use conclusion::{MissingReport, RunConclusion};
pub use termination::retry_markers;
use termination::{
    JobFailure, add_destroy_machine, add_stop_run, cancel, fail, finish_without_report, stop_run,
    time_out,
};

/// Event of a job or its run.
#[derive(Debug, Clone, PartialEq)]
pub enum JobEvent {
    /// The runner accepted the dispatch. Some runners return the run.
    Started {
        /// Run, if the runner returned it.
        run: Option<RunHandle>,
    },
    /// The outcome of a dispatch is unknown, and the job has ended.
    StartUnknown,
    /// The runner rejected the dispatch.
    StartRejected {
        /// Kind of the failure.
        kind: FailureKind,
        /// HTTP status of the rejection, if the runner responded.
        status: Option<u16>,
        /// Reason, as text.
        reason: String,
    },
    /// The run was found at its runner.
    RunFound {
        /// Handle of the run.
        run: RunHandle,
        /// Activity of the run.
        activity: RunActivity,
    },
    /// The run reported a step.
    StepReported,
    /// The run reported its result. The pull request that it names was confirmed at the host.
    ResultReported {
        /// Result as reported.
        report: ResultReport,
    },
    /// The run reported its result. The pull request that it names was not looked up yet.
    UnconfirmedResultReported {
        /// Result as reported.
        report: ResultReport,
    },
    /// The runner reported that the run ended.
    RunEnded {
        /// Handle of the run.
        run: RunHandle,
        /// How it ended.
        conclusion: RunConclusion,
        /// Pull request found on the branch. `None` if there is none, or if it was not looked up
        /// yet.
        pull: Option<(PullRequestRef, DraftState)>,
        /// Why there is no result.
        report: MissingReport,
    },
    /// The runner listed its runs, and this run is not among them.
    RunMissing,
    /// The machine of the session was destroyed.
    MachineDestroyed,
    /// Time passed. The time budget may be used up.
    Tick,
    /// An operator or the reaper cancelled the run.
    Cancelled {
        /// Name of the actor, as in the audit log.
        by: String,
        /// Consequence for the work of the run.
        then: AfterCancel,
    },
    /// The issue was closed or deleted.
    IssueClosed,
}

/// Kind of a failure: permanent, or worth a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A retry fails again.
    Permanent,
    /// A retry may succeed.
    Transient,
}

/// Activity of a run at its runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunActivity {
    /// Waiting for a machine.
    Queued,
    /// Executing.
    InProgress,
}

/// Result of applying an event to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Changed job.
    pub job: Job,
    /// Changes to store in the same commit.
    pub planned: PlannedEffects,
}

/// Changes that one commit stores with the job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlannedEffects {
    /// Effects for the outbox, in order.
    pub effects: Vec<Effect>,
    /// Change of the dedup entry of the issue.
    pub dedup: DedupUpdate,
    /// Change of the dispatch breaker of the issue.
    pub breaker: BreakerUpdate,
    /// Change of the stored plan of the issue.
    pub plan: PlanUpdate,
    /// Questions that the issue waits for an answer to.
    pub questions: Vec<Question>,
}

/// Change of the issue's entry in the dedup window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DedupUpdate {
    /// No change.
    #[default]
    Keep,
    /// Removes the entry.
    Clear,
}

/// Change of the dispatch breaker of the issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerUpdate {
    /// No change.
    #[default]
    Keep,
    /// Adds one failure.
    CountFailure,
    /// Resets the count of failures.
    Reset,
}

/// Change of the stored plan, which is passed to the implementation run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlanUpdate {
    /// No change.
    #[default]
    Keep,
    /// Replaces the plan with the planned ticket comments.
    Replace,
}

/// Reason why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRejection {
    /// The job is in a terminal state.
    AlreadyEnded,
    /// The event does not apply to the current state, or repeats an earlier one.
    NoChange,
}

/// Applies an event to a job. Returns the changed job and the effects to store with it.
///
/// # Errors
/// The reason why the event changes nothing.
pub fn apply_event(
    job: &Job,
    event: JobEvent,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    if event == JobEvent::MachineDestroyed {
        return machine_destroyed(job, now);
    }
    if !job.is_active() {
        return event_after_end(job, event, now);
    }
    if event == JobEvent::StepReported && job.state == JobState::Running {
        // The most frequent event. It changes nothing.
        return Err(EventRejection::NoChange);
    }
    if job.unconfirmed_result.is_some() && !is_allowed_before_confirmation(&event) {
        return Err(EventRejection::NoChange);
    }
    let mut job = job.clone();
    match event {
        JobEvent::Started { run } => started(job, run, now),
        JobEvent::StartRejected {
            kind,
            status,
            reason,
        } => match job.state {
            JobState::Reserved => {
                job.start_refusal_status = status;
                Ok(fail(
                    job,
                    JobFailure::new(None, reason).with_kind(kind),
                    now,
                ))
            }
            _ => Err(EventRejection::NoChange),
        },
        JobEvent::RunFound { run, activity } => run_found(job, run, activity, now),
        JobEvent::StepReported => Ok(to_running(job, now)),
        JobEvent::ResultReported { report } => Ok(apply_result(job, report, now)),
        JobEvent::UnconfirmedResultReported { report } => {
            Ok(store_unconfirmed_result(job, report, now))
        }
        JobEvent::RunEnded {
            run,
            conclusion,
            pull,
            report,
        } => run_ended(set_run(job, run), conclusion, pull, report, now),
        JobEvent::RunMissing if job.is_lost(now) => {
            Ok(time_out(job, TimeoutReason::RunNotFound, now))
        }
        JobEvent::Tick => match job.exceeded_timeout(now) {
            Some(reason) => Ok(time_out(job, reason, now)),
            None => Err(EventRejection::NoChange),
        },
        JobEvent::RunMissing | JobEvent::MachineDestroyed | JobEvent::StartUnknown => {
            Err(EventRejection::NoChange)
        }
        JobEvent::Cancelled { by, then } => Ok(cancel(job, Some(Cancellation { by, then }), now)),
        JobEvent::IssueClosed => Ok(cancel(job, None, now)),
    }
}

/// Handles an event of a job that has ended. A run that is only found now is recorded and stopped,
/// once. A run that may exist is looked up and stopped by an effect.
fn event_after_end(
    job: &Job,
    event: JobEvent,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    if job.run.is_some() {
        return Err(EventRejection::AlreadyEnded);
    }
    let mut job = job.clone();
    let mut planned = PlannedEffects::default();
    match event {
        JobEvent::Started { run: Some(run) } | JobEvent::RunFound { run, .. } => {
            job.run = Some(run);
            add_stop_run(&job, &mut planned);
            add_destroy_machine(&job, &mut planned);
        }
        JobEvent::Started { run: None } if job.dispatched_at.is_none() => {
            job.dispatched_at = Some(now);
            planned.effects.push(stop_run(&job));
        }
        JobEvent::StartUnknown => planned.effects.push(stop_run(&job)),
        _ => return Err(EventRejection::AlreadyEnded),
    }
    Ok(Transition { job, planned })
}

fn started(
    mut job: Job,
    run: Option<RunHandle>,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let is_new = run.is_some() && job.run.is_none();
    if is_new {
        job.run = run;
    }
    if job.state == JobState::Reserved {
        return Ok(to_dispatched(job, now));
    }
    if is_new {
        Ok(Transition {
            job,
            planned: PlannedEffects::default(),
        })
    } else {
        Err(EventRejection::NoChange)
    }
}

fn run_found(
    job: Job,
    run: RunHandle,
    activity: RunActivity,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let is_new = !has_full_handle(&job);
    let job = set_run(job, run);
    match (&job.state, activity) {
        (JobState::Reserved | JobState::Dispatched, RunActivity::InProgress) => {
            Ok(to_running(job, now))
        }
        (JobState::Reserved, RunActivity::Queued) => Ok(to_dispatched(job, now)),
        _ if is_new => Ok(Transition {
            job,
            planned: PlannedEffects::default(),
        }),
        _ => Err(EventRejection::NoChange),
    }
}

fn set_run(mut job: Job, run: RunHandle) -> Job {
    if !has_full_handle(&job) {
        job.run = Some(run);
    }
    job
}

/// Returns whether the run handle is complete. A CI run that is only known from its own report has
/// no address yet.
fn has_full_handle(job: &Job) -> bool {
    match &job.run {
        Some(RunHandle::Ci { url, .. }) => !url.is_empty(),
        Some(
            RunHandle::Machine { .. }
            | RunHandle::Container { .. }
            | RunHandle::KubernetesJob { .. },
        ) => true,
        None => false,
    }
}

/// Records that the session machine was destroyed. The state of the job does not change: it follows
/// from what its runner reports next.
fn machine_destroyed(job: &Job, now: Timestamp) -> Result<Transition, EventRejection> {
    if job.machine_destroyed_at.is_some() {
        return Err(EventRejection::NoChange);
    }
    let mut job = job.clone();
    job.machine_destroyed_at = Some(now);
    let mut planned = PlannedEffects::default();
    let started_at = job.dispatched_at.unwrap_or(job.reserved_at);
    let sentence = comments::session_cleaned_up(now.since(started_at));
    add_session_comment(&job, &sentence, now, &mut planned);
    Ok(Transition { job, planned })
}

/// Adds a progress comment of a session. CI runs, shadow runs and runs on an open pull request post
/// none.
fn add_session_comment(job: &Job, sentence: &str, now: Timestamp, planned: &mut PlannedEffects) {
    if job.runner == RunnerKind::Ci || job.shadow || job.kind.phase().is_none() {
        return;
    }
    let log_url = job.run.as_ref().and_then(RunHandle::log_url);
    planned.effects.push(Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::session_comment(sentence, now, log_url),
    });
}

/// Changes the state to `dispatched` and shows on the ticket that work has started.
fn to_dispatched(mut job: Job, now: Timestamp) -> Transition {
    job.state = JobState::Dispatched;
    job.dispatched_at = Some(now);
    let mut planned = PlannedEffects::default();
    if !job.shadow
        && let Some(phase) = job.kind.phase()
    {
        let stage = match phase {
            Phase::Planning => Stage::Planning,
            Phase::Implementation => Stage::Implementing,
        };
        planned.effects.push(Effect::SetMarker {
            issue: job.issue.clone(),
            stage,
        });
        add_session_comment(&job, comments::SESSION_CREATED, now, &mut planned);
        planned.effects.push(Effect::Chat {
            message: comments::chat_dispatched(&job),
        });
    }
    Transition { job, planned }
}

/// Changes the state to `running`, through `dispatched` if the start was not recorded.
fn to_running(job: Job, now: Timestamp) -> Transition {
    let mut next = match job.state {
        JobState::Reserved => to_dispatched(job, now),
        _ => Transition {
            job,
            planned: PlannedEffects::default(),
        },
    };
    next.job.state = JobState::Running;
    next.job.started_at.get_or_insert(now);
    next
}

/// Handles the end of a run. It is judged after [`limits::REPORT_GRACE`], or at once if its report was
/// refused.
fn run_ended(
    mut job: Job,
    conclusion: RunConclusion,
    pull: Option<(PullRequestRef, DraftState)>,
    report: MissingReport,
    now: Timestamp,
) -> Result<Transition, EventRejection> {
    let is_new = job.run_ended_at.is_none();
    let ended_at = *job.run_ended_at.get_or_insert(now);
    job.conclusion = Some(conclusion.as_str().to_owned());
    if report == MissingReport::NotArrived && now.since(ended_at) < limits::REPORT_GRACE {
        return if is_new {
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
    Ok(finish_without_report(job, &conclusion, draft, &report, now))
}

#[cfg(test)]
mod tests;
