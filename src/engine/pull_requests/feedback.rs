//! Events of repository webhooks.
//!
//! A delivery and all its consequences are stored in one transaction before the response is sent;
//! no vendor is requested before. [`super::follow_up`] checks the permissions of the authors, and
//! whether the feedback is still active, before a run starts.

use crate::app::App;
use domain::feedback::{
    self, FeedbackClass, FeedbackSource, PullRequestId, PullRequestStatus, ReviewState,
};
use domain::ids::Repo;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{ReadableTx, StoreResult, WriteTx, jobs, mappings, pull_feedback, webhook_deliveries};
use vendors::scm::webhook::{FeedbackEvent, MergedPullRequest, NOT_MERGED, WebhookEvent};

use super::ledger::{
    add_finding, close_pull, is_own_comment, own_job, record_command, remove_commands, reopen,
    withdraw,
};

/// Reason for ignoring an event of a pull request that no run of this service opened.
const NOT_OURS: &str = "not our pull request";

/// Reason for ignoring a repeated delivery.
const DUPLICATE: &str = "duplicate";

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
    if let WebhookEvent::CommitChecked(commit) = &event
        && commit.ends_run
    {
        look_up_run(app, &commit.repo)?;
    }
    let (id, now) = (delivery.to_owned(), app.core.now());
    let received = event.clone();
    let (received_point, stored_point) = match event {
        WebhookEvent::CommitChecked(_) => {
            (CrashPoint::CheckEventReceived, CrashPoint::CheckEventStored)
        }
        _ => (CrashPoint::HostEventReceived, CrashPoint::HostEventStored),
    };
    let ignored = app
        .core
        .store
        .read(|tx| ignored_without_record(tx, delivery, &event));
    if let Some(mut reason) = ignored? {
        match reason == DUPLICATE || app.live.ignored_deliveries.is_repeated(delivery) {
            true => reason = DUPLICATE,
            false => note_changed(app, &event)?,
        }
        tracing::debug!(delivery, reason, "Ignored a webhook delivery.");
        return Ok(WebhookOutcome::Ignored(reason));
    }
    let store_delivery = move |tx: &WriteTx<'_>| {
        if !webhook_deliveries::record(tx, &id, now)? {
            return Ok((WebhookOutcome::Ignored(DUPLICATE), false));
        }
        process(tx, event.clone(), now)
    };
    app.core.crash_plan.crash_if_planned(received_point);
    let (outcome, is_end) = app.core.store.write(store_delivery).await?;
    if outcome == WebhookOutcome::Queued {
        app.live.notifiers.follow_up.notify_one();
    }
    if outcome != WebhookOutcome::Ignored(DUPLICATE) {
        note_changed(app, &received)?;
    }
    if is_end {
        app.live.notifiers.poll.notify_one();
    }
    tracing::debug!(delivery, ?outcome, "Processed a webhook delivery.");
    app.core.crash_plan.crash_if_planned(stored_point);
    Ok(outcome)
}

/// Makes the run monitor look up the runs of a repository now, if it has active ones.
fn look_up_run(app: &App, repo: &Repo) -> StoreResult<()> {
    let repo = app
        .core
        .store
        .read(|tx| mappings::canonical_target(tx, repo))?;
    if repo.is_some_and(|repo| app.live.run_watches.note_ended_run(&repo)) {
        app.live.notifiers.run_monitor.notify_one();
    }
    Ok(())
}

/// Returns why a delivery is ignored, if nothing about it has to be stored: it is a repetition, or it can change
/// nothing, also when it is repeated.
fn ignored_without_record(
    tx: &impl ReadableTx,
    delivery: &str,
    event: &WebhookEvent,
) -> StoreResult<Option<&'static str>> {
    if webhook_deliveries::is_recorded(tx, delivery)? {
        return Ok(Some(DUPLICATE));
    }
    let is_ours = |pull| StoreResult::Ok(own_pull(tx, pull)?.is_some());
    Ok(match event {
        WebhookEvent::Ignored(reason) => Some(*reason),
        WebhookEvent::CommitChecked(commit)
            if pulls_with_head(tx, &commit.repo, &commit.sha)?.is_empty() =>
        {
            Some(NOT_OURS)
        }
        WebhookEvent::Merged(merged) if !is_ours(&merged.pull)? => Some(NOT_OURS),
        WebhookEvent::Closed(pull) if !is_ours(pull)? => Some(NOT_MERGED),
        WebhookEvent::Feedback(event) => {
            let pull = canonical(tx, event.pull.clone())?;
            own_job(tx, &pull, &event.pull_body)?
                .is_none()
                .then_some(NOT_OURS)
        }
        _ => None,
    })
}

/// Notes the pull requests whose state must be read again. They are not stored: after a restart the first sweep
/// reads all.
fn note_changed(app: &App, event: &WebhookEvent) -> StoreResult<()> {
    let changed = app.core.store.read(|tx| match event {
        WebhookEvent::PullChanged(pull)
        | WebhookEvent::Withdrawn { pull, .. }
        | WebhookEvent::ThreadReopened { pull, .. } => own_pull(tx, pull).map(Vec::from_iter),
        // A comment changes neither the reviews nor the checks.
        WebhookEvent::Feedback(event) if event.comment.source == FeedbackSource::Review => {
            own_pull(tx, &event.pull).map(Vec::from_iter)
        }
        WebhookEvent::CommitChecked(commit) => pulls_with_head(tx, &commit.repo, &commit.sha),
        // The merge has moved the base of the others.
        WebhookEvent::Merged(merged) => others_of_repo(tx, &merged.pull),
        _ => Ok(Vec::new()),
    })?;
    if changed.is_empty() {
        return Ok(());
    }
    app.live.merge_checks.note_changed(&changed);
    app.live.reconciliation.note_changed(changed);
    // Checks end in bursts. The next cycle reads them together.
    if !matches!(event, WebhookEvent::CommitChecked(_)) {
        app.live.notifiers.follow_up.notify_one();
    }
    Ok(())
}

/// Returns the pull request in the spelling of our mappings if a run has worked on it.
fn own_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<PullRequestId>> {
    let pull = canonical(tx, pull.clone())?;
    let is_ours = !jobs::of_pull(tx, &pull.repo, pull.number)?.is_empty();
    Ok(is_ours.then_some(pull))
}

/// Returns our open pull requests of the repository of a pull request.
fn others_of_repo(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Vec<PullRequestId>> {
    let PullRequestId { repo, .. } = canonical(tx, pull.clone())?;
    let numbers = pull_feedback::open_pulls_of(tx, &repo)?.into_iter();
    let id = |number| PullRequestId::new(&repo, number);
    Ok(numbers.map(id).collect())
}

/// Returns our open pull requests whose head is this commit, or not known yet and thus may be it.
fn pulls_with_head(
    tx: &impl ReadableTx,
    repo: &Repo,
    sha: &str,
) -> StoreResult<Vec<PullRequestId>> {
    let repo = mappings::canonical_target(tx, repo)?.unwrap_or_else(|| repo.clone());
    let numbers = pull_feedback::open_pulls_with_head(tx, &repo, sha)?.into_iter();
    let id = |number| PullRequestId::new(&repo, number);
    Ok(numbers.map(id).collect())
}

/// Stores the consequences of an event. Returns the outcome, and whether one of our pull requests is no longer open.
fn process(
    tx: &WriteTx<'_>,
    event: WebhookEvent,
    now: Timestamp,
) -> StoreResult<(WebhookOutcome, bool)> {
    let outcome = match event {
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
        WebhookEvent::Merged(merged) => {
            let outcome = record_merge(tx, merged, now)?;
            return Ok((outcome, outcome == WebhookOutcome::Queued));
        }
        WebhookEvent::Closed(pull) => {
            let pull = canonical(tx, pull)?;
            let is_ours = !jobs::of_pull(tx, &pull.repo, pull.number)?.is_empty();
            let is_end = is_ours && close_pull(tx, &pull, PullRequestStatus::Closed, now)?;
            return Ok((WebhookOutcome::Ignored(NOT_MERGED), is_end));
        }
        // A commit that was of no use has been ignored before. Its pull request can have got another head since.
        WebhookEvent::CommitChecked(_)
        | WebhookEvent::PullChanged(_)
        | WebhookEvent::IssueChanged => Ok(WebhookOutcome::Acknowledged),
        WebhookEvent::Ignored(why) => Ok(WebhookOutcome::Ignored(why)),
    };
    Ok((outcome?, false))
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
        return Ok(WebhookOutcome::Ignored(NOT_OURS));
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
        return Ok(WebhookOutcome::Ignored(NOT_OURS));
    }
    let status = PullRequestStatus::Merged {
        commit: merged.commit,
        at: merged.merged_at.unwrap_or(now),
    };
    close_pull(tx, &pull, status, now).map(queued_if_new)
}

fn queued_if_new(is_new: bool) -> WebhookOutcome {
    match is_new {
        true => WebhookOutcome::Queued,
        false => WebhookOutcome::Ignored("known"),
    }
}
