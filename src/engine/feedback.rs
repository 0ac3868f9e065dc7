//! Feedback ledger: events of repository webhooks, and reconciliation with GitHub.
//!
//! A delivery and all its consequences are stored in one transaction before the response is sent;
//! no vendor is requested before. [`super::follow_up`] checks the permissions of the authors, and
//! whether the feedback is still active, before a run starts.

use std::time::Duration;

use crate::app::App;
use domain::crypto::sha256_hex;
use domain::feedback::{
    self, CommentCommand, CommentCommandState, FeedbackAuthor, FeedbackClass, FeedbackSource,
    PullRequestId, PullRequestMeta, PullRequestStatus, ReviewComment, ReviewFinding,
    ReviewFindingState, ReviewState,
};
use domain::job::{Job, JobKind};
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{
    ReadableTx, StoreResult, WriteTx, dedup, jobs, mappings, pull_feedback, webhook_deliveries,
};
use vendors::scm::webhook::{FeedbackEvent, MergedPullRequest, WebhookEvent};
use vendors::scm::{FeedbackItem, PullRequestFeedback, PullRequestState};

use super::gap_fill;

/// Maximum lead of GitHub's clock over ours.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Age after which a command that no webhook delivered is no longer started.
const MAX_COMMAND_AGE: Duration = Duration::from_secs(24 * 60 * 60);

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
        WebhookEvent::ThreadReopened { pull, ids } => reopen(tx, &canonical(tx, pull)?, &ids, now),
        WebhookEvent::Merged(merged) => record_merge(tx, merged, now),
        WebhookEvent::Synchronized => Ok(WebhookOutcome::Acknowledged),
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

/// Returns the last job of a pull request if this service opened it: its description has our
/// metadata block, and a job exists for it. A run may have opened it and not reported it yet.
fn own_job(tx: &impl ReadableTx, pull: &PullRequestId, body: &str) -> StoreResult<Option<Job>> {
    let Some(meta) = PullRequestMeta::from_body(body) else {
        return Ok(None);
    };
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    let is_of_issue = |job: &Job| job.issue.id == meta.issue_id;
    if let Some(job) = of_pull.into_iter().rfind(is_of_issue) {
        return Ok(Some(job));
    }
    let opening = jobs::get(tx, &meta.job_id)?;
    Ok(opening.filter(|job| {
        job.is_active() && job.pull.is_none() && job.repo == pull.repo && is_of_issue(job)
    }))
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
            record_command(tx, &pull, &comment, instruction, now)
        }
        FeedbackClass::ChangeRequest => Ok(match add_finding(tx, &pull, comment, now)? {
            true => WebhookOutcome::Queued,
            false => WebhookOutcome::Ignored("known"),
        }),
        FeedbackClass::Ignored(why) => Ok(WebhookOutcome::Ignored(why.as_str())),
    }
}

/// Whether a comment is from this service. Comments of an App that opened the pull request are its
/// own. A person who opened it may be the owner of our token: comments of the service carry a
/// marker, and all other comments are the person's own.
fn is_own_comment(comment: &ReviewComment, is_by_pull_author: bool) -> bool {
    is_by_pull_author && matches!(comment.author, FeedbackAuthor::App { .. })
}

/// Adds a finding to the ledger. Returns `false` if it is known.
fn add_finding(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    comment: ReviewComment,
    now: Timestamp,
) -> StoreResult<bool> {
    let key = sha256_hex(&comment.fingerprint_input());
    let known = pull_feedback::get_finding(tx, pull, &key)?;
    let attempts = match known {
        Some(ReviewFinding {
            state: ReviewFindingState::Withdrawn,
            attempts,
            ..
        }) => attempts,
        Some(_) => return Ok(false),
        None => 0,
    };
    let finding = ReviewFinding {
        attempts,
        ..ReviewFinding::new(comment, now)
    };
    pull_feedback::put_finding(tx, pull, &key, &finding)?;
    Ok(true)
}

/// Withdraws the waiting findings that match.
fn withdraw(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    matches: impl Fn(&ReviewComment) -> bool,
) -> StoreResult<()> {
    for (key, finding) in pull_feedback::unresolved(tx, pull)? {
        if finding.is_waiting() && matches(&finding.comment) {
            let withdrawn = ReviewFinding {
                state: ReviewFindingState::Withdrawn,
                ..finding
            };
            pull_feedback::put_finding(tx, pull, &key, &withdrawn)?;
        }
    }
    Ok(())
}

fn reopen(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    ids: &[u64],
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let mut outcome = WebhookOutcome::Acknowledged;
    for (key, finding) in pull_feedback::findings_of_pull(tx, pull)? {
        let is_match = finding.comment.source == FeedbackSource::ReviewComment
            && ids.contains(&finding.comment.id)
            && finding.state == ReviewFindingState::Withdrawn;
        if is_match {
            let reopened = ReviewFinding {
                state: ReviewFindingState::New,
                seen_at: now,
                ..finding
            };
            pull_feedback::put_finding(tx, pull, &key, &reopened)?;
            outcome = WebhookOutcome::Queued;
        }
    }
    Ok(outcome)
}

/// Records a command of a comment, unless the repository's workflow has reported it before.
fn record_command(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    comment: &ReviewComment,
    instruction: Option<String>,
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let instruction = gap_fill::sanitize_instruction(instruction);
    let known = pull_feedback::commands(tx, pull)?;
    if known
        .iter()
        .any(|(_, one)| one.comment_id == Some(comment.id))
    {
        return Ok(WebhookOutcome::Ignored("known"));
    }
    let reported = known.into_iter().find(|(_, one)| {
        one.comment_id.is_none()
            && one.reported_by_workflow
            && one.is_same_request(instruction.as_deref(), now)
    });
    if let Some((key, reported)) = reported {
        let same = CommentCommand {
            comment_id: Some(comment.id),
            ..reported
        };
        pull_feedback::put_command(tx, pull, &key, &same)?;
        return Ok(WebhookOutcome::Ignored("known"));
    }
    let command = CommentCommand {
        comment_id: Some(comment.id),
        author: Some(comment.author.name().to_owned()),
        instruction,
        requested_at: now,
        reported_by_workflow: false,
        state: CommentCommandState::Waiting,
    };
    pull_feedback::put_command(tx, pull, &format!("comment-{}", comment.id), &command)?;
    Ok(WebhookOutcome::Queued)
}

fn remove_commands(tx: &WriteTx<'_>, pull: &PullRequestId, ids: &[u64]) -> StoreResult<()> {
    for (key, command) in pull_feedback::commands(tx, pull)? {
        let is_match = command.comment_id.is_some_and(|id| ids.contains(&id));
        if is_match && command.is_waiting() && !command.reported_by_workflow {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
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
        at: now,
    };
    Ok(match close_pull(tx, &pull, status)? {
        true => WebhookOutcome::Queued,
        false => WebhookOutcome::Ignored("known"),
    })
}

/// Records that a pull request is closed: waiting findings are withdrawn and waiting commands
/// removed. A merge also removes the dedup entry of the issue. The ticket does not change. Returns
/// `false` if the status is known.
pub(super) fn close_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    status: PullRequestStatus,
) -> StoreResult<bool> {
    let mut row = pull_feedback::get_pull(tx, pull)?;
    withdraw(tx, pull, |_| true)?;
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.is_waiting() {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    if row.status.as_str() == status.as_str() {
        return Ok(false);
    }
    if matches!(status, PullRequestStatus::Merged { .. })
        && let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop()
    {
        dedup::remove(tx, &job.issue.id)?;
    }
    row.status = status;
    pull_feedback::put_pull(tx, pull, &row)?;
    Ok(true)
}

/// Updates the ledger from GitHub: feedback that no webhook delivered is added, inactive feedback
/// is withdrawn. Returns the number of additions.
pub(super) fn reconcile_feedback(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    seen: &PullRequestFeedback,
    now: Timestamp,
) -> StoreResult<u64> {
    let status = match (seen.state, &seen.merge) {
        (PullRequestState::Open, _) => PullRequestStatus::Open,
        (PullRequestState::Merged, merge) => {
            let (commit, at) = merge.clone().unwrap_or_else(|| (String::new(), now));
            PullRequestStatus::Merged { commit, at }
        }
        (PullRequestState::Closed, _) => PullRequestStatus::Closed,
    };
    if status != PullRequestStatus::Open {
        return close_pull(tx, pull, status).map(u64::from);
    }
    let row = pull_feedback::get_pull(tx, pull)?;
    if row.status != status || row.draft != Some(seen.draft) {
        let row = feedback::PullRequestRecord {
            status,
            draft: Some(seen.draft),
            ..row
        };
        pull_feedback::put_pull(tx, pull, &row)?;
    }
    if own_job(tx, pull, &seen.body)?.is_none() {
        return Ok(0);
    }
    let mut added = 0;
    for item in &seen.items {
        added += u64::from(reconcile_item(tx, pull, item, now)?);
    }
    Ok(added)
}

/// Updates the ledger from one item. Returns whether the item was added.
fn reconcile_item(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    item: &FeedbackItem,
    now: Timestamp,
) -> StoreResult<bool> {
    let comment = &item.comment;
    if !item.is_active {
        withdraw(tx, pull, |known| {
            known.source == comment.source && known.id == comment.id
        })?;
        return Ok(false);
    }
    if is_own_comment(comment, item.is_by_pull_author) {
        return Ok(false);
    }
    match feedback::classify(comment) {
        // The line of an outdated comment has changed since, which probably addressed it.
        FeedbackClass::ChangeRequest if !item.is_outdated => {
            add_finding(tx, pull, comment.clone(), now)
        }
        FeedbackClass::Command(instruction) if !is_command_handled(tx, pull, comment, now)? => {
            let outcome = record_command(tx, pull, comment, instruction, now)?;
            Ok(outcome == WebhookOutcome::Queued)
        }
        FeedbackClass::ChangeRequest | FeedbackClass::Command(_) | FeedbackClass::Ignored(_) => {
            Ok(false)
        }
    }
}

/// Whether a run was started after the command, or the command is too old. The repository's
/// workflow does not report the comment of its command.
fn is_command_handled(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    comment: &ReviewComment,
    now: Timestamp,
) -> StoreResult<bool> {
    if now.since(comment.created_at) > MAX_COMMAND_AGE {
        return Ok(true);
    }
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    Ok(of_pull.iter().any(|job| {
        job.kind == JobKind::GapFill && job.reserved_at + CLOCK_SKEW >= comment.created_at
    }))
}

/// Requeues the command of a run that reached the usage limit of its model provider.
pub(super) fn requeue_command(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let is_requeued = job.kind == JobKind::GapFill && job.resumes_at.is_some();
    let Some(opened) = job.pull.as_ref().filter(|_| is_requeued) else {
        return Ok(());
    };
    let pull = PullRequestId {
        repo: job.repo.clone(),
        number: opened.number,
    };
    let started = CommentCommandState::Started {
        job: job.id.clone(),
    };
    for (key, command) in pull_feedback::commands(tx, &pull)? {
        if command.state == started {
            let waiting = CommentCommand {
                state: CommentCommandState::Waiting,
                ..command
            };
            pull_feedback::put_command(tx, &pull, &key, &waiting)?;
        }
    }
    Ok(())
}

/// Settles the findings of an ended follow-up: each is resolved, or waits for the next run. Returns
/// the number of findings that are abandoned.
pub(super) fn settle_findings(tx: &WriteTx<'_>, job: &Job) -> StoreResult<usize> {
    let Some(opened) = job.pull.as_ref().filter(|_| job.kind == JobKind::FollowUp) else {
        return Ok(0);
    };
    let pull = PullRequestId {
        repo: job.repo.clone(),
        number: opened.number,
    };
    let mut abandoned = 0;
    for (key, finding) in pull_feedback::unresolved(tx, &pull)? {
        let in_progress = ReviewFindingState::InProgress {
            job: job.id.clone(),
        };
        if finding.state == in_progress {
            let after = finding.with_follow_up_result(job);
            abandoned += usize::from(after.state == ReviewFindingState::Abandoned);
            pull_feedback::put_finding(tx, &pull, &key, &after)?;
        }
    }
    Ok(abandoned)
}
