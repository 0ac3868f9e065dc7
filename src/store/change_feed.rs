//! Feed of the changes that commits made. Subscribers may miss changes.

use domain::ids::{IssueKey, JobId};

/// Maximum number of changes queued per subscriber. A subscriber that is further behind has missed changes
/// and must read everything again.
pub(super) const CHANGE_FEED_CAPACITY: usize = 1024;

/// Change made by a commit. It names the changed object, not its new state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreChange {
    /// A job was added or changed.
    Job(JobId),
    /// A step or log lines of a job were reported.
    Step(JobId),
    /// The decision about an issue changed.
    Decision(IssueKey),
    /// Outbox entries were added, changed or removed.
    Outbox,
}
