//! Reservation of a run on a pull request, decided from the store in one transaction.

use std::collections::HashMap;

use domain::audit::Actor;
use domain::feedback;
use domain::feedback::CommentCommand;
use domain::feedback::CommentCommandState;
use domain::feedback::FeedbackAuthor;
use domain::feedback::NextPullRequestRun;
use domain::feedback::PullRequestId;
use domain::feedback::PullRequestStatus;
use domain::feedback::ReviewFinding;
use domain::feedback::ReviewFindingState;
use domain::ids::JobId;
use domain::job::JobKind;
use domain::time::Timestamp;
use store::StoreResult;
use store::WriteTx;
use store::pull_feedback;
use store::pull_feedback::KeyedRow;

use super::ExternalState;
use crate::app::App;
use crate::pull_requests::reconcile::reconcile_feedback;
use crate::pull_requests::run::{self, PullRunRequest};
use crate::pull_requests::stored_pull::{Block, StoredPull};
use crate::pull_requests::wait_comments;

/// Updates the feedback ledger, then reserves the run if it is still due.
pub(super) fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    external: &ExternalState,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    // Its end may have been stored after its conversation was read.
    if pull_feedback::get_pull(tx, pull)?.status != PullRequestStatus::Open {
        return Ok(None);
    }
    reconcile_feedback(tx, pull, &external.conversation, now)?;
    apply_permissions(tx, pull, &external.permitted)?;
    let Some(stored) = StoredPull::read(tx, app, pull, now)? else {
        return Ok(None);
    };
    match stored.next_run {
        NextPullRequestRun::Command => reserve_command(tx, app, pull, external, &stored, now),
        NextPullRequestRun::FollowUp if stored.block.is_none() => {
            reserve_follow_up(tx, app, pull, external, &stored, now)
        }
        NextPullRequestRun::FollowUp
        | NextPullRequestRun::NotDue
        | NextPullRequestRun::LimitReached(_) => Ok(None),
    }
}

/// Opens the findings of permitted authors and removes those of others. A removed finding that is
/// repeated after its author gets write permission counts.
fn apply_permissions(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    permitted: &HashMap<FeedbackAuthor, bool>,
) -> StoreResult<()> {
    for (key, finding) in pull_feedback::unresolved(tx, pull)? {
        match permitted.get(&finding.comment.author) {
            Some(true) if finding.state == ReviewFindingState::New => {
                let open = ReviewFinding {
                    state: ReviewFindingState::Open,
                    ..finding
                };
                pull_feedback::put_finding(tx, pull, &key, &open)?;
            }
            Some(false) if finding.state == ReviewFindingState::New => {
                pull_feedback::remove_finding(tx, pull, &key)?;
            }
            _ => {}
        }
    }
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.is_waiting() && is_permitted(&command, permitted) == Some(false) {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

fn is_permitted(
    command: &CommentCommand,
    permitted: &HashMap<FeedbackAuthor, bool>,
) -> Option<bool> {
    match command.author.clone() {
        None => Some(true),
        Some(login) => permitted.get(&FeedbackAuthor::Person { login }).copied(),
    }
}

fn reserve_command(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    external: &ExternalState,
    stored: &StoredPull,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let mut waiting = stored.commands.iter().filter(|(_, one)| one.is_waiting());
    let next = waiting.find(|(_, one)| is_permitted(one, &external.permitted) == Some(true));
    let Some((key, command)) = next else {
        return Ok(None);
    };
    match &stored.block {
        // The operator sets the budget; a comment cannot exceed it.
        Some(Block::Budget(spending)) => {
            let reason = spending.exhausted_message(&stored.mapping.team_key);
            wait_comments::post_command_refused(tx, pull, &reason, now)?;
            let refused = CommentCommand {
                state: CommentCommandState::Refused,
                ..command.clone()
            };
            return pull_feedback::put_command(tx, pull, key, &refused).map(|()| None);
        }
        Some(Block::ProviderLimit(until)) => {
            wait_comments::post_limit_wait(tx, pull, *until, now)?;
            return Ok(None);
        }
        None => {}
    }
    let request = PullRunRequest {
        kind: JobKind::GapFill,
        actor: command_actor(command),
        last_job: &stored.last_job,
        mapping: &stored.mapping,
        issue: &external.ticket,
        instruction: command.instruction.clone(),
        findings: None,
        image: external.image.clone(),
    };
    let Some(job) = run::reserve(tx, app, request, now)? else {
        return Ok(None);
    };
    let started = CommentCommand {
        state: CommentCommandState::Started { job: job.clone() },
        ..command.clone()
    };
    pull_feedback::put_command(tx, pull, key, &started)?;
    Ok(Some(job))
}

/// Author of a command, for the audit. The repository's workflow does not report the author; it
/// authenticates with the trigger's secret.
fn command_actor(command: &CommentCommand) -> Actor {
    match &command.author {
        Some(login) => Actor::webhook([login.as_str()]),
        None => Actor::trigger(),
    }
}

fn reserve_follow_up(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    external: &ExternalState,
    stored: &StoredPull,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let is_open = |one: &&KeyedRow<ReviewFinding>| one.1.state == ReviewFindingState::Open;
    let open: Vec<&KeyedRow<ReviewFinding>> = stored.findings.iter().filter(is_open).collect();
    if open.is_empty() {
        return Ok(None);
    }
    let findings: Vec<&ReviewFinding> = open.iter().map(|(_, finding)| finding).collect();
    let (text, count) = feedback::format_findings(&findings);
    let request = PullRunRequest {
        kind: JobKind::FollowUp,
        actor: Actor::webhook(
            findings
                .iter()
                .take(count)
                .map(|one| one.comment.author.name()),
        ),
        last_job: &stored.last_job,
        mapping: &stored.mapping,
        issue: &external.ticket,
        instruction: None,
        findings: Some(text),
        image: external.image.clone(),
    };
    let Some(job) = run::reserve(tx, app, request, now)? else {
        return Ok(None);
    };
    for (key, finding) in open.into_iter().take(count) {
        let in_progress = finding.clone().taken_by(&job);
        pull_feedback::put_finding(tx, pull, key, &in_progress)?;
    }
    Ok(Some(job))
}
