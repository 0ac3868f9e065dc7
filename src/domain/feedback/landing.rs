//! Gate of the automatic work that brings an open pull request to its merge.

use super::{CommentCommand, PullRequestRecord, PullRequestStatus, ReviewFinding};

/// Returns whether automatic work on the branch of a pull request may start: it is open, no run is active on the
/// branch, and nothing that people requested waits.
pub fn may_work_automatically<'a>(
    record: &PullRequestRecord,
    is_busy: bool,
    findings: impl IntoIterator<Item = &'a ReviewFinding>,
    commands: impl IntoIterator<Item = &'a CommentCommand>,
) -> bool {
    let is_requested = findings.into_iter().any(ReviewFinding::is_waiting)
        || commands.into_iter().any(CommentCommand::is_waiting);
    record.status == PullRequestStatus::Open && !is_busy && !is_requested
}
