//! Application of events to jobs. All consequences are stored in the caller's transaction.

use crate::config::Config;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::effect::{Effect, PullCommentStyle};
use domain::ids::JobId;
use domain::job::{AfterCancel, Job, JobState};
use domain::plan::PostedComment;
use domain::report::ResultReport;
use domain::stage::Stage;
use domain::time::Timestamp;
use domain::transition::{
    self, BreakerUpdate, DedupUpdate, EventRejection, JobEvent, PlanUpdate, Transition,
};
use domain::usage::UsageTotals;
use store::dispatch_breaker::ParkedIssue;
use store::{
    StoreResult, WriteTx, audit, decisions, dedup, dispatch_breaker, issue_contexts, jobs,
    mappings, operator_retries, outbox, steps, usage,
};

use super::pull_requests::{branch_updates, ledger};
use super::{budget, conversation, dispatch, provider_limit, repository_load};

/// Operator's settings on which event handling depends.
#[derive(Debug, Clone, Copy)]
pub struct BreakerPolicy {
    /// Consecutive failures after which an issue is parked; `None` means never.
    pub breaker_threshold: Option<u32>,
}

impl BreakerPolicy {
    /// Reads the policy from the configuration.
    pub fn from_config(config: &Config) -> Self {
        Self {
            breaker_threshold: config.breaker_threshold,
        }
    }
}

/// Outcome of applying an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventOutcome {
    /// Applied; the job after the event.
    Advanced(Box<Job>),
    /// Rejected; the unchanged job and the reason.
    Refused(Box<Job>, EventRejection),
    /// The job does not exist.
    JobNotFound,
}

/// Loads a job, applies an event and stores all consequences.
///
/// # Errors
/// Fails if the store cannot be written.
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

/// Applies an event to a job that this transaction has loaded, and has not changed since without
/// storing it.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn apply_to(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    job: Job,
    event: JobEvent,
    now: Timestamp,
) -> StoreResult<EventOutcome> {
    let start_rejection = match &event {
        JobEvent::StartRejected { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let actor = match &event {
        JobEvent::StepReported
        | JobEvent::ResultReported { .. }
        | JobEvent::UnconfirmedResultReported { .. } => Actor::run(),
        _ => Actor::service(),
    };
    // A result can be the first sign that the run started.
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
                let event = actor.audit_event(Action::RunStarted, &job.issue.key);
                audit::append(tx, &event.with_detail(dispatch::audit_details(&job)), now)?;
            }
            if job.is_active() && !next.job.is_active() {
                add_usage(tx, &next.job, usage::of_ended_job(&next.job), now)?;
                provider_limit::record(tx, &next.job)?;
            }
            if let Some(reason) = start_rejection {
                record_start_rejection(tx, &next.job, reason, now)?;
            }
            Ok(EventOutcome::Advanced(Box::new(next.job)))
        }
        Err(rejection) => Ok(EventOutcome::Refused(Box::new(job), rejection)),
    }
}

/// Records a result that arrived after its job had ended, with the additional usage.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn record_late_result(
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
            agent: report.agent.clone().or_else(|| job.agent.clone()),
            model: report.model.clone().or_else(|| job.model.clone()),
            ..job.clone()
        },
    )?;
    add_usage(tx, job, late, now)
}

/// Adds the usage of a job to the monthly totals, and enqueues a budget alert if one is due.
fn add_usage(tx: &WriteTx<'_>, job: &Job, used: UsageTotals, now: Timestamp) -> StoreResult<()> {
    usage::add(tx, job, used, now)?;
    match mappings::get(tx, &job.team)? {
        Some(mapping) => budget::enqueue_pending_alert(tx, &mapping, now),
        None => Ok(()),
    }
}

/// Logs the end of a run, after the transaction at `now` that ended it. A failed run is logged at
/// info level: it is not a fault of the service, and its ticket reports it.
pub(crate) fn log_job_end(outcome: &EventOutcome, now: Timestamp) {
    let EventOutcome::Advanced(job) = outcome else {
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
            tracing::info!(%job_id, %issue, %team, status, kind, why, "Run failed.");
        }
        _ => tracing::info!(%job_id, %issue, %team, status, kind, "Run ended."),
    }
}

/// Stores a job and the effects of its transition.
fn store(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    next: &Transition,
    now: Timestamp,
) -> StoreResult<()> {
    let (job, planned) = (&next.job, &next.planned);
    jobs::put(tx, job)?;
    if job.finished_at == Some(now)
        && let Some(end) = job.step_end()
    {
        steps::close_open(tx, &job.id, end)?;
    }
    if !job.is_active() {
        settle_follow_up(tx, job, now)?;
        ledger::requeue_command(tx, job)?;
        branch_updates::settle_attempt(tx, job)?;
    }
    match planned.dedup {
        DedupUpdate::Keep => {}
        DedupUpdate::Clear => {
            dedup::remove(tx, &job.issue.id)?;
        }
    }
    let mut posted: Vec<PostedComment> = Vec::new();
    // The next trigger is a new request, of the person who sets it.
    let removes_trigger = |effect: &Effect| effect.removes_trigger_of().is_some();
    if planned.effects.iter().any(removes_trigger) {
        operator_retries::remove(tx, &job.issue.id)?;
    }
    for effect in &planned.effects {
        let mut effect = effect.clone();
        if let Effect::LogExcerpt { comment, .. } = &mut effect {
            *comment = posted.last().cloned();
        }
        let effect_id = outbox::push(tx, &effect, now)?;
        if let Effect::TicketComment { body, .. } = effect {
            posted.push(PostedComment {
                effect_id,
                body: body.clone(),
            });
        }
    }
    match planned.plan {
        PlanUpdate::Keep => {}
        PlanUpdate::Replace => {
            repository_load::put_declared(tx, &job.issue.id, posted.iter().map(|one| &one.body))?;
            issue_contexts::put_plan(tx, &job.issue.id, posted)?;
            let waits = |effect: &Effect| {
                matches!(
                    effect,
                    Effect::SetMarker {
                        stage: Stage::PlanReady,
                        ..
                    }
                )
            };
            if planned.effects.iter().any(waits) {
                conversation::open_gate(tx, job, now)?;
            }
        }
    }
    if !planned.questions.is_empty() {
        conversation::open_question(tx, job, &planned.questions, now)?;
    }
    if job.finished_at == Some(now) && job.has_opened_pull_request() {
        conversation::end_all(tx, &job.issue.id)?;
    }
    match (planned.breaker, job.kind.phase()) {
        (BreakerUpdate::Keep, _) | (_, None) => Ok(()),
        (BreakerUpdate::Reset, Some(phase)) => {
            dispatch_breaker::reset_failures(tx, &job.issue.id, phase).map(|_| ())
        }
        (BreakerUpdate::CountFailure, Some(_)) => count_failure(tx, policy, job, now),
    }
}

/// Settles the findings of an ended follow-up, and comments about abandoned ones on the pull
/// request.
fn settle_follow_up(tx: &WriteTx<'_>, job: &Job, now: Timestamp) -> StoreResult<()> {
    let abandoned = ledger::settle_findings(tx, job)?;
    // The comment about a cancellation says that its feedback is given up.
    let is_commented = job.after_cancel() == Some(AfterCancel::Stop);
    let Some(pull) = job.pull.as_ref().filter(|_| abandoned > 0 && !is_commented) else {
        return Ok(());
    };
    let comment = Effect::PullComment {
        repo: job.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::New,
        body: comments::feedback_abandoned(abandoned),
    };
    outbox::push(tx, &comment, now).map(drop)
}

/// Records the rejection of a start as a decision: the latest decision about the issue states that
/// it was dispatched.
fn record_start_rejection(
    tx: &WriteTx<'_>,
    job: &Job,
    message: String,
    now: Timestamp,
) -> StoreResult<()> {
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

/// Counts a consecutive failure. At the threshold the issue is parked, and reported once on the
/// ticket and in the chat.
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
