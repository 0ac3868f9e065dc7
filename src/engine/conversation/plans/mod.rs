//! Approval of plans.
//!
//! A gate is stored with the end of the planning run. The next poll that finds the plan posted reads it back and
//! stores its hash, because the ticketing systems change the text of comments. An approval reads title, description
//! and plan again and counts only if their hashes are the same.

mod check;
mod poll;
mod unrecorded;

use super::waits;
use crate::app::App;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::effect::Effect;
use domain::ids::{IssueId, TeamKey};
use domain::issue::IssueRef;
use domain::job::{Job, JobKind};
use domain::job_filter::{JobFilter, StateClass, StatusFilter};
use domain::plan_approval::{Approval, ApprovalSource, PlanGate};
use domain::stage::Stage;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{
    ReadableTx, StoreError, StoreResult, WriteTx, audit, issue_contexts, job_index, outbox,
    plan_gates,
};

pub(super) use check::{Approver, CheckedApproval, check_approval};
pub(super) use poll::update;
pub(super) use unrecorded::settle_unrecorded;

/// Number of earlier runs in an estimate.
const ESTIMATE_RUNS: usize = 20;

/// Reason why a plan is not approved, rejected or made again.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No plan of this issue waits.
    #[error("no plan waits for approval")]
    NotWaiting,
    /// The ticket has changed since the plan was made, in these parts. The plan is made again.
    #[error("{0} changed after the plan was made")]
    Changed(String),
    /// This person may not approve.
    #[error("{0} may not approve plans of this project")]
    NotApprover(String),
    /// The ticketing system did not answer, for this reason.
    #[error("{0}")]
    Unanswered(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PlanError {
    /// Returns the reason as a sentence for a comment.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::NotWaiting => "No plan of this ticket waits for approval.".to_owned(),
            other => format!("Not approved: {other}."),
        }
    }
}

/// Returns the estimate below a plan, from the latest implementation runs of a project. `None` without such runs.
pub(super) fn estimate(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Option<String>> {
    let complete = [StateClass::Completed, StateClass::ReviewFailed];
    let filter = JobFilter {
        statuses: complete.map(StatusFilter::Class).to_vec(),
        excludes_shadow: true,
        kinds: vec![JobKind::Implementation],
        team: Some(team.clone()),
        ..JobFilter::default()
    };
    let page = job_index::page(tx, &filter, None, ESTIMATE_RUNS)?;
    let (mut minutes, mut costs) = (Vec::new(), Vec::new());
    for job in &page.jobs {
        if let (Some(start), Some(end)) = (job.dispatched_at, job.finished_at) {
            minutes.push(end.since(start).as_secs().div_ceil(60));
            costs.extend(job.usage.and_then(|usage| usage.cost_usd));
        }
    }
    minutes.sort_unstable();
    costs.sort_by(f64::total_cmp);
    let cost = costs.get(costs.len() / 2).copied();
    let median = minutes.get(minutes.len() / 2);
    Ok(median.map(|median| comments::plan_estimate(minutes.len(), *median, cost)))
}

/// Stores that the plan of an ended planning run waits for an approval.
pub(crate) fn open_gate(tx: &WriteTx<'_>, job: &Job, now: Timestamp) -> StoreResult<()> {
    let context = issue_contexts::get(tx, &job.issue.id)?;
    plan_gates::put(
        tx,
        &PlanGate {
            issue: job.issue.clone(),
            team: job.team.clone(),
            job: job.id.clone(),
            planned_at: now,
            hashes: None,
            planned_for: context.planned_for,
            reminded_at: None,
            objection: None,
            approval: None,
            trigger_seen: false,
            absent_since: None,
        },
    )
}

/// Stores an approval, or that the ticket has changed.
pub(super) fn store_approval(
    tx: &WriteTx<'_>,
    actor: &Actor,
    checked: &CheckedApproval,
    now: Timestamp,
) -> StoreResult<Result<(), PlanError>> {
    let issue = &checked.gate.issue;
    let Some(gate) = plan_gates::get(tx, &issue.id)?.filter(PlanGate::is_waiting) else {
        return Ok(Err(PlanError::NotWaiting));
    };
    if gate.job != checked.gate.job {
        return Ok(Err(PlanError::NotWaiting));
    }
    if let Some(changed) = &checked.changed {
        let event = actor.audit_event(Action::ApprovalRefused, &issue.key);
        audit::append(tx, &event.with_detail(format!("{changed} changed")), now)?;
        plan_again(tx, issue, None, &comments::approval_outdated(changed), now)?;
        return Ok(Err(PlanError::Changed(changed.clone())));
    }
    let approval = Approval {
        by: checked.by.clone(),
        source: checked.source,
        at: now,
        hash: checked.current.short(),
    };
    let event = actor.audit_event(Action::PlanApproved, &issue.key);
    let (how, by, hash) = (approval.source.as_str(), &approval.by, &approval.hash);
    let detail = format!("by {by}, how: {how}, hash {hash}, plan of job {}", gate.job);
    audit::append(tx, &event.with_detail(detail), now)?;
    let effects = [
        set_marker(issue, Stage::PlanApproved),
        comment(issue, comments::plan_approved(&approval)),
    ];
    plan_gates::put(
        tx,
        &PlanGate {
            approval: Some(approval),
            hashes: Some(checked.current.clone()),
            ..gate
        },
    )?;
    push_all(tx, effects, now)?;
    Ok(Ok(()))
}

/// Stores that the plan of an issue is rejected. Its trigger is removed.
pub(super) fn store_rejection(
    tx: &WriteTx<'_>,
    actor: &Actor,
    by: &str,
    issue: &IssueId,
    now: Timestamp,
) -> StoreResult<Result<(), PlanError>> {
    let Some(gate) = plan_gates::get(tx, issue)?.filter(PlanGate::is_waiting) else {
        return Ok(Err(PlanError::NotWaiting));
    };
    waits::end_all(tx, issue)?;
    let event = actor.audit_event(Action::PlanRejected, &gate.issue.key);
    audit::append(
        tx,
        &event.with_detail(format!("plan of job {}", gate.job)),
        now,
    )?;
    let effects = [
        set_marker(&gate.issue, Stage::Cancelled),
        comment(&gate.issue, comments::plan_rejected(by)),
    ];
    push_all(tx, effects, now)?;
    Ok(Ok(()))
}

/// Stores that the plan of an issue is made again, with an instruction.
pub(super) fn store_replan(
    tx: &WriteTx<'_>,
    actor: &Actor,
    by: &str,
    issue: &IssueId,
    instruction: &str,
    now: Timestamp,
) -> StoreResult<Result<(), PlanError>> {
    let Some(gate) = plan_gates::get(tx, issue)?.filter(PlanGate::is_waiting) else {
        return Ok(Err(PlanError::NotWaiting));
    };
    let event = actor.audit_event(Action::PlanRequested, &gate.issue.key);
    audit::append(
        tx,
        &event.with_detail(format!("instead of the plan of job {}", gate.job)),
        now,
    )?;
    let instruction = Some(instruction.trim().to_owned()).filter(|text| !text.is_empty());
    plan_again(tx, &gate.issue, instruction, &comments::replanning(by), now)?;
    Ok(Ok(()))
}

/// Removes the plan of an issue and puts its trigger back, so that it is planned again.
pub(super) fn plan_again(
    tx: &WriteTx<'_>,
    issue: &IssueRef,
    instruction: Option<String>,
    note: &str,
    now: Timestamp,
) -> StoreResult<()> {
    plan_gates::remove(tx, &issue.id)?;
    issue_contexts::update(tx, &issue.id, |context| {
        context.replan_instruction = instruction
    })?;
    let effects = [
        set_marker(issue, Stage::Retriggered),
        comment(issue, note.to_owned()),
    ];
    push_all(tx, effects, now)
}

fn set_marker(issue: &IssueRef, stage: Stage) -> Effect {
    let issue = issue.clone();
    Effect::SetMarker { issue, stage }
}

fn comment(issue: &IssueRef, body: String) -> Effect {
    let issue = issue.clone();
    Effect::TicketComment { issue, body }
}

fn push_all(
    tx: &WriteTx<'_>,
    effects: impl IntoIterator<Item = Effect>,
    now: Timestamp,
) -> StoreResult<()> {
    let mut effects = effects.into_iter();
    effects.try_for_each(|effect| outbox::push(tx, &effect, now).map(drop))
}

/// Approves the plan of the issue with this id or key.
///
/// # Errors
/// Fails if no plan waits, if the ticket has changed, if operators may not approve, if the ticketing system does not
/// answer, or if the store cannot be written.
pub async fn approve(app: &App, actor: Actor, named: &str) -> Result<(), PlanError> {
    let gate = waiting_gate(app, named)?;
    let account = app.vendors.account(gate.issue.system);
    let account = account.ok_or_else(|| {
        PlanError::Unanswered("the ticketing system is not configured".to_owned())
    })?;
    let approver = Approver {
        account: None,
        name: actor.display_name().to_owned(),
        source: ApprovalSource::Operator,
    };
    let checked = check_approval(app, account, &gate.issue, approver).await??;
    let now = app.core.now();
    decide(app, move |tx| store_approval(tx, &actor, &checked, now)).await
}

/// Rejects the plan of the issue with this id or key.
///
/// # Errors
/// Fails if no plan waits, or if the store cannot be written.
pub async fn reject(app: &App, actor: Actor, named: &str) -> Result<(), PlanError> {
    let (issue, now) = (waiting_gate(app, named)?.issue.id, app.core.now());
    decide(app, move |tx| {
        store_rejection(tx, &actor, actor.display_name(), &issue, now)
    })
    .await
}

/// Makes the plan of the issue with this id or key again, with an instruction.
///
/// # Errors
/// Fails if no plan waits, or if the store cannot be written.
pub async fn replan(
    app: &App,
    actor: Actor,
    named: &str,
    instruction: &str,
) -> Result<(), PlanError> {
    let (issue, now) = (waiting_gate(app, named)?.issue.id, app.core.now());
    let instruction = app.secrets.redactor.sanitize(instruction);
    decide(app, move |tx| {
        store_replan(tx, &actor, actor.display_name(), &issue, &instruction, now)
    })
    .await
}

/// Commits what an operator decided about a plan, and wakes the poll.
async fn decide(
    app: &App,
    change: impl FnMut(&WriteTx<'_>) -> StoreResult<Result<(), PlanError>> + Send + 'static,
) -> Result<(), PlanError> {
    let outcome = commit(app, change).await?;
    app.live.notifiers.poll.notify_one();
    outcome
}

/// Commits what was decided about a plan.
async fn commit(
    app: &App,
    change: impl FnMut(&WriteTx<'_>) -> StoreResult<Result<(), PlanError>> + Send + 'static,
) -> StoreResult<Result<(), PlanError>> {
    let outcome = app.core.store.write(change).await?;
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::ApprovalStored);
    Ok(outcome)
}

fn waiting_gate(app: &App, named: &str) -> Result<PlanGate, PlanError> {
    let all = app.core.store.read(plan_gates::all)?;
    let mut waiting = all.into_iter().filter(PlanGate::is_waiting);
    let named = named.trim();
    let found = waiting.find(|gate| gate.issue.matches_id_or_key(named));
    found.ok_or(PlanError::NotWaiting)
}
