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

mod ending;

use super::caps;
use super::comments;
use super::effect::{Draft, Effect};
use super::issue::Phase;
use super::job::{
    HeldResult, Job, JobKind, JobState, PullRef, RunHandle, RunnerKind, TimeoutReason,
};
use super::report::{FailureCode, Outcome, ResultReport};
use super::stage::Stage;
use super::time::Timestamp;

use ending::{
    Ending, cancel, complete, destroy_machine, end_run, fail, judge, pause, review_fail, time_out,
    without_pull,
};

/// Something that happened to a job's run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The runner took the dispatch; some answer with the run itself.
    Started { run: Option<RunHandle> },
    /// The runner will not take the dispatch; `status` is its HTTP status, if it answered.
    StartRefused {
        cause: Cause,
        status: Option<u16>,
        reason: String,
    },
    /// The run was found at its runner.
    RunSeen { run: RunHandle, activity: Activity },
    /// The run reported a step.
    StepReported,
    /// The run reported its result. The pull request that it names has been confirmed at the host.
    ResultReported { report: ResultReport },
    /// The run reported its result, and the pull request that it names is still to be looked up.
    ResultHeld { report: ResultReport },
    /// The runner says that the run is over. Its pull request was looked for, if it is time to.
    RunEnded {
        run: RunHandle,
        conclusion: String,
        pull: Option<(PullRef, Draft)>,
    },
    /// The runner listed its runs, and this one is not among them.
    RunMissing,
    /// The session's machine was taken down.
    MachineGone,
    /// Time passed; a budget may have run out.
    TimePassed,
    /// An operator, or the reaper, took the run away.
    Destroyed { by: String },
    /// The issue was closed or deleted.
    IssueClosed,
}

/// Whether trying again may help by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Lasting,
    Passing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Waiting,
    InProgress,
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    pub job: Job,
    pub owed: Owed,
}

/// What one commit stores beside the job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Owed {
    pub effects: Vec<Effect>,
    pub dedup: Dedup,
    pub breaker: Breaker,
    pub plan: Planned,
}

/// What becomes of the issue's entry in the dedup window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dedup {
    #[default]
    Keep,
    Clear,
}

/// What the dispatch breaker learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Breaker {
    #[default]
    Nothing,
    CountFailure,
    Reset,
}

/// What becomes of the plan that the issue's implementation is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planned {
    #[default]
    Keep,
    /// The ticket comments that are owed here are the plan from now on.
    Replace,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    AlreadyEnded,
    NothingNew,
}

/// Answers the job after `event`, and everything that is owed because of it.
pub fn advance(job: &Job, event: Event, now: Timestamp) -> Result<Next, Refusal> {
    if event == Event::MachineGone {
        return machine_gone(job, now);
    }
    if !job.is_active() {
        return after_the_end(job, event);
    }
    if event == Event::StepReported && job.state == JobState::Running {
        // The most frequent of all, and nothing follows from it.
        return Err(Refusal::NothingNew);
    }
    if job.held.is_some() && !may_come_before_confirmation(&event) {
        return Err(Refusal::NothingNew);
    }
    let mut job = job.clone();
    match event {
        Event::Started { run } => started(job, run, now),
        Event::StartRefused {
            cause,
            status,
            reason,
        } => match job.state {
            JobState::Unknown => {
                job.refused_with = status;
                Ok(fail(
                    job,
                    Ending::failure(None, reason).caused_by(cause),
                    now,
                ))
            }
            _ => Err(Refusal::NothingNew),
        },
        Event::RunSeen { run, activity } => run_seen(job, run, activity, now),
        Event::StepReported => Ok(run(job, now)),
        Event::ResultReported { report } => Ok(report_result(job, report, now)),
        Event::ResultHeld { report } => Ok(hold_result(job, report, now)),
        Event::RunEnded {
            run,
            conclusion,
            pull,
        } => run_ended(link(job, run), conclusion, pull, now),
        Event::RunMissing if job.is_lost(now) => Ok(time_out(job, TimeoutReason::RunNotFound, now)),
        Event::TimePassed => match job.overdue(now) {
            Some(reason) => Ok(time_out(job, reason, now)),
            None => Err(Refusal::NothingNew),
        },
        Event::RunMissing | Event::MachineGone => Err(Refusal::NothingNew),
        Event::Destroyed { by } => Ok(cancel(job, format!("stopped by {by}"), now)),
        Event::IssueClosed => Ok(cancel(job, "the issue was closed".to_owned(), now)),
    }
}

/// The job has ended, so nothing is left to decide; but a run that shows up only now would go on
/// for nobody, so it is owed its end, once.
fn after_the_end(job: &Job, event: Event) -> Result<Next, Refusal> {
    let found = match event {
        Event::Started { run } => run,
        Event::RunSeen { run, .. } => Some(run),
        _ => None,
    };
    let run = found
        .filter(|_| job.run.is_none())
        .ok_or(Refusal::AlreadyEnded)?;
    let mut job = job.clone();
    job.run = Some(run);
    let mut owed = Owed::default();
    end_run(&job, &mut owed);
    destroy_machine(&job, &mut owed);
    Ok(Next { job, owed })
}

fn started(mut job: Job, run: Option<RunHandle>, now: Timestamp) -> Result<Next, Refusal> {
    let news = run.is_some() && job.run.is_none();
    if news {
        job.run = run;
    }
    if job.state == JobState::Unknown {
        return Ok(dispatch(job, now));
    }
    if news {
        Ok(Next {
            job,
            owed: Owed::default(),
        })
    } else {
        Err(Refusal::NothingNew)
    }
}

fn run_seen(job: Job, run: RunHandle, activity: Activity, now: Timestamp) -> Result<Next, Refusal> {
    let news = !is_linked(&job);
    let job = link(job, run);
    match (&job.state, activity) {
        (JobState::Unknown | JobState::Dispatched, Activity::InProgress) => Ok(self::run(job, now)),
        (JobState::Unknown, Activity::Waiting) => Ok(dispatch(job, now)),
        _ if news => Ok(Next {
            job,
            owed: Owed::default(),
        }),
        _ => Err(Refusal::NothingNew),
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
fn machine_gone(job: &Job, now: Timestamp) -> Result<Next, Refusal> {
    if job.machine_gone_at.is_some() {
        return Err(Refusal::NothingNew);
    }
    let mut job = job.clone();
    job.machine_gone_at = Some(now);
    let mut owed = Owed::default();
    let began = job.dispatched_at.unwrap_or(job.reserved_at);
    let sentence = comments::session_cleaned_up(now.since(began));
    session_says(&job, &sentence, now, &mut owed);
    Ok(Next { job, owed })
}

/// A session tells its ticket how it goes; work on an open pull request and shadows tell nobody.
fn session_says(job: &Job, sentence: &str, now: Timestamp, owed: &mut Owed) {
    if job.runner == RunnerKind::Ci || job.shadow || job.kind.phase().is_none() {
        return;
    }
    let log_url = job.run.as_ref().and_then(RunHandle::log_url);
    owed.effects.push(Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::session(sentence, now, log_url),
    });
}

/// To `dispatched`: the ticket shows that work is under way.
fn dispatch(mut job: Job, now: Timestamp) -> Next {
    job.state = JobState::Dispatched;
    job.dispatched_at = Some(now);
    let mut owed = Owed::default();
    if !job.shadow
        && let Some(phase) = job.kind.phase()
    {
        let stage = match phase {
            Phase::Planning => Stage::Planning,
            Phase::Implementation => Stage::Implementing,
        };
        owed.effects.push(Effect::MoveMarker {
            issue: job.issue.clone(),
            stage,
        });
        session_says(&job, comments::SESSION_CREATED, now, &mut owed);
        owed.effects.push(Effect::Chat {
            message: comments::chat_dispatched(&job),
        });
    }
    Next { job, owed }
}

/// To `running`, by way of `dispatched` when nobody had noticed the start.
fn run(job: Job, now: Timestamp) -> Next {
    let mut next = match job.state {
        JobState::Unknown => dispatch(job, now),
        _ => Next {
            job,
            owed: Owed::default(),
        },
    };
    next.job.state = JobState::Running;
    next.job.started_at.get_or_insert(now);
    next
}

/// A held result is the outcome, whatever the run or its host does meanwhile. People may still end
/// the job.
fn may_come_before_confirmation(event: &Event) -> bool {
    matches!(
        event,
        Event::ResultReported { .. }
            | Event::Started { .. }
            | Event::RunSeen { .. }
            | Event::Destroyed { .. }
            | Event::IssueClosed
    )
}

/// Keeps the result until its pull request has been looked up.
fn hold_result(job: Job, report: ResultReport, now: Timestamp) -> Next {
    let mut job = reported(job, &report);
    job.held = Some(Box::new(HeldResult { report, since: now }));
    Next {
        job,
        owed: Owed::default(),
    }
}

fn reported(mut job: Job, report: &ResultReport) -> Job {
    job.reported = true;
    job.usage = report.usage.or(job.usage);
    if let (None, RunnerKind::Ci, Some(id)) = (&job.run, job.runner, report.run_id) {
        job.run = Some(RunHandle::Ci {
            id,
            url: String::new(),
        });
    }
    job
}

fn report_result(job: Job, report: ResultReport, now: Timestamp) -> Next {
    let mut job = reported(job, &report);
    job.held = None;
    if job.opens_pull() {
        job.pull = report.pr_url.as_deref().and_then(PullRef::from_url);
    }
    let is_without_pull = job.opens_pull();
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
        Outcome::Success if is_without_pull => without_pull(job, report.failure_reason, now),
        // A plan has no review.
        Outcome::Success if is_open && job.kind != JobKind::Planning => {
            review_fail(job, report.unresolved, now)
        }
        Outcome::Success => complete(job, now),
        Outcome::Failure if unapproved => review_fail(job, report.unresolved, now),
        Outcome::Failure => {
            let reason = comments::reason_or_default(report.failure_reason.as_deref());
            match (report.failure_code, report.retry_at) {
                (Some(FailureCode::ProviderLimit), Some(until)) => pause(job, &reason, until, now),
                (Some(FailureCode::TimedOut), _) => {
                    let used_up = job.out_of_time();
                    time_out(job, used_up, now)
                }
                (Some(FailureCode::Cancelled), _) if job.was_cut_off(now) => {
                    time_out(job, TimeoutReason::TimedOut, now)
                }
                (code, _) => {
                    let ending = Ending::failure(code, reason).after(report.last_words);
                    fail(job, ending, now)
                }
            }
        }
    };
    let after_marker = next
        .owed
        .effects
        .iter()
        .take_while(|e| matches!(e, Effect::MoveMarker { .. }))
        .count();
    next.owed.effects.splice(after_marker..after_marker, said);
    next
}

fn ticket_comments(job: &Job, report: &ResultReport) -> Vec<Effect> {
    let comment = |body: &str| Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::published(body),
    };
    report
        .comments
        .iter()
        .filter(|said| !said.body.trim().is_empty())
        .take(caps::MAX_RUN_COMMENTS)
        .map(|said| comment(&said.body))
        .collect()
}

/// The end of a run is judged only when its report had time to come, or cannot come at all.
fn run_ended(
    mut job: Job,
    conclusion: String,
    pull: Option<(PullRef, Draft)>,
    now: Timestamp,
) -> Result<Next, Refusal> {
    let news = job.run_ended_at.is_none();
    let ended_at = *job.run_ended_at.get_or_insert(now);
    job.conclusion = Some(conclusion.clone());
    if job.callbacks && now.since(ended_at) < caps::REPORT_GRACE {
        return if news {
            Ok(Next {
                job,
                owed: Owed::default(),
            })
        } else {
            Err(Refusal::NothingNew)
        };
    }
    let (pull, draft) = pull.unzip();
    job.pull = pull.or(job.pull);
    Ok(judge(job, &conclusion, draft, now))
}

#[cfg(test)]
mod tests;
