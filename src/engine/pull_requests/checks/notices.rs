//! Comments about failing checks: one on the pull request, updated in place, and one on the ticket.

use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::issue::IssueRef;
use domain::red_checks::{CiRecord, CiStatus};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, outbox, pull_feedback};

use crate::pull_requests::stored_pull::StoredPull;

/// Name of the comment on the pull request.
const PULL_COMMENT: &str = "checks";

/// Stores the record, and updates the comments if they say something else now.
pub(super) fn put(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    stored: &StoredPull,
    mut ci: CiRecord,
    now: Timestamp,
) -> StoreResult<()> {
    let body = comments::checks_on_pull(&ci, &stored.jobs);
    if let Some(body) = body.filter(|body| Some(body) != ci.comment.as_ref()) {
        let comment = Effect::PullComment {
            repo: pull.repo.clone(),
            number: pull.number,
            style: PullCommentStyle::Sticky {
                name: PULL_COMMENT.to_owned(),
            },
            body: body.clone(),
        };
        outbox::push(tx, &comment, now)?;
        ci.comment = Some(body);
    }
    let name = ticket_comment_name(pull, &ci);
    // A repair that is being prepared replaces nothing: its comment follows when it starts.
    let is_settled = !matches!(ci.status, CiStatus::Due { .. } | CiStatus::Rerunning { .. });
    if is_settled && name != ci.ticket_comment {
        let issue = &stored.last_job.issue;
        remove_ticket_comment(tx, issue, &mut ci, now)?;
        let body = stored.last_job.pull.as_ref();
        let body = body.and_then(|pull| comments::checks_on_ticket(&ci.status, pull));
        if let (Some(name), Some(body)) = (name, body) {
            put_ticket_comment(tx, issue, name.clone(), Some(body), now)?;
            ci.ticket_comment = Some(name);
        }
    }
    let row = pull_feedback::get_pull(tx, pull)?;
    pull_feedback::put_pull(tx, pull, &PullRequestRecord { ci, ..row })
}

/// Removes the comment on the ticket, if there is one.
pub(in crate::pull_requests) fn remove_ticket_comment(
    tx: &WriteTx<'_>,
    issue: &IssueRef,
    ci: &mut CiRecord,
    now: Timestamp,
) -> StoreResult<()> {
    match ci.ticket_comment.take() {
        Some(old) => put_ticket_comment(tx, issue, old, None, now),
        None => Ok(()),
    }
}

/// Returns the name of the comment on the ticket: another one for each attempt, because a comment cannot be
/// changed.
fn ticket_comment_name(pull: &PullRequestId, ci: &CiRecord) -> Option<String> {
    let PullRequestId { repo, number } = pull;
    let head = ci.head.as_deref().unwrap_or_default();
    match &ci.status {
        CiStatus::Repairing { .. } => {
            let job = &ci.attempts.last()?.job;
            Some(format!("checks:{repo}#{number}:{job}"))
        }
        CiStatus::Stopped { .. } => Some(format!("checks:{repo}#{number}:stopped:{head}")),
        CiStatus::Quiet
        | CiStatus::Unjudged
        | CiStatus::OnBase { .. }
        | CiStatus::Rerunning { .. }
        | CiStatus::Due { .. } => None,
    }
}

fn put_ticket_comment(
    tx: &WriteTx<'_>,
    issue: &IssueRef,
    name: String,
    body: Option<String>,
    now: Timestamp,
) -> StoreResult<()> {
    let issue = issue.clone();
    outbox::push(tx, &Effect::WaitingComment { issue, name, body }, now).map(drop)
}
