//! What the repository host tells by webhook becomes part of the ledger.
//!
//! A delivery is taken in one commit with everything that follows from it, and only then answered;
//! nobody is asked anything before. Whether an author's word counts, and whether what was said still
//! stands, is found out by [`super::follow_up`] before a run starts.

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

/// How far may the host's clock be ahead of ours?
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// For how long after a comment does a sweep still start the run that it asks for?
const LATE_COMMAND: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// Something follows from it.
    Queued,
    /// Known, and nothing to do.
    Acknowledged,
    Ignored(&'static str),
}

/// Takes a delivery, once.
///
/// # Errors
/// When it cannot be stored; the sender may send it again.
pub async fn receive(
    app: &App,
    delivery: &str,
    event: WebhookEvent,
) -> StoreResult<WebhookOutcome> {
    let (id, now) = (delivery.to_owned(), app.now());
    let taken = move |tx: &WriteTx<'_>| {
        if !webhook_deliveries::record(tx, &id, now)? {
            return Ok(WebhookOutcome::Ignored("duplicate"));
        }
        take(tx, event.clone(), now)
    };
    app.crash_plan
        .crash_if_planned(CrashPoint::HostEventReceived);
    let received = app.store.write(taken).await?;
    if received == WebhookOutcome::Queued {
        app.notifiers.follow_up.notify_one();
    }
    tracing::info!(delivery, ?received, "A webhook was taken.");
    app.crash_plan.crash_if_planned(CrashPoint::HostEventStored);
    Ok(received)
}

fn take(tx: &WriteTx<'_>, event: WebhookEvent, now: Timestamp) -> StoreResult<WebhookOutcome> {
    match event {
        WebhookEvent::Feedback(said) => note(tx, said, now),
        WebhookEvent::Withdrawn { pull, source, ids } => {
            let pull = known_as(tx, pull)?;
            take_back(tx, &pull, |remark| {
                remark.source == source && ids.contains(&remark.id)
            })?;
            if source == FeedbackSource::IssueComment {
                forget_commands(tx, &pull, &ids)?;
            }
            Ok(WebhookOutcome::Acknowledged)
        }
        WebhookEvent::ThreadReopened { pull, ids } => reopen(tx, &known_as(tx, pull)?, &ids, now),
        WebhookEvent::Merged(merged) => note_merge(tx, merged, now),
        WebhookEvent::Synchronized => Ok(WebhookOutcome::Acknowledged),
        WebhookEvent::Ignored(why) => Ok(WebhookOutcome::Ignored(why)),
    }
}

/// The pull request by the name that our mappings have for its repository: the host does not care
/// for case, and tells its own.
fn known_as(tx: &impl ReadableTx, pull: PullRequestId) -> StoreResult<PullRequestId> {
    let repo = mappings::canonical_target(tx, &pull.repo)?;
    Ok(PullRequestId {
        repo: repo.unwrap_or(pull.repo),
        ..pull
    })
}

/// The last job of a pull request that is ours: its text carries our block, and we have a job of it.
/// A run may have opened it and not told us yet.
fn ours(tx: &impl ReadableTx, pull: &PullRequestId, body: &str) -> StoreResult<Option<Job>> {
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

fn note(tx: &WriteTx<'_>, said: FeedbackEvent, now: Timestamp) -> StoreResult<WebhookOutcome> {
    let pull = known_as(tx, said.pull)?;
    if ours(tx, &pull, &said.pull_body)?.is_none() {
        return Ok(WebhookOutcome::Ignored("not our pull request"));
    }
    if !said.is_open {
        return Ok(WebhookOutcome::Ignored("the pull request is closed"));
    }
    let remark = said.comment;
    if is_own(&remark, said.is_by_pull_author) {
        return Ok(WebhookOutcome::Ignored("our own words"));
    }
    if said.is_edit {
        let (source, id) = (remark.source, remark.id);
        take_back(tx, &pull, |known| known.source == source && known.id == id)?;
    }
    if remark.review_state == Some(ReviewState::Approved) {
        take_back(tx, &pull, |known| {
            known.source == FeedbackSource::Review && known.author == remark.author
        })?;
    }
    match feedback::classify(&remark) {
        FeedbackClass::Command(_) if said.is_edit => {
            Ok(WebhookOutcome::Ignored("an edited command"))
        }
        FeedbackClass::Command(instruction) => command(tx, &pull, &remark, instruction, now),
        FeedbackClass::ChangeRequest => Ok(match add(tx, &pull, remark, now)? {
            true => WebhookOutcome::Queued,
            false => WebhookOutcome::Ignored("known"),
        }),
        FeedbackClass::Ignored(why) => Ok(WebhookOutcome::Ignored(why.as_str())),
    }
}

/// An App that opened the pull request speaks for us. A person who did may be somebody whose token we
/// use: what we write in their name carries our marker, and the rest is their own word.
fn is_own(remark: &ReviewComment, by_its_author: bool) -> bool {
    by_its_author && matches!(remark.author, FeedbackAuthor::App { .. })
}

/// Adds feedback to the ledger; false when it is there already.
fn add(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    remark: ReviewComment,
    now: Timestamp,
) -> StoreResult<bool> {
    let key = sha256_hex(&remark.fingerprint_input());
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
        ..ReviewFinding::new(remark, now)
    };
    pull_feedback::put_finding(tx, pull, &key, &finding)?;
    Ok(true)
}

/// Withdraws what waits and was said like this.
fn take_back(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    is_meant: impl Fn(&ReviewComment) -> bool,
) -> StoreResult<()> {
    for (key, finding) in pull_feedback::unresolved(tx, pull)? {
        if finding.is_waiting() && is_meant(&finding.comment) {
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
    let mut received = WebhookOutcome::Acknowledged;
    for (key, finding) in pull_feedback::findings_of_pull(tx, pull)? {
        let is_meant = finding.comment.source == FeedbackSource::ReviewComment
            && ids.contains(&finding.comment.id)
            && finding.state == ReviewFindingState::Withdrawn;
        if is_meant {
            let again = ReviewFinding {
                state: ReviewFindingState::New,
                seen_at: now,
                ..finding
            };
            pull_feedback::put_finding(tx, pull, &key, &again)?;
            received = WebhookOutcome::Queued;
        }
    }
    Ok(received)
}

/// Notes that a comment asks for a run, unless the repository's workflow has told of it before.
fn command(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    remark: &ReviewComment,
    instruction: Option<String>,
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let instruction = gap_fill::sanitize_instruction(instruction);
    let known = pull_feedback::commands(tx, pull)?;
    if known
        .iter()
        .any(|(_, one)| one.comment_id == Some(remark.id))
    {
        return Ok(WebhookOutcome::Ignored("known"));
    }
    let told_by_workflow = known.into_iter().find(|(_, one)| {
        one.comment_id.is_none()
            && one.reported_by_workflow
            && one.is_same_request(instruction.as_deref(), now)
    });
    if let Some((key, told)) = told_by_workflow {
        let same = CommentCommand {
            comment_id: Some(remark.id),
            ..told
        };
        pull_feedback::put_command(tx, pull, &key, &same)?;
        return Ok(WebhookOutcome::Ignored("known"));
    }
    let asked = CommentCommand {
        comment_id: Some(remark.id),
        author: Some(remark.author.name().to_owned()),
        instruction,
        requested_at: now,
        reported_by_workflow: false,
        state: CommentCommandState::Waiting,
    };
    pull_feedback::put_command(tx, pull, &format!("comment-{}", remark.id), &asked)?;
    Ok(WebhookOutcome::Queued)
}

fn forget_commands(tx: &WriteTx<'_>, pull: &PullRequestId, ids: &[u64]) -> StoreResult<()> {
    for (key, command) in pull_feedback::commands(tx, pull)? {
        let is_meant = command.comment_id.is_some_and(|id| ids.contains(&id));
        if is_meant && command.is_waiting() && !command.reported_by_workflow {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

fn note_merge(
    tx: &WriteTx<'_>,
    merged: MergedPullRequest,
    now: Timestamp,
) -> StoreResult<WebhookOutcome> {
    let pull = known_as(tx, merged.pull)?;
    if jobs::of_pull(tx, &pull.repo, pull.number)?.is_empty() {
        return Ok(WebhookOutcome::Ignored("not our pull request"));
    }
    let standing = PullRequestStatus::Merged {
        commit: merged.commit,
        at: now,
    };
    Ok(match close_pull(tx, &pull, standing)? {
        true => WebhookOutcome::Queued,
        false => WebhookOutcome::Ignored("known"),
    })
}

/// The pull request is over: nothing that waits is done any more, and a merge lets the ticket go. The
/// ticket itself is left as it is. False when all that is known.
pub(super) fn close_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    standing: PullRequestStatus,
) -> StoreResult<bool> {
    let mut row = pull_feedback::get_pull(tx, pull)?;
    take_back(tx, pull, |_| true)?;
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.is_waiting() {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    if row.status.as_str() == standing.as_str() {
        return Ok(false);
    }
    if matches!(standing, PullRequestStatus::Merged { .. })
        && let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop()
    {
        dedup::remove(tx, &job.issue.id)?;
    }
    row.status = standing;
    pull_feedback::put_pull(tx, pull, &row)?;
    Ok(true)
}

/// Brings the ledger up to what the host shows: what no webhook told is added, what does not stand
/// any more is withdrawn. Answers how much was added.
pub(super) fn reconcile_feedback(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    seen: &PullRequestFeedback,
    now: Timestamp,
) -> StoreResult<u64> {
    let standing = match (seen.state, &seen.merge) {
        (PullRequestState::Open, _) => PullRequestStatus::Open,
        (PullRequestState::Merged, merge) => {
            let (commit, at) = merge.clone().unwrap_or_else(|| (String::new(), now));
            PullRequestStatus::Merged { commit, at }
        }
        (PullRequestState::Closed, _) => PullRequestStatus::Closed,
    };
    if standing != PullRequestStatus::Open {
        return close_pull(tx, pull, standing).map(u64::from);
    }
    let row = pull_feedback::get_pull(tx, pull)?;
    if row.status != standing || row.draft != Some(seen.draft) {
        let row = feedback::PullRequestRecord {
            status: standing,
            draft: Some(seen.draft),
            ..row
        };
        pull_feedback::put_pull(tx, pull, &row)?;
    }
    if ours(tx, pull, &seen.body)?.is_none() {
        return Ok(0);
    }
    let mut added = 0;
    for spoken in &seen.items {
        added += u64::from(compare(tx, pull, spoken, now)?);
    }
    Ok(added)
}

/// Whether it was news.
fn compare(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    spoken: &FeedbackItem,
    now: Timestamp,
) -> StoreResult<bool> {
    let remark = &spoken.comment;
    if !spoken.is_active {
        take_back(tx, pull, |known| {
            known.source == remark.source && known.id == remark.id
        })?;
        return Ok(false);
    }
    if is_own(remark, spoken.is_by_pull_author) {
        return Ok(false);
    }
    match feedback::classify(remark) {
        // Who left the line as it was then knows that it has changed.
        FeedbackClass::ChangeRequest if !spoken.is_outdated => add(tx, pull, remark.clone(), now),
        FeedbackClass::Command(instruction) if !is_answered(tx, pull, remark, now)? => {
            let noted = command(tx, pull, remark, instruction, now)?;
            Ok(noted == WebhookOutcome::Queued)
        }
        FeedbackClass::ChangeRequest | FeedbackClass::Command(_) | FeedbackClass::Ignored(_) => {
            Ok(false)
        }
    }
}

/// Whether a run was started since the comment, or it is too old to start one for it. The workflow
/// of the repository does not say which comment it tells of.
fn is_answered(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    remark: &ReviewComment,
    now: Timestamp,
) -> StoreResult<bool> {
    if now.since(remark.created_at) > LATE_COMMAND {
        return Ok(true);
    }
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    Ok(of_pull.iter().any(|job| {
        job.kind == JobKind::GapFill && job.reserved_at + CLOCK_SKEW >= remark.created_at
    }))
}

/// A run that a person asked for met the usage limit of the model's provider: it is asked for still.
pub(super) fn requeue_command(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let is_meant = job.kind == JobKind::GapFill && job.resumes_at.is_some();
    let Some(opened) = job.pull.as_ref().filter(|_| is_meant) else {
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
            let again = CommentCommand {
                state: CommentCommandState::Waiting,
                ..command
            };
            pull_feedback::put_command(tx, &pull, &key, &again)?;
        }
    }
    Ok(())
}

/// After a follow-up has ended: what it was given is resolved, or waits for the next. Answers how
/// much was given up.
pub(super) fn settle_findings(tx: &WriteTx<'_>, job: &Job) -> StoreResult<usize> {
    let Some(opened) = job.pull.as_ref().filter(|_| job.kind == JobKind::FollowUp) else {
        return Ok(0);
    };
    let pull = PullRequestId {
        repo: job.repo.clone(),
        number: opened.number,
    };
    let mut given_up = 0;
    for (key, finding) in pull_feedback::unresolved(tx, &pull)? {
        let taken = ReviewFindingState::InProgress {
            job: job.id.clone(),
        };
        if finding.state == taken {
            let after = finding.with_follow_up_result(job);
            given_up += usize::from(after.state == ReviewFindingState::Abandoned);
            pull_feedback::put_finding(tx, &pull, &key, &after)?;
        }
    }
    Ok(given_up)
}
