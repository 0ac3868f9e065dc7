//! Commands in comments on tickets. Each is carried out once and answered with one comment.

use crate::app::App;
use crate::control::{self, ControlError};
use domain::audit::{Action, Actor};
use domain::comments;
use domain::decision::{DecisionOutcome, WaitReason, advice};
use domain::effect::Effect;
use domain::issue::IssueRef;
use domain::job::Job;
use domain::ticket_command::TicketCommand;
use domain::ticket_comment::TicketComment;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{
    ReadableTx, StoreResult, WriteTx, audit, decisions, open_questions, outbox, plan_gates,
    ticket_commands,
};
use vendors::ticketing::TicketingClient;

use super::plans::{self, PlanError};
use crate::dispatch;

/// Carries out a command. Returns false if a vendor did not answer: the next poll tries again.
pub(super) async fn carry_out(
    app: &App,
    account: &TicketingClient,
    issue: &IssueRef,
    comment: &TicketComment,
    command: TicketCommand,
) -> StoreResult<bool> {
    let author = app
        .secrets
        .redactor
        .sanitize(&comment.author.display_name());
    let checked = match &command {
        TicketCommand::Retry => match control::check_retry(app, issue.id.as_str()).await {
            Ok(job) => Ok(Checked::Retry(Box::new(job))),
            Err(error) => Err(retry_later_or_sentence(error)),
        },
        TicketCommand::Approve => {
            let approver = plans::Approver::comment(comment, &author);
            match plans::check_approval(app, account, issue, approver).await? {
                Ok(approval) => Ok(Checked::Approval(Box::new(approval))),
                Err(PlanError::Unanswered(why)) => {
                    tracing::warn!(issue = %issue.key, why, "Failed to check the approval of a plan; the next poll tries again.");
                    return Ok(false);
                }
                Err(error) => Err(Some(error.sentence())),
            }
        }
        _ => Ok(Checked::Nothing),
    };
    let checked = match checked {
        Ok(checked) => Ok(checked),
        Err(Some(sentence)) => Err(sentence),
        // The vendor did not answer. The next poll tries again.
        Err(None) => return Ok(false),
    };
    let (handle, issue, comment, now) =
        (app.clone(), issue.clone(), comment.clone(), app.core.now());
    let system = account.system();
    let decides_on_plan = command.decides_on_plan();
    let stored = app.core.store.write(move |tx| {
        if !ticket_commands::record(tx, system, &comment.id, now)? {
            return Ok(false);
        }
        let actor = Actor::ticket(&author);
        let event = actor.audit_event(Action::TicketCommand, &issue.key);
        audit::append(tx, &event.with_detail(command.name()), now)?;
        let by = Author {
            actor,
            name: &author,
        };
        let reply = match &checked {
            Err(sentence) => Some(comments::command_reply(sentence)),
            Ok(checked) => perform(tx, &handle, &issue, &by, &command, checked, now)?,
        };
        if let Some(body) = reply {
            let issue = issue.clone();
            outbox::push(tx, &Effect::TicketComment { issue, body }, now)?;
        }
        Ok(true)
    });
    if stored.await? {
        app.core
            .crash_plan
            .crash_if_planned(CrashPoint::CommandStored);
        if decides_on_plan {
            app.core
                .crash_plan
                .crash_if_planned(CrashPoint::ApprovalStored);
        }
        app.live.notifiers.poll.notify_one();
    }
    Ok(true)
}

/// What was checked at a vendor before the commit.
enum Checked {
    Nothing,
    Retry(Box<Job>),
    Approval(Box<plans::CheckedApproval>),
}

/// Author of a command.
struct Author<'a> {
    actor: Actor,
    name: &'a str,
}

fn retry_later_or_sentence(error: ControlError) -> Option<String> {
    match error {
        ControlError::Unanswered(_) | ControlError::Store(_) => None,
        error => Some(control_sentence(&error)),
    }
}

fn control_sentence(error: &ControlError) -> String {
    match error {
        ControlError::UnknownRun => "No run of this ticket is known.".to_owned(),
        ControlError::AlreadyEnded => "No run of this ticket is active.".to_owned(),
        ControlError::ActiveRun => "A run of this ticket is active.".to_owned(),
        ControlError::TicketClosed => "The ticket is closed.".to_owned(),
        ControlError::NotRetryable(sentence) => format!("{sentence}."),
        ControlError::Unanswered(sentence) => sentence.clone(),
        ControlError::Store(error) => error.to_string(),
    }
}

/// Performs a command. Returns the reply, unless an effect of the command is the reply.
fn perform(
    tx: &WriteTx<'_>,
    app: &App,
    issue: &IssueRef,
    by: &Author<'_>,
    command: &TicketCommand,
    checked: &Checked,
    now: Timestamp,
) -> StoreResult<Option<String>> {
    let plan_reply = |outcome: Result<(), PlanError>| match outcome {
        // The comment about the plan that is made again says what changed.
        Ok(()) | Err(PlanError::Changed(_)) => None,
        Err(error) => Some(comments::command_reply(&error.sentence())),
    };
    Ok(match (command, checked) {
        (TicketCommand::Status, _) => Some(comments::command_reply(&status(tx, issue, now)?)),
        (TicketCommand::Cancel, _) => {
            match control::cancel_in(tx, app, &by.actor, issue.id.as_str(), false, now)? {
                Ok(_) => None,
                Err(error) => Some(comments::command_reply(&control_sentence(&error))),
            }
        }
        (TicketCommand::Retry, Checked::Retry(job)) => {
            let text = match control::retry_in(tx, &by.actor, job, now)? {
                Ok(()) => "Another run starts.".to_owned(),
                Err(error) => control_sentence(&error),
            };
            Some(comments::command_reply(&text))
        }
        (TicketCommand::Approve, Checked::Approval(approval)) => {
            plan_reply(plans::store_approval(tx, &by.actor, approval, now)?)
        }
        (TicketCommand::Reject, _) => plan_reply(plans::store_rejection(
            tx, &by.actor, by.name, &issue.id, now,
        )?),
        (TicketCommand::Replan(instruction), _) => {
            let (redactor, id) = (&app.secrets.redactor, &issue.id);
            let instruction = redactor.sanitize(instruction);
            plan_reply(plans::store_replan(
                tx,
                &by.actor,
                by.name,
                id,
                &instruction,
                now,
            )?)
        }
        (TicketCommand::Unknown | TicketCommand::Retry | TicketCommand::Approve, _) => {
            Some(comments::command_help())
        }
    })
}

/// Returns where a ticket stands, in one or two sentences.
fn status(tx: &impl ReadableTx, issue: &IssueRef, now: Timestamp) -> StoreResult<String> {
    let jobs = dispatch::non_shadow_jobs(tx, &issue.id)?;
    if let Some(job) = jobs.iter().rev().find(|job| job.is_active()) {
        let kind = comments::run_kind_name(job.kind);
        let since = job.dispatched_at.unwrap_or(job.reserved_at);
        let minutes = now.since(since).as_secs() / 60;
        return Ok(format!(
            "{kind} is running for {minutes} min (job {}).",
            job.id
        ));
    }
    let history = decisions::get(tx, &issue.key)?;
    let latest = history
        .as_ref()
        .and_then(|history| history.decisions.last());
    let Some(decision) = latest else {
        return Ok("No run of this ticket is known.".to_owned());
    };
    // No poll decides about a ticket that lost its trigger while it waited for a person.
    let has_ended = match decision.reason {
        Some(WaitReason::Question) => open_questions::get(tx, &issue.id)?.is_none(),
        Some(WaitReason::Approval) => plan_gates::get(tx, &issue.id)?.is_none(),
        _ => false,
    };
    if has_ended {
        return Ok(control_sentence(&ControlError::AlreadyEnded));
    }
    let advice = advice(decision).filter(|_| decision.outcome == DecisionOutcome::Waiting);
    Ok(match advice {
        Some(advice) => format!("{}. {advice}", decision.message.trim_end_matches('.')),
        None => decision.message.clone(),
    })
}
