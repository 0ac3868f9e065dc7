//! Storing what follows from an event, all of it in the caller's transaction.

use crate::config::Config;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::effect::{Effect, PullCommentStyle};
use domain::ids::JobId;
use domain::job::{Job, JobState};
use domain::plan::PostedComment;
use domain::report::ResultReport;
use domain::time::Timestamp;
use domain::transition::{
    self, BreakerUpdate, DedupUpdate, EventRejection, JobEvent, PlanUpdate, Transition,
};
use domain::usage::UsageTotals;
use store::dispatch_breaker::ParkedIssue;
use store::{
    StoreResult, WriteTx, audit, decisions, dedup, dispatch_breaker, issue_contexts, jobs,
    mappings, outbox, usage,
};

use super::{budget, dispatch, feedback, provider_limit};

/// What the operator decided and commits depend on.
#[derive(Debug, Clone, Copy)]
pub struct BreakerPolicy {
    pub breaker_threshold: Option<u32>,
}

impl BreakerPolicy {
    pub fn from_config(config: &Config) -> Self {
        Self {
            breaker_threshold: config.breaker_threshold,
        }
    }
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventOutcome {
    /// The job as it is now.
    Advanced(Box<Job>),
    /// The job as it was and stays.
    Refused(Box<Job>, EventRejection),
    JobNotFound,
}

/// Loads the job, advances it by `event` and stores everything that follows.
pub fn apply(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    id: &JobId,
    event: JobEvent,
    now: Timestamp,
) -> StoreResult<EventOutcome> {
    match jobs::get(tx, id)? {
        Some(job) => apply_to(tx, policy, job, event, now),
        None => Ok(EventOutcome::JobNotFound),
    }
}

/// The same to a job that this transaction has loaded, and has not changed since without storing it.
pub fn apply_to(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    job: Job,
    event: JobEvent,
    now: Timestamp,
) -> StoreResult<EventOutcome> {
    let refused = match &event {
        JobEvent::StartRejected { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let by = match &event {
        JobEvent::StepReported
        | JobEvent::ResultReported { .. }
        | JobEvent::UnconfirmedResultReported { .. } => Actor::run(),
        _ => Actor::service(),
    };
    // A result may be the first that is heard of a run, and is the last.
    let is_result = !job.result_accepted
        && matches!(
            event,
            JobEvent::ResultReported { .. } | JobEvent::UnconfirmedResultReported { .. }
        );
    match transition::apply_event(&job, event, now) {
        Ok(next) => {
            store(tx, policy, &next, now)?;
            let is_known = is_result || next.job.dispatched_at.is_some();
            if job.dispatched_at.is_none() && is_known {
                let deed = by.audit_event(Action::RunStarted, &job.issue.key);
                audit::append(tx, &deed.with_detail(dispatch::audit_details(&job)), now)?;
            }
            if job.is_active() && !next.job.is_active() {
                sum_up(tx, &next.job, usage::of_ended_job(&next.job), now)?;
                provider_limit::record(tx, &next.job)?;
            }
            if let Some(why) = refused {
                note_refusal(tx, &next.job, why, now)?;
            }
            Ok(EventOutcome::Advanced(Box::new(next.job)))
        }
        Err(refusal) => Ok(EventOutcome::Refused(Box::new(job), refusal)),
    }
}

/// Notes that a job that has ended had used more than it had told until then.
pub fn record_late_result(
    tx: &WriteTx<'_>,
    job: &Job,
    report: &ResultReport,
    now: Timestamp,
) -> StoreResult<()> {
    let late = UsageTotals::from_late_report(job.usage.as_ref(), report.usage.as_ref());
    jobs::put(
        tx,
        &Job {
            result_accepted: true,
            usage: report.usage.or(job.usage),
            ..job.clone()
        },
    )?;
    sum_up(tx, job, late, now)
}

/// Adds what a job used to the sums, and tells the operator if that is too much.
fn sum_up(tx: &WriteTx<'_>, job: &Job, used: UsageTotals, now: Timestamp) -> StoreResult<()> {
    usage::add(tx, job, used, now)?;
    match mappings::get(tx, &job.team)? {
        Some(mapping) => budget::enqueue_pending_alert(tx, &mapping, now),
        None => Ok(()),
    }
}

/// Says in the log that a run has ended, after the commit at `now` that ended it. One that ended badly
/// is no fault of the service: its ticket is told.
pub fn log_job_end(happened: &EventOutcome, now: Timestamp) {
    let EventOutcome::Advanced(job) = happened else {
        return;
    };
    if job.finished_at != Some(now) {
        return;
    }
    let (job_id, issue, team) = (&job.id, &job.issue.key, &job.team);
    let (status, kind) = (job.state.status(), job.kind.as_str());
    match &job.state {
        JobState::Failed { .. } | JobState::TimedOut { .. } => {
            let why = conclusion(job);
            tracing::info!(%job_id, %issue, %team, status, kind, why, "The run ended badly.");
        }
        _ => tracing::info!(%job_id, %issue, %team, status, kind, "The run ended."),
    }
}

/// Stores a job and everything that is owed because of it.
fn store(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    next: &Transition,
    now: Timestamp,
) -> StoreResult<()> {
    let (job, owed) = (&next.job, &next.planned);
    jobs::put(tx, job)?;
    if !job.is_active() {
        end_follow_up(tx, job, now)?;
        feedback::requeue_command(tx, job)?;
    }
    match owed.dedup {
        DedupUpdate::Keep => {}
        DedupUpdate::Clear => {
            dedup::remove(tx, &job.issue.id)?;
        }
    }
    let mut said: Vec<PostedComment> = Vec::new();
    for effect in &owed.effects {
        let mut effect = effect.clone();
        if let Effect::LogExcerpt { comment, .. } = &mut effect {
            *comment = said.last().cloned();
        }
        let stamp = outbox::push(tx, &effect, now)?;
        if let Effect::TicketComment { body, .. } = effect {
            said.push(PostedComment {
                effect_id: stamp,
                body: body.clone(),
            });
        }
    }
    match owed.plan {
        PlanUpdate::Keep => {}
        PlanUpdate::Replace => issue_contexts::put_plan(tx, &job.issue.id, said)?,
    }
    match (owed.breaker, job.kind.phase()) {
        (BreakerUpdate::Keep, _) | (_, None) => Ok(()),
        (BreakerUpdate::Reset, Some(phase)) => {
            dispatch_breaker::reset_failures(tx, &job.issue.id, phase).map(|_| ())
        }
        (BreakerUpdate::CountFailure, Some(_)) => count_failure(tx, policy, job, now),
    }
}

/// What a follow-up was given is resolved, or waits for another; people are told what does not.
fn end_follow_up(tx: &WriteTx<'_>, job: &Job, now: Timestamp) -> StoreResult<()> {
    let given_up = feedback::settle_findings(tx, job)?;
    let Some(pull) = job.pull.as_ref().filter(|_| given_up > 0) else {
        return Ok(());
    };
    let comment = Effect::PullComment {
        repo: job.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::New,
        body: comments::feedback_abandoned(given_up),
    };
    outbox::push(tx, &comment, now).map(drop)
}

/// The last that was decided about the issue is that it was dispatched: that it was not in the end
/// must be found in the same place.
fn note_refusal(tx: &WriteTx<'_>, job: &Job, message: String, now: Timestamp) -> StoreResult<()> {
    let Some(phase) = job.kind.phase() else {
        return Ok(());
    };
    let decision = Decision {
        at: now,
        issue_identifier: job.issue.key.clone(),
        team_key: job.team.clone(),
        outcome: DecisionOutcome::Waiting,
        reason: Some(WaitReason::Ineligible),
        message,
        phase: Some(phase),
    };
    decisions::record(tx, &job.issue, &decision)
}

/// One more failure in a row; at the threshold the issue is parked and its people are told, once.
fn count_failure(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    job: &Job,
    now: Timestamp,
) -> StoreResult<()> {
    let (Some(phase), Some(threshold)) = (job.kind.phase(), policy.breaker_threshold) else {
        return Ok(());
    };
    let failures = dispatch_breaker::count_failure(tx, &job.issue.id, phase)?;
    if failures < threshold || dispatch_breaker::get(tx, &job.issue.id)?.is_some() {
        return Ok(());
    }
    let parked = ParkedIssue {
        issue: job.issue.clone(),
        repo: job.repo.clone(),
        phase,
        failures,
        last_conclusion: conclusion(job),
        parked_at: now,
    };
    dispatch_breaker::park(tx, &parked)?;
    let body = comments::parked(failures);
    outbox::push(
        tx,
        &Effect::TicketComment {
            issue: job.issue.clone(),
            body,
        },
        now,
    )?;
    outbox::push(
        tx,
        &Effect::Chat {
            message: comments::chat_parked(job, failures),
        },
        now,
    )
    .map(drop)
}

fn conclusion(job: &Job) -> String {
    match &job.state {
        JobState::Failed { reason, .. } => reason.clone(),
        JobState::TimedOut { reason } => reason.as_str().to_owned(),
        other => other.status().to_owned(),
    }
}
