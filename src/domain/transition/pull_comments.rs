//! Comments on the pull request that a run worked on.

use crate::comments;
use crate::effect::{Effect, PullCommentStyle};
use crate::job::{Job, JobKind};

/// Name of the comment about a conflict that a run could not resolve.
const CONFLICT_COMMENT: &str = "conflict";

/// Returns a separate comment.
pub(super) fn pull_comment(job: &Job, body: String) -> Option<Effect> {
    with_style(job, PullCommentStyle::New, body)
}

/// Returns the comment about a failed run. The failures of a pull request's conflicts share one.
pub(super) fn failed_on_pull(job: &Job, comment: String) -> Option<Effect> {
    if job.kind != JobKind::Conflict {
        return pull_comment(job, comment);
    }
    let name = CONFLICT_COMMENT.to_owned();
    let body = comments::with_conflicts(comment, job);
    with_style(job, PullCommentStyle::Sticky { name }, body)
}

fn with_style(job: &Job, style: PullCommentStyle, body: String) -> Option<Effect> {
    let pull = job.pull.as_ref()?;
    Some(Effect::PullComment {
        repo: job.repo.clone(),
        number: pull.number,
        style,
        body,
    })
}
