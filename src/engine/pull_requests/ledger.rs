//! Feedback ledger: findings of reviewers and commands in comments, by pull request.

use crate::pull_requests::{branch_updates, checks, gap_fill, merge};
use crate::take_over;
use domain::crypto::sha256_hex;
use domain::feedback::{
    CommentCommand, CommentCommandState, FeedbackAuthor, FeedbackSource, PullRequestId,
    PullRequestMeta, PullRequestRecord, PullRequestStatus, ReviewComment, ReviewFinding,
    ReviewFindingState,
};
use domain::job::{AfterCancel, Job, JobKind};
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, changed_files, dedup, jobs, pull_feedback};

/// Returns the last job of a pull request if this service opened it: its description has our
/// metadata block, and a job exists for it. A run may have opened it and not reported it yet.
pub(super) fn own_job(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    body: &str,
) -> StoreResult<Option<Job>> {
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

/// Whether a comment is from this service. Comments of an App that opened the pull request are its
/// own. A person who opened it may be the owner of our token: comments of the service carry a
/// marker, and all other comments are the person's own.
pub(super) fn is_own_comment(comment: &ReviewComment, is_by_pull_author: bool) -> bool {
    is_by_pull_author && matches!(comment.author, FeedbackAuthor::App { .. })
}

/// Adds a finding to the ledger. Returns `false` if it is known.
pub(super) fn add_finding(
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
pub(super) fn withdraw(
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

/// Reopens withdrawn findings of review comments. Returns whether there were any.
pub(super) fn reopen(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    ids: &[u64],
    now: Timestamp,
) -> StoreResult<bool> {
    let mut is_reopened = false;
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
            is_reopened = true;
        }
    }
    Ok(is_reopened)
}

/// Records a command of a comment, unless the repository's workflow has reported it before. Returns
/// `false` if it is known.
pub(super) fn record_command(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    comment: &ReviewComment,
    instruction: Option<String>,
    now: Timestamp,
) -> StoreResult<bool> {
    let instruction = gap_fill::sanitize_instruction(instruction);
    let known = pull_feedback::commands(tx, pull)?;
    if known
        .iter()
        .any(|(_, one)| one.comment_id == Some(comment.id))
    {
        return Ok(false);
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
        return Ok(false);
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
    Ok(true)
}

/// Removes the waiting commands of comments.
pub(super) fn remove_commands(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    ids: &[u64],
) -> StoreResult<()> {
    for (key, command) in pull_feedback::commands(tx, pull)? {
        let is_match = command.comment_id.is_some_and(|id| ids.contains(&id));
        if is_match && command.is_waiting() && !command.reported_by_workflow {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

/// Records that a pull request is closed: waiting findings are withdrawn and waiting commands
/// removed, and a take-over of the issue ends. A merge also removes the dedup entry of the issue, and the files that
/// its plan declares. The ticket does not change. Its merge by policy ends. Returns `false` if the status is known.
pub(super) fn close_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    status: PullRequestStatus,
    now: Timestamp,
) -> StoreResult<bool> {
    withdraw(tx, pull, |_| true)?;
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.is_waiting() {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    let mut row = pull_feedback::get_pull(tx, pull)?;
    if row.status.as_str() == status.as_str() {
        return Ok(false);
    }
    if let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop() {
        take_over::end_with_pull(tx, &job.issue.id, pull, &status, now)?;
        checks::remove_ticket_comment(tx, &job.issue, &mut row.ci, now)?;
        if matches!(status, PullRequestStatus::Merged { .. }) {
            dedup::remove(tx, &job.issue.id)?;
            changed_files::put_declared(tx, &job.issue.id, &Vec::new())?;
        }
    }
    row.status = status.clone();
    pull_feedback::put_pull(tx, pull, &row)?;
    merge::end_with_pull(tx, pull, &status, now)?;
    Ok(true)
}

/// Requeues the command of a run that reached the usage limit of its model provider, or that an
/// operator cancelled with a retry.
pub(crate) fn requeue_command(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let is_requeued = job.resumes_at.is_some() || job.after_cancel() == Some(AfterCancel::Retry);
    match (PullRequestId::of_job(job), job.kind) {
        (Some(pull), JobKind::GapFill) if is_requeued => retry_command(tx, &pull, job).map(drop),
        _ => Ok(()),
    }
}

/// Makes the work of an ended run on a pull request wait for another run. Returns `false` if
/// nothing of it is left.
pub(crate) fn retry_work(tx: &WriteTx<'_>, pull: &PullRequestId, job: &Job) -> StoreResult<bool> {
    match job.kind {
        JobKind::GapFill => retry_command(tx, pull, job),
        JobKind::FollowUp => retry_findings(tx, pull, job),
        JobKind::CiFix => retry_repair(tx, pull),
        JobKind::Conflict => branch_updates::forget_attempt(tx, pull, job),
        JobKind::Planning | JobKind::Implementation => Ok(false),
    }
}

/// Lets runs for failing checks start again. Returns `false` if the pull request is closed.
fn retry_repair(tx: &WriteTx<'_>, pull: &PullRequestId) -> StoreResult<bool> {
    let row = pull_feedback::get_pull(tx, pull)?;
    let is_open = row.status == PullRequestStatus::Open;
    if is_open {
        let ci = row.ci.clone().restarted();
        pull_feedback::put_pull(tx, pull, &PullRequestRecord { ci, ..row })?;
    }
    Ok(is_open)
}

fn retry_command(tx: &WriteTx<'_>, pull: &PullRequestId, job: &Job) -> StoreResult<bool> {
    let started = CommentCommandState::Started {
        job: job.id.clone(),
    };
    let mut is_found = false;
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.state == started {
            let waiting = CommentCommand {
                state: CommentCommandState::Waiting,
                ..command
            };
            pull_feedback::put_command(tx, pull, &key, &waiting)?;
            is_found = true;
        }
    }
    Ok(is_found)
}

fn retry_findings(tx: &WriteTx<'_>, pull: &PullRequestId, job: &Job) -> StoreResult<bool> {
    let mut is_found = false;
    for (key, finding) in pull_feedback::findings_of_pull(tx, pull)? {
        if finding.was_taken_by(&job.id) && finding.state != ReviewFindingState::Withdrawn {
            pull_feedback::put_finding(tx, pull, &key, &finding.retried())?;
            is_found = true;
        }
    }
    Ok(is_found)
}

/// Settles the findings of an ended follow-up: each is resolved, or waits for the next run. Returns
/// the number of findings that are abandoned.
pub(crate) fn settle_findings(tx: &WriteTx<'_>, job: &Job) -> StoreResult<usize> {
    let Some(pull) = PullRequestId::of_job(job).filter(|_| job.kind == JobKind::FollowUp) else {
        return Ok(0);
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
