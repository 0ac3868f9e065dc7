//! Issues that people have taken over.

use domain::feedback::PullRequestId;
use domain::ids::IssueId;
use domain::take_over::TakeOver;

use super::change_feed::StoreChange;
use super::table::{ReadableTx, WriteTx};
use super::tables::TAKE_OVERS;
use super::{StoreResult, jobs};

/// All issues that people have taken over.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<TakeOver>> {
    TAKE_OVERS.collect(tx, .., |_, take_over| take_over)
}

/// Take-over of an issue.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<TakeOver>> {
    TAKE_OVERS.get(tx, issue.as_str())
}

/// Take-over of the issue of a pull request.
pub fn of_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<TakeOver>> {
    match jobs::of_pull(tx, &pull.repo, pull.number)?.last() {
        Some(job) => get(tx, &job.issue.id),
        None => Ok(None),
    }
}

/// Inserts or replaces the take-over of an issue.
pub fn put(tx: &WriteTx<'_>, take_over: &TakeOver) -> StoreResult<()> {
    let issue = &take_over.issue.id;
    TAKE_OVERS.put(tx, issue.as_str(), take_over)?;
    publish(tx, issue)
}

/// Removes the take-over of an issue. Returns whether there was one.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<bool> {
    let is_removed = TAKE_OVERS.remove(tx, issue.as_str())?;
    publish(tx, issue)?;
    Ok(is_removed)
}

/// Publishes a change of the latest job: what is shown about it has changed.
fn publish(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    if let Some(job) = jobs::of_issue(tx, issue)?.pop() {
        tx.publish(StoreChange::Job(job.id));
    }
    Ok(())
}
