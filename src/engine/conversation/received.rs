//! Comments that a poll read: answers to open questions, and commands.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::permissions;
use domain::audit::Actor;
use domain::crypto::deterministic_uuid;
use domain::effect::ticket_queue_key;
use domain::ids::IssueId;
use domain::issue::{FlaggedIssue, IssueRef};
use domain::question::{AnswerCandidate, AnswerSource, OpenQuestion, QUIET_TIME};
use domain::ticket_command::TicketCommand;
use domain::ticket_comment::TicketComment;
use domain::time::Timestamp;
use store::{StoreResult, job_index, open_questions, outbox, ticket_commands};
use vendors::ticketing::TicketingClient;

use super::{answers, commands};

/// Maximum age of a command that still counts.
const MAX_COMMAND_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Time after which an answer counts in any case, if the clock of the ticketing system is ahead.
const MAX_QUIET_TIME: Duration = Duration::from_secs(150);

/// Handles the comments that a poll read. Returns the issues with a command that could not be carried out yet, because
/// a vendor did not answer.
pub(super) async fn process(
    app: &App,
    account: &TicketingClient,
    issues: &[FlaggedIssue],
    comments: &[TicketComment],
) -> StoreResult<Vec<IssueRef>> {
    let mut postponed = Vec::new();
    let mut by_issue: BTreeMap<&IssueId, Vec<&TicketComment>> = BTreeMap::new();
    for comment in comments {
        by_issue.entry(&comment.issue).or_default().push(comment);
    }
    let flagged: HashMap<&IssueId, &FlaggedIssue> = issues
        .iter()
        .map(|issue| (&issue.issue.id, issue))
        .collect();
    for (issue, mut comments) in by_issue {
        comments
            .sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        let question = app.core.store.read(|tx| open_questions::get(tx, issue))?;
        if let Some(question) = question {
            update_answer(app, account, question, &comments).await?;
        }
        for comment in comments {
            let Some(command) = TicketCommand::parse(&comment.body) else {
                continue;
            };
            if !comment.is_by_person() || !is_new_command(app, account, comment)? {
                continue;
            }
            let issue_ref = match flagged.get(issue) {
                Some(flagged) => Some(flagged.issue.clone()),
                None => known_issue(app, issue)?,
            };
            let Some(issue_ref) = issue_ref else { continue };
            let is_done = match is_writer(app, account, &issue_ref, comment).await {
                Some(true) => {
                    commands::carry_out(app, account, &issue_ref, comment, command).await?
                }
                Some(false) => true,
                None => false,
            };
            if !is_done {
                postponed.push(issue_ref);
            }
        }
    }
    Ok(postponed)
}

/// Issue of an earlier run.
fn known_issue(app: &App, issue: &IssueId) -> StoreResult<Option<IssueRef>> {
    let mut jobs = app
        .core
        .store
        .read(|tx| job_index::of_issue_named(tx, issue.as_str()))?;
    Ok(jobs.pop().map(|job| job.issue))
}

/// Whether a command was not carried out yet, and was written while the service was in use.
fn is_new_command(
    app: &App,
    account: &TicketingClient,
    comment: &TicketComment,
) -> StoreResult<bool> {
    let (system, now) = (account.system(), app.core.now());
    let first = app.live.comment_reads.first_poll(system);
    let is_old = first.is_some_and(|first| comment.created_at < first)
        || now.since(comment.created_at) > MAX_COMMAND_AGE;
    if is_old {
        return Ok(false);
    }
    let is_recorded = app
        .core
        .store
        .read(|tx| ticket_commands::is_recorded(tx, system, &comment.id))?;
    Ok(!is_recorded)
}

/// Whether the author of a comment may edit the issue. `None` if that is unknown: the next poll asks again.
async fn is_writer(
    app: &App,
    account: &TicketingClient,
    issue: &IssueRef,
    comment: &TicketComment,
) -> Option<bool> {
    match permissions::may_edit(app, account, issue, &comment.author).await {
        Ok(may_edit) => Some(may_edit),
        Err(error) => {
            tracing::warn!(issue = %issue.key, %error, "Failed to read the permissions of the author of a comment.");
            None
        }
    }
}

/// Finds the answer among the comments of an issue. It counts when it was not edited for a while.
async fn update_answer(
    app: &App,
    account: &TicketingClient,
    question: OpenQuestion,
    comments: &[&TicketComment],
) -> StoreResult<()> {
    let now = app.core.now();
    let mut found = None;
    for comment in after_question(app, &question, comments)? {
        if comment.is_by_person()
            && TicketCommand::parse(&comment.body).is_none()
            && !comment.body.trim().is_empty()
        {
            match is_writer(app, account, &question.issue, comment).await {
                Some(true) => found = Some(*comment),
                Some(false) => continue,
                // A later comment must not become the answer in place of this one.
                None => return Ok(()),
            }
            break;
        }
    }
    let candidate = found.map(|comment| {
        let known = question.candidate.as_ref();
        let known = known
            .filter(|known| known.comment == comment.id && known.edited_at == comment.updated_at);
        known.cloned().unwrap_or_else(|| AnswerCandidate {
            comment: comment.id.clone(),
            edited_at: comment.updated_at,
            seen_at: now,
            author: app
                .secrets
                .redactor
                .sanitize(&comment.author.display_name()),
            body: app.secrets.redactor.sanitize(&comment.body),
        })
    });
    let is_quiet = candidate.as_ref().is_some_and(|one| {
        now.since(one.edited_at) >= QUIET_TIME || now.since(one.seen_at) >= MAX_QUIET_TIME
    });
    if is_quiet {
        let stored = answers::commit(app, move |tx| {
            let is_same = open_questions::get(tx, &question.issue.id)?.as_ref() == Some(&question);
            let Some(candidate) = candidate.clone().filter(|_| is_same) else {
                return Ok(false);
            };
            let actor = Actor::ticket(&candidate.author);
            let source = AnswerSource::Comment;
            let exchange = question.answered(&candidate.body, candidate.author, source, now);
            answers::resume(tx, &actor, &question, exchange, now)?;
            Ok(true)
        });
        return stored.await.map(drop);
    }
    if candidate == question.candidate {
        return Ok(());
    }
    if let Some(candidate) = &candidate {
        wake_when_quiet(app, candidate, now);
    }
    let update = app.core.store.write(move |tx| {
        let is_same = open_questions::get(tx, &question.issue.id)?.as_ref() == Some(&question);
        let candidate = candidate.clone();
        match is_same {
            true => open_questions::put(
                tx,
                &OpenQuestion {
                    candidate,
                    ..question.clone()
                },
            ),
            false => Ok(()),
        }
    });
    update.await
}

/// Makes the poll run when an answer counts.
fn wake_when_quiet(app: &App, candidate: &AnswerCandidate, now: Timestamp) {
    let due = (candidate.edited_at + QUIET_TIME)
        .since(now)
        .min(MAX_QUIET_TIME);
    // The task must not hold the store: a restart in the same process opens it again.
    let poll = Arc::clone(&app.live.notifiers.poll);
    tasks::spawn(async move {
        tokio::time::sleep(due + Duration::from_millis(100)).await;
        poll.notify_one();
    });
}

/// Comments after the one with the question. None while the question is not posted yet.
fn after_question<'a, 'c>(
    app: &App,
    question: &OpenQuestion,
    comments: &'a [&'c TicketComment],
) -> StoreResult<&'a [&'c TicketComment]> {
    let uuid = deterministic_uuid(&question.comment);
    let is_question = |comment: &&TicketComment| {
        comment.effect_id.as_deref() == Some(&question.comment) || comment.id == uuid
    };
    if let Some(at) = comments.iter().position(is_question) {
        return Ok(&comments[at + 1..]);
    }
    let queue = ticket_queue_key(&question.issue);
    if app.core.store.read(|tx| outbox::has_queue(tx, &queue))? {
        return Ok(&[]);
    }
    let asked_at = question.asked_at.whole_second();
    let first = comments.partition_point(|comment| comment.created_at < asked_at);
    Ok(&comments[first..])
}
