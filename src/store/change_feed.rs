//! What commits changed, for those who watch. Nothing depends on hearing it.

use domain::ids::{IssueKey, JobId};

/// How many pieces of news may wait for a listener? One that is further behind has missed some and
/// looks at everything again.
pub(super) const CHANGE_FEED_CAPACITY: usize = 1024;

/// Something that a commit changed. It says where to look, not what is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreChange {
    /// A job is new, or another one than before.
    Job(JobId),
    /// A job's step was reported, or lines of its log.
    Step(JobId),
    /// Something else was decided about an issue.
    Decision(IssueKey),
    /// What is owed to the outside, or was given up.
    Outbox,
}
