//! Cancellation and retry of runs by operators.
//!
//! A cancellation ends the job in one commit, in every state. Its effects stay in the outbox until
//! they are performed: the run is stopped at its host, and the markers of the issue change. The
//! start of a run that has not begun finds its job ended and starts nothing.
//!
//! After a cancellation without retry, no poll dispatches the issue again. A poll reads the store
//! before it requests the issues: either it sees the active job or the pending effects, or its
//! issues were read after the trigger was removed. If the removal is given up, the issue waits until
//! an operator decides ([`dispatch::uncleared_issues`]).
//!
//! A retry removes what keeps the issue of an ended run from being dispatched, and puts its trigger
//! back. The poll is woken when the trigger is set. For a run on a pull request, the feedback that
//! it worked on waits for another run.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::{IssueId, JobId};
use domain::issue::Phase;
use domain::job::{AfterCancel, Job};
use domain::time::Timestamp;
use domain::transition::{JobEvent, retry_markers};
use domain::vendor::Vendor;
use store::crash_injection::CrashPoint;
use store::{
    ReadableTx, StoreError, StoreResult, WriteTx, audit, dedup, dispatch_breaker, job_index, jobs,
    mappings, operator_retries, outbox, pull_feedback, take_overs,
};
use vendors::scm::PullRequestState;

use super::job_events::{self, BreakerPolicy, EventOutcome};
use super::pull_requests::ledger;
use super::{conversation, dispatch, ticket_wait_comments};

/// Timeout of the question whether a ticket or a pull request is open.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);

/// Reason why a run cannot be cancelled or retried.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No run has this id, and no issue with this id or key has a run.
    #[error("no such run")]
    UnknownRun,
    /// The run to cancel has ended.
    #[error("the run has ended")]
    AlreadyEnded,
    /// The issue to retry has an active run.
    #[error("a run of the issue is active")]
    ActiveRun,
    /// The ticket to retry is closed.
    #[error("the ticket is closed")]
    TicketClosed,
    /// The work cannot be retried, for the reason in this sentence.
    #[error("{0}")]
    NotRetryable(&'static str),
    /// A vendor did not answer, as stated in this sentence.
    #[error("{0}")]
    Unanswered(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the event of a cancellation by an operator.
pub(crate) fn cancel_event(actor: &Actor, then: AfterCancel) -> JobEvent {
    JobEvent::Cancelled {
        by: actor.name().to_owned(),
        then,
    }
}

/// Cancels an active run. The caller records it in the audit.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn cancel_run(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    id: &JobId,
    actor: &Actor,
    then: AfterCancel,
    now: Timestamp,
) -> StoreResult<EventOutcome> {
    job_events::apply(tx, policy, id, cancel_event(actor, then), now)
}

/// Cancels a run: the one with this id, or the active run of the issue with this id or key. With
/// `is_retry`, its work is dispatched again. Returns the id of the run.
///
/// # Errors
/// Fails if there is no such run, if it has ended, or if the store cannot be written.
pub async fn cancel(
    app: &App,
    actor: Actor,
    named: String,
    is_retry: bool,
) -> Result<JobId, ControlError> {
    let (handle, now) = (app.clone(), app.core.now());
    let cancelled = app
        .core
        .store
        .write(move |tx| cancel_in(tx, &handle, &actor, &named, is_retry, now));
    let job = cancelled.await??;
    job_events::log_job_end(&EventOutcome::Advanced(job.clone()), now);
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::CancelStored);
    Ok(job.id)
}

/// Cancels a run in the caller's transaction. See [`cancel`].
pub(crate) fn cancel_in(
    tx: &WriteTx<'_>,
    app: &App,
    actor: &Actor,
    named: &str,
    is_retry: bool,
    now: Timestamp,
) -> StoreResult<Result<Box<Job>, ControlError>> {
    let Some(job) = find_run(tx, named, Job::is_active)? else {
        return Ok(Err(ControlError::UnknownRun));
    };
    let then = match is_retry && !job.shadow {
        true => AfterCancel::Retry,
        false => AfterCancel::Stop,
    };
    let policy = BreakerPolicy::from_config(&app.core.config);
    let outcome = cancel_run(tx, policy, &job.id, actor, then, now)?;
    let EventOutcome::Advanced(ended) = outcome else {
        return Ok(Err(ControlError::AlreadyEnded));
    };
    if then == AfterCancel::Retry {
        operator_retries::record(tx, &job.issue.id, now)?;
    }
    let event = actor.audit_event(Action::RunCancelled, &job.issue.key);
    let retry = match then {
        AfterCancel::Retry => "with retry",
        _ => "without retry",
    };
    let details = format!("{retry}; {}", dispatch::audit_details(&job));
    audit::append(tx, &event.with_detail(details), now)?;
    Ok(Ok(ended))
}

/// Requests another run for the work of an ended run: the one with this id, or the latest run of
/// the issue with this id or key.
///
/// # Errors
/// Fails if there is no such run, if its issue has an active run, if its ticket or pull request is
/// closed or cannot be looked up, or if the store cannot be written.
pub async fn retry(app: &App, actor: Actor, named: &str) -> Result<(), ControlError> {
    let job = check_retry(app, named).await?;
    let (is_on_ticket, now) = (job.kind.phase().is_some(), app.core.now());
    let retried = app
        .core
        .store
        .write(move |tx| retry_in(tx, &actor, &job, now));
    retried.await??;
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::RetryStored);
    if !is_on_ticket {
        app.live.notifiers.follow_up.notify_one();
    }
    Ok(())
}

/// Returns the run that is to be retried, if its ticket or pull request is open.
///
/// # Errors
/// See [`retry`].
pub(crate) async fn check_retry(app: &App, named: &str) -> Result<Job, ControlError> {
    let (job, is_busy) = app.core.store.read(|tx| {
        let job = find_run(tx, named, |_| true)?;
        let is_busy = match &job {
            Some(job) => has_active_run(tx, &job.issue.id)?,
            None => false,
        };
        Ok((job, is_busy))
    })?;
    let job = job.ok_or(ControlError::UnknownRun)?;
    if is_busy {
        return Err(ControlError::ActiveRun);
    }
    if job.shadow {
        let reason = "A shadow run cannot be retried. Retry the run that it accompanied.";
        return Err(ControlError::NotRetryable(reason));
    }
    match job.kind.phase() {
        Some(_) => check_ticket_open(app, &job).await?,
        None => check_pull_open(app, &job).await?,
    }
    Ok(job)
}

/// Requests another run in the caller's transaction. See [`retry`].
pub(crate) fn retry_in(
    tx: &WriteTx<'_>,
    actor: &Actor,
    job: &Job,
    now: Timestamp,
) -> StoreResult<Result<(), ControlError>> {
    if has_active_run(tx, &job.issue.id)? {
        return Ok(Err(ControlError::ActiveRun));
    }
    if let Err(refusal) = refusal_of_taken(tx, job)? {
        return Ok(Err(refusal));
    }
    match PullRequestId::of_job(job).filter(|_| job.kind.phase().is_none()) {
        Some(pull) => {
            if let Err(refusal) = retry_on_pull(tx, &pull, job)? {
                return Ok(Err(refusal));
            }
        }
        None => retry_ticket(tx, job, now)?,
    }
    let event = actor.audit_event(Action::RunRetried, &job.issue.key);
    let event = event.with_detail(dispatch::audit_details(job));
    audit::append(tx, &event, now).map(Ok)
}

/// Finds a run by its id, or the latest run of an issue by the id or key of the issue. Of an issue,
/// runs that match are preferred. Shadow runs are found by their own id only.
fn find_run(
    tx: &impl ReadableTx,
    named: &str,
    matches: impl Fn(&Job) -> bool,
) -> StoreResult<Option<Job>> {
    let named = named.trim();
    if let Some(job) = jobs::get(tx, &JobId::from(named))? {
        return Ok(Some(job));
    }
    let Some(issue) = job_index::issue_named(tx, named)? else {
        return Ok(None);
    };
    let mut of_issue = dispatch::non_shadow_jobs(tx, &issue)?;
    let latest = of_issue.iter().rposition(matches);
    Ok(match latest {
        Some(at) => Some(of_issue.swap_remove(at)),
        None => of_issue.pop(),
    })
}

fn has_active_run(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<bool> {
    Ok(dispatch::non_shadow_jobs(tx, issue)?
        .iter()
        .any(Job::is_active))
}

async fn check_ticket_open(app: &App, job: &Job) -> Result<(), ControlError> {
    let system = Vendor::from(job.issue.system);
    let unanswered = |why: String| {
        let sentence =
            format!("Cannot ask {system} whether the ticket is open: {why}. Try again later.");
        ControlError::Unanswered(sentence)
    };
    let account = app.vendors.account(job.issue.system);
    let account = account.ok_or_else(|| unanswered(format!("{system} is not configured")))?;
    let issues = [job.issue.clone()];
    match timeout(LOOKUP_TIMEOUT, account.closed_issues(&issues)).await {
        Ok(Ok(closed)) if closed.contains(&job.issue.id) => Err(ControlError::TicketClosed),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(unanswered(error.to_string())),
        Err(_) => Err(unanswered("it did not answer in time".to_owned())),
    }
}

async fn check_pull_open(app: &App, job: &Job) -> Result<(), ControlError> {
    const NOT_OPEN: ControlError = ControlError::NotRetryable("The pull request is not open");
    let unanswered = |why: String| {
        let sentence =
            format!("Cannot ask GitHub whether the pull request is open: {why}. Try again later.");
        ControlError::Unanswered(sentence)
    };
    let pull = PullRequestId::of_job(job).ok_or(NOT_OPEN)?;
    let github = app.vendors.github.as_ref();
    let github = github.ok_or_else(|| unanswered("GitHub is not configured".to_owned()))?;
    match timeout(LOOKUP_TIMEOUT, github.pull(&pull.repo, pull.number)).await {
        Ok(Ok(found)) if found.state == PullRequestState::Open => Ok(()),
        Ok(Ok(_)) => Err(NOT_OPEN),
        Ok(Err(error)) if error.is_not_found() => Err(NOT_OPEN),
        Ok(Err(error)) => Err(unanswered(error.to_string())),
        Err(_) => Err(unanswered("it did not answer in time".to_owned())),
    }
}

/// Refuses to dispatch an issue that a person continues by hand. A run on its pull request is a command of a person.
fn refusal_of_taken(tx: &impl ReadableTx, job: &Job) -> StoreResult<Result<(), ControlError>> {
    const TAKEN: &str = "A person has taken over the issue. Give it back first";
    let is_refused = job.kind.phase().is_some() && take_overs::get(tx, &job.issue.id)?.is_some();
    Ok(match is_refused {
        true => Err(ControlError::NotRetryable(TAKEN)),
        false => Ok(()),
    })
}

/// Removes what keeps the issue from being dispatched, and puts its trigger back.
fn retry_ticket(tx: &WriteTx<'_>, job: &Job, now: Timestamp) -> StoreResult<()> {
    let issue = &job.issue.id;
    operator_retries::record(tx, issue, now)?;
    dedup::remove(tx, issue)?;
    dispatch_breaker::unpark(tx, issue)?;
    for phase in [Phase::Planning, Phase::Implementation] {
        dispatch_breaker::reset_failures(tx, issue, phase)?;
    }
    ticket_wait_comments::end_wait(tx, issue, now)?;
    conversation::end_waits(tx, issue)?;
    for entry in outbox::dead(tx)? {
        // Retried later, it would remove the trigger again.
        if entry.effect.removes_trigger_of() == Some(issue) {
            outbox::remove_dead(tx, &entry)?;
        }
    }
    let mut markers = retry_markers(job);
    if !conversation::is_plan_kept(tx, job)? {
        markers.retain(|marker| !marker.shows_plan());
    }
    for marker in markers {
        outbox::push(tx, &marker, now)?;
    }
    Ok(())
}

/// Makes the work of a run on a pull request wait for another run.
fn retry_on_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    job: &Job,
) -> StoreResult<Result<(), ControlError>> {
    let mapping = mappings::get(tx, &job.team)?;
    let refusal = if pull_feedback::get_pull(tx, pull)?.status != PullRequestStatus::Open {
        "The pull request is not open"
    } else if mapping.is_none_or(|mapping| mapping.target_repo() != pull.repo) {
        "No project uses the repository of this run"
    } else if !ledger::retry_work(tx, pull, job)? {
        "Nothing that this run worked on is left. Comment on the pull request instead"
    } else {
        return Ok(Ok(()));
    };
    Ok(Err(ControlError::NotRetryable(refusal)))
}
