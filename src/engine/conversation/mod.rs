//! The ticket as a conversation: questions of runs, approvals of plans, and commands in comments.
//!
//! What waits for a person is a row of the store (`open_questions`, `plan_gates`). It holds no slot, machine or
//! budget, and the decisions of the poll name it as the reason for waiting. An answer, an approval or a command
//! counts in one commit together with its effects, so that each counts once:
//!
//! - An answer or approval removes or changes the row in the commit that acts on it.
//! - A command records the id of its comment in that commit.
//!
//! The poll sees everything by itself; webhooks only wake it.

pub mod answers;
mod commands;
pub mod context;
pub mod plans;
mod received;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use crate::app::App;
use domain::comments;
use domain::ids::{IssueId, TeamKey};
use domain::issue::{FlaggedIssue, IssueRef, Phase, PollResult, System};
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::plan_approval::{PlanGate, TicketHashes};
use domain::question::MAX_ROUNDS;
use domain::report::{FailureCode, ResultReport, RunOutcome};
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use store::{
    ReadableTx, StoreResult, WriteTx, issue_contexts, jobs, mappings, open_questions, plan_gates,
};
use vendors::ticketing::TicketingClient;

pub(super) use plans::open_gate;
pub(super) use waits::{end_all, end_waits, open_question};

/// Maximum number of issues that are asked for commands although no poll lists them.
const MAX_EARLIER_ISSUES: usize = 50;

/// Time after its latest run for which such an issue is asked.
const EARLIER_ISSUES_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum difference between the clocks of the service and a ticketing system, so that no answer is overlooked.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(2 * 60);

/// Reason of a run that asked although it may not.
const MAY_NOT_ASK: &str = "the run asked questions although it may not ask any more";

/// Time for which commands that could not be carried out are read again.
const MAX_POSTPONEMENT: Duration = Duration::from_secs(60 * 60);

/// Returns whether a run of a phase may ask people questions.
pub(super) fn may_ask(tx: &impl ReadableTx, mapping: &Mapping, job: &Job) -> StoreResult<bool> {
    let Some(phase) = job
        .kind
        .phase()
        .filter(|_| mapping.questions && !job.shadow)
    else {
        return Ok(false);
    };
    Ok(rounds(tx, job, phase)? < MAX_ROUNDS)
}

/// Number of rounds of questions of an issue in a phase.
fn rounds(tx: &impl ReadableTx, job: &Job, phase: Phase) -> StoreResult<u32> {
    let context = issue_contexts::get(tx, &job.issue.id)?;
    let of_phase = context.exchanges.iter().filter(|one| one.phase == phase);
    Ok(u32::try_from(of_phase.count()).unwrap_or(u32::MAX))
}

/// Returns whether the implementation of an issue may start, as far as its plan decides. An approved ticket that has
/// changed since is planned again.
pub(super) fn is_plan_released(
    tx: &WriteTx<'_>,
    mapping: &Mapping,
    issue: &FlaggedIssue,
    phase: Phase,
    now: Timestamp,
) -> StoreResult<bool> {
    if phase != Phase::Implementation || !mapping.awaits_approval() {
        return Ok(true);
    }
    let gate = plan_gates::get(tx, &issue.issue.id)?;
    let Some(gate) = gate.filter(|gate| gate.is_approved_in(&mapping.team_key)) else {
        return Ok(false);
    };
    let Some(hashes) = &gate.hashes else {
        return Ok(false);
    };
    let current = TicketHashes::new(&issue.issue.title, &issue.description);
    if (&current.title, &current.description) == (&hashes.title, &hashes.description) {
        return Ok(true);
    }
    let changed = match current.title == hashes.title {
        true => "the description",
        false => "the title",
    };
    plans::plan_again(
        tx,
        &gate.issue,
        None,
        &comments::approval_outdated(changed),
        now,
    )?;
    Ok(false)
}

/// Returns whether a retry of a job may go on with the plan that it worked on. Where plans wait for an approval, only
/// while the approval is known, and with it what was approved.
pub(super) fn is_plan_kept(tx: &impl ReadableTx, job: &Job) -> StoreResult<bool> {
    let mapping = mappings::get(tx, &job.team)?;
    let awaits_approval = mapping.is_some_and(|mapping| mapping.awaits_approval());
    Ok(!awaits_approval || plan_gates::get(tx, &job.issue.id)?.is_some())
}

/// Prepares the context of an issue for a run of a phase: forgets the conversation about completed work and the plan
/// that is replaced, and remembers what the next plan is for.
pub(super) fn begin_phase(
    tx: &WriteTx<'_>,
    issue: &FlaggedIssue,
    phase: Phase,
    earlier: &[Job],
) -> StoreResult<()> {
    let is_complete = earlier.iter().rev().find(|job| job.kind.phase().is_some());
    let is_new_work = is_complete.is_some_and(Job::has_opened_pull_request);
    if phase == Phase::Planning {
        plan_gates::remove(tx, &issue.issue.id)?;
    }
    issue_contexts::update(tx, &issue.issue.id, |context| {
        if is_new_work {
            context.exchanges.clear();
            context.continues = None;
        }
        if phase == Phase::Planning {
            let hashes = TicketHashes::new(&issue.issue.title, &issue.description);
            context.planned_for = Some(hashes);
        }
    })
}

/// Takes the instruction for the next plan.
pub(super) fn take_replan_instruction(
    tx: &WriteTx<'_>,
    issue: &IssueRef,
    phase: Phase,
) -> StoreResult<Option<String>> {
    let mut instruction = None;
    if phase == Phase::Planning {
        issue_contexts::update(tx, &issue.id, |context| {
            instruction = context.replan_instruction.take();
        })?;
    }
    Ok(instruction)
}

/// Completes a report: whether its plan waits for an approval, the estimate below the plan, and whether its
/// questions may be asked.
pub(super) fn resolve_report(
    tx: &impl ReadableTx,
    job: &Job,
    mut report: ResultReport,
) -> StoreResult<ResultReport> {
    let mapping = mappings::get(tx, &job.team)?;
    if report.outcome == RunOutcome::Failure && report.failure_code == Some(FailureCode::NeedsInput)
    {
        report.pr_url = None;
        let is_allowed = match &mapping {
            Some(mapping) => may_ask(tx, mapping, job)?,
            None => false,
        };
        if !is_allowed || report.questions.is_empty() {
            report.failure_code = None;
            report.failure_reason = Some(MAY_NOT_ASK.to_owned());
            report.questions.clear();
        }
    }
    if job.kind == JobKind::Planning && report.outcome == RunOutcome::Success {
        report.awaits_approval = mapping.is_some_and(|mapping| mapping.awaits_approval());
        if let (Some(last), Some(estimate)) =
            (report.comments.last_mut(), plans::estimate(tx, &job.team)?)
        {
            last.body = format!("{}\n\n{estimate}", last.body.trim_end());
        }
    }
    Ok(report)
}

/// Issues with an open question, and plans by their issue.
type AwaitedPeople = (BTreeSet<IssueId>, BTreeMap<IssueId, PlanGate>);

/// Returns what issues wait for people to do.
pub(super) fn awaited_people(tx: &impl ReadableTx) -> StoreResult<AwaitedPeople> {
    let questions = open_questions::all(tx)?.into_iter();
    let gates = plan_gates::all(tx)?.into_iter();
    Ok((
        questions.map(|question| question.issue.id).collect(),
        gates.map(|gate| (gate.issue.id.clone(), gate)).collect(),
    ))
}

/// Returns which comments the poll of a system reads beside its issues.
pub(super) fn watch(
    tx: &impl ReadableTx,
    app: &App,
    system: System,
    now: Timestamp,
) -> StoreResult<CommentWatch> {
    let mut waiting = Vec::new();
    let mut announced = app.live.comment_reads.take_announced(tx, system)?;
    for question in open_questions::all(tx)? {
        if question.issue.system != system {
            continue;
        }
        // Whether it is edited decides when it counts.
        if question.candidate.is_some() {
            announced.push(question.issue.clone());
        }
        waiting.push((question.issue, question.asked_at - MAX_CLOCK_DIFFERENCE));
    }
    for gate in plan_gates::all(tx)? {
        if gate.issue.system == system && gate.is_waiting() {
            waiting.push((gate.issue, gate.planned_at - MAX_CLOCK_DIFFERENCE));
        }
    }
    let reads_each_issue = app.live.comment_reads.is_each_issue_due(system);
    let earlier = match (system, reads_each_issue) {
        // The poll of Linear reads commands on any ticket.
        (System::Linear, _) | (_, false) => Vec::new(),
        (_, true) => earlier_issues(tx, system, now)?,
    };
    Ok(CommentWatch {
        waiting,
        announced,
        earlier,
        commands_since: app.live.comment_reads.commands_since(tx, system, now)?,
        reads_each_issue,
    })
}

/// Returns the issues of mapped projects with the latest runs of the last week.
fn earlier_issues(
    tx: &impl ReadableTx,
    system: System,
    now: Timestamp,
) -> StoreResult<Vec<IssueRef>> {
    let mut issues: Vec<IssueRef> = Vec::new();
    for job in jobs::latest(tx, jobs::DISPATCH_LOG_SIZE)? {
        if issues.len() == MAX_EARLIER_ISSUES {
            break;
        }
        // Not the last of these: the id of a job may have the time of a clock that was ahead.
        if now.since(job.reserved_at) > EARLIER_ISSUES_AGE {
            continue;
        }
        let is_known = issues.iter().any(|issue| issue.id == job.issue.id);
        if job.issue.system == system
            && !job.shadow
            && !is_known
            && mappings::get(tx, &job.team)?.is_some()
        {
            issues.push(job.issue);
        }
    }
    Ok(issues)
}

/// Handles what a poll of a system found: comments, approvals by markers, reminders, timeouts, and ends of waits.
/// Failures are logged; the next poll tries again.
pub(super) async fn after_poll(
    app: &App,
    account: &TicketingClient,
    watch: &CommentWatch,
    poll: &PollResult,
    is_pending: &(dyn Fn(&FlaggedIssue) -> bool + Sync),
    started_at: Timestamp,
) -> StoreResult<()> {
    let (system, reads) = (account.system(), &app.live.comment_reads);
    let postponed = received::process(app, account, &poll.issues, &poll.comments).await?;
    let read_until = match (poll.comments_read, postponed.is_empty()) {
        (true, true) => started_at,
        (true, false) => started_at - MAX_POSTPONEMENT,
        (false, _) => Timestamp::EPOCH,
    };
    reads.record(&app.core, system, read_until).await?;
    for issue in postponed {
        reads.announce(system, issue.key.as_str().to_owned());
    }
    let unread: HashSet<&TeamKey> = poll.failed_teams.iter().collect();
    waits::update(app, account, &poll.issues, &unread).await?;
    plans::update(app, account, &poll.issues, &unread, is_pending).await?;
    // A gate that this poll ended is not opened again.
    let watched: HashSet<&IssueId> = watch.waiting.iter().map(|(issue, _)| &issue.id).collect();
    let unwatched = |issue: &FlaggedIssue| !watched.contains(&issue.issue.id) && !is_pending(issue);
    let unrecorded = poll
        .issues
        .iter()
        .filter(|issue| issue.stage.has_plan() && unwatched(issue));
    let unrecorded = unrecorded.map(|issue| issue.issue.clone()).collect();
    plans::settle_unrecorded(app, system, unrecorded).await
}

/// Makes the next poll read the issues again whose comments were announced before a poll that failed.
pub(super) fn after_failed_poll(app: &App, system: System, watch: &CommentWatch) {
    for issue in &watch.announced {
        let issue = issue.key.as_str().to_owned();
        app.live.comment_reads.announce(system, issue);
    }
}
