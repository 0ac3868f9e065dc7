//! Events of repository webhooks.
//!
//! A delivery and all its consequences are stored in one transaction before the response is sent;
//! no vendor is requested before. [`super::follow_up`] checks the permissions of the authors, and
//! whether the feedback is still active, before a run starts.

use crate::app::App;
use domain::feedback::{
    self, FeedbackClass, FeedbackSource, PullRequestId, PullRequestStatus, ReviewState,
};
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{ReadableTx, StoreResult, WriteTx, jobs, mappings, webhook_deliveries};
use vendors::scm::webhook::{FeedbackEvent, MergedPullRequest, WebhookEvent};

use super::ledger::{
    add_finding, close_pull, is_own_comment, own_job, record_command, remove_commands, reopen,
    withdraw,
};

/// Outcome of a webhook delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// Stored, with work to do.
    Queued,
    /// Accepted, without work to do.
    Acknowledged,
    /// Ignored for this reason.
    Ignored(&'static str),
}

/// Processes a webhook delivery; a repeated delivery is ignored.
///
/// # Errors
/// Fails if the delivery cannot be stored; the sender may repeat it.
pub async fn receive(
    app: &App,
    delivery: &str,
    event: WebhookEvent,
) -> StoreResult<WebhookOutcome> {
    let (id, now) = (delivery.to_owned(), app.core.now());
    let store_delivery = move |tx: &WriteTx<'_>| {
        if !webhook_deliveries::record(tx, &id, now)? {
            return Ok(WebhookOutcome::Ignored("duplicate"));
        }
        process(tx, event.clone(), now)
    };
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::HostEventReceived);
    let outcome = app.core.store.write(store_delivery).await?;
    if outcome == WebhookOutcome::Queued {
        app.live.notifiers.follow_up.notify_one();
    }
    tracing::info!(delivery, ?outcome, "Processed webhook delivery.");
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::HostEventStored);
    Ok(outcome)
}

fn process(tx: &WriteTx<'_>, event: WebhookEvent, now: Timestamp) -> StoreResult<WebhookOutcome> {
    match event {
        WebhookEvent::Feedback(event) => record_feedback(tx, event, now),
        WebhookEvent::Withdrawn { pull, source, ids } => {
            let pull = canonical(tx, pull)?;
            withdraw(tx, &pull, |comment| {
                comment.source == source && ids.contains(&comment.id)
            })?;
            if source == FeedbackSource::IssueComment {
                remove_commands(tx, &pull, &ids)?;
            }
            Ok(WebhookOutcome::Acknowledged)
        }
        WebhookEvent::ThreadReopened { pull, ids } => {
            Ok(match reopen(tx, &canonical(tx, pull)?, &ids, now)? {
                true => WebhookOutcome::Queued,
                false => WebhookOutcome::Acknowledged,
            })
        }
        WebhookEvent::Merged(merged) => record_merge(tx, merged, now),
        WebhookEvent::Synchronized | WebhookEvent::IssueChanged => Ok(WebhookOutcome::Acknowledged),
        WebhookEvent::Ignored(why) => Ok(WebhookOutcome::Ignored(why)),
    }
}

/// Returns the pull request with the repository name of our mappings. GitHub ignores case and sends
/// its own spelling.
fn canonical(tx: &impl ReadableTx, pull: PullRequestId) -> StoreResult<PullRequestId> {
    let repo = mappings::canonical_target(tx, &pull.repo)?;
    Ok(PullRequestId {
        repo: repo.unwrap_or(pull.repo),
        ..pull
    })
}

fn record_feedback(
    tx: &WriteTx<'_>,
    event: FeedbackEvent,
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let pull = canonical(tx, event.pull)?;
    if own_job(tx, &pull, &event.pull_body)?.is_none() {
        return Ok(WebhookOutcome::Ignored("not our pull request"));
    }
    if !event.is_open {
        return Ok(WebhookOutcome::Ignored("the pull request is closed"));
    }
    let comment = event.comment;
    if is_own_comment(&comment, event.is_by_pull_author) {
        return Ok(WebhookOutcome::Ignored("our own words"));
    }
    if event.is_edit {
        let (source, id) = (comment.source, comment.id);
        withdraw(tx, &pull, |known| known.source == source && known.id == id)?;
    }
    if comment.review_state == Some(ReviewState::Approved) {
        withdraw(tx, &pull, |known| {
            known.source == FeedbackSource::Review && known.author == comment.author
        })?;
    }
    match feedback::classify(&comment) {
        FeedbackClass::Command(_) if event.is_edit => {
            Ok(WebhookOutcome::Ignored("an edited command"))
        }
        FeedbackClass::Command(instruction) => {
            record_command(tx, &pull, &comment, instruction, now).map(queued_if_new)
        }
        FeedbackClass::ChangeRequest => add_finding(tx, &pull, comment, now).map(queued_if_new),
        FeedbackClass::Ignored(why) => Ok(WebhookOutcome::Ignored(why.as_str())),
    }
}

fn record_merge(
    tx: &WriteTx<'_>,
    merged: MergedPullRequest,
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let pull = canonical(tx, merged.pull)?;
    if jobs::of_pull(tx, &pull.repo, pull.number)?.is_empty() {
        return Ok(WebhookOutcome::Ignored("not our pull request"));
    }
    let status = PullRequestStatus::Merged {
        commit: merged.commit,
        at: merged.merged_at.unwrap_or(now),
    };
    close_pull(tx, &pull, status).map(queued_if_new)
}

fn queued_if_new(is_new: bool) -> WebhookOutcome {
    match is_new {
        true => WebhookOutcome::Queued,
        false => WebhookOutcome::Ignored("known"),
    }
}
