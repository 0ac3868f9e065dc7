//! Waits for an answer: their begin, reminders, timeouts and ends without an answer.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::app::App;
use domain::audit::Actor;
use domain::comments;
use domain::effect::Effect;
use domain::ids::{IssueId, TeamKey};
use domain::issue::{FlaggedIssue, IssueRef};
use domain::job::Job;
use domain::question::{OpenQuestion, Question};
use domain::stage::Stage;
use domain::time::Timestamp;
use store::{
    StoreResult, WriteTx, issue_contexts, mappings, open_questions, operator_retries, outbox,
    plan_gates,
};
use vendors::ticketing::TicketingClient;

use super::answers;

/// Stores the questions of an ended job and posts them on its ticket.
pub(crate) fn open_question(
    tx: &WriteTx<'_>,
    job: &Job,
    questions: &[Question],
    now: Timestamp,
) -> StoreResult<()> {
    let Some(phase) = job.kind.phase() else {
        return Ok(());
    };
    let mapping = mappings::get(tx, &job.team)?;
    let hours = mapping.and_then(|mapping| mapping.question_timeout_hours);
    let mut question = OpenQuestion {
        issue: job.issue.clone(),
        team: job.team.clone(),
        job: job.id.clone(),
        phase,
        round: super::rounds(tx, job, phase)?.saturating_add(1),
        questions: questions.to_vec(),
        asked_at: now,
        reminded_at: None,
        expires_at: hours.map(|hours| now + Duration::from_secs(u64::from(hours) * 3600)),
        comment: String::new(),
        candidate: None,
        resume_stage: job.trigger_stage.unwrap_or(Stage::Triggered),
        trigger_seen: false,
        absent_since: None,
    };
    let comment = Effect::TicketComment {
        issue: job.issue.clone(),
        body: comments::questions(&question),
    };
    question.comment = outbox::push(tx, &comment, now)?;
    open_questions::put(tx, &question)
}

/// Ends what an issue waits for a person to do, and forgets the approval of its plan and that an operator requested the
/// run.
pub(crate) fn end_all(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    end_waits(tx, issue)?;
    operator_retries::remove(tx, issue)?;
    plan_gates::remove(tx, issue)
}

/// Ends what an issue waits for a person to do, because its work is requested anew. An approval stays bound to what was
/// approved.
pub(crate) fn end_waits(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    open_questions::remove(tx, issue)?;
    issue_contexts::update(tx, issue, |context| context.continues = None)?;
    match plan_gates::get(tx, issue)? {
        Some(gate) if gate.is_waiting() => plan_gates::remove(tx, issue),
        _ => Ok(()),
    }
}

/// Whether a poll found an issue that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is flagged.
    Flagged,
    /// It is flagged, but its trigger is missing.
    WithoutTrigger,
    /// It is not flagged.
    Absent,
    /// The poll could not read it.
    Unknown,
}

/// Issues of a poll, for looking up issues that wait.
pub(super) struct Polled<'p> {
    issues: HashMap<&'p IssueId, &'p FlaggedIssue>,
    unread: &'p HashSet<&'p TeamKey>,
}

impl<'p> Polled<'p> {
    /// Indexes the issues of a poll.
    pub(super) fn new(issues: &'p [FlaggedIssue], unread: &'p HashSet<&'p TeamKey>) -> Self {
        let issues = issues.iter().map(|issue| (&issue.issue.id, issue));
        Self {
            issues: issues.collect(),
            unread,
        }
    }

    /// Returns an issue of the poll.
    pub(super) fn get(&self, issue: &IssueId) -> Option<&'p FlaggedIssue> {
        self.issues.get(issue).copied()
    }

    /// Returns whether the poll found an issue.
    pub(super) fn presence(&self, issue: &IssueId, team: &TeamKey) -> Presence {
        match self.get(issue) {
            Some(found) if found.has_trigger => Presence::Flagged,
            Some(_) => Presence::WithoutTrigger,
            None if self.unread.contains(team) => Presence::Unknown,
            None => Presence::Absent,
        }
    }
}

/// Returns whether a wait ends, because people closed the ticket or removed its trigger. Two polls must find the issue
/// absent: a search index may lag behind.
pub(super) fn is_over(
    presence: Presence,
    trigger_seen: &mut bool,
    absent_since: &mut Option<Timestamp>,
    now: Timestamp,
) -> bool {
    match presence {
        Presence::Unknown => return false,
        Presence::Absent => {
            let since = *absent_since.get_or_insert(now);
            return since < now;
        }
        Presence::Flagged => *trigger_seen = true,
        Presence::WithoutTrigger => {
            if *trigger_seen {
                return true;
            }
        }
    }
    *absent_since = None;
    false
}

/// Removes the markers of an issue whose wait people ended, unless the ticket is closed.
pub(super) async fn markers_after_end(
    account: &TicketingClient,
    issue: &IssueRef,
) -> Option<Effect> {
    let closed = account.closed_issues(std::slice::from_ref(issue)).await;
    let is_open = closed.is_ok_and(|closed| !closed.contains(&issue.id));
    is_open.then(|| Effect::SetMarker {
        issue: issue.clone(),
        stage: Stage::Cancelled,
    })
}

/// Reminds people of open questions, goes on without an answer when the time is over, and ends the waits of closed
/// tickets.
pub(super) async fn update(
    app: &App,
    account: &TicketingClient,
    issues: &[FlaggedIssue],
    unread: &HashSet<&TeamKey>,
) -> StoreResult<()> {
    let (polled, now) = (Polled::new(issues, unread), app.core.now());
    let mut questions = app.core.store.read(open_questions::all)?;
    questions.retain(|question| question.issue.system == account.system());
    for before in questions {
        let mut question = before.clone();
        let presence = polled.presence(&question.issue.id, &question.team);
        let is_over = is_over(
            presence,
            &mut question.trigger_seen,
            &mut question.absent_since,
            now,
        );
        if is_over {
            let markers = markers_after_end(account, &question.issue).await;
            tracing::info!(issue = %question.issue.key, team = %question.team, "The question of a run is no longer open: its ticket was closed or its trigger removed.");
            let end = app.core.store.write(move |tx| {
                if open_questions::get(tx, &before.issue.id)?.as_ref() != Some(&before) {
                    return Ok(());
                }
                end_all(tx, &before.issue.id)?;
                markers
                    .iter()
                    .try_for_each(|marker| outbox::push(tx, marker, now).map(drop))
            });
            end.await?;
            continue;
        }
        let is_expired = question.is_expired(now) && question.candidate.is_none();
        if !is_expired && question.is_reminder_due(now) {
            question.reminded_at = Some(now);
        }
        if is_expired || question != before {
            let update =
                move |tx: &WriteTx<'_>| store_update(tx, &before, &question, is_expired, now);
            answers::commit(app, update).await?;
        }
    }
    Ok(())
}

/// Stores a reminder, an end without an answer, or what a poll saw. Returns whether the wait ended so.
fn store_update(
    tx: &WriteTx<'_>,
    before: &OpenQuestion,
    question: &OpenQuestion,
    is_expired: bool,
    now: Timestamp,
) -> StoreResult<bool> {
    // An answer or a poll may have come in between.
    if open_questions::get(tx, &before.issue.id)?.as_ref() != Some(before) {
        return Ok(false);
    }
    if is_expired {
        let exchange = question.timed_out(now);
        answers::resume(tx, &Actor::service(), question, exchange, now)?;
        return Ok(true);
    }
    if question.reminded_at != before.reminded_at {
        let reminder = Effect::TicketComment {
            issue: question.issue.clone(),
            body: comments::question_reminder(question),
        };
        outbox::push(tx, &reminder, now)?;
    }
    open_questions::put(tx, question)?;
    Ok(false)
}
