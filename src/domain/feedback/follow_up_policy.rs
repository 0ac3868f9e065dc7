//! Rate of the runs that the service starts by itself on open pull requests.

use std::time::Duration;

use crate::job::Job;
use crate::merge_report::MergeReport;
use crate::time::Timestamp;

/// Rate of automatic follow-up runs.
#[derive(Debug, Clone, Copy)]
pub struct FollowUpPolicy {
    /// Time without new feedback before a follow-up run starts. Default 30 seconds.
    pub quiet_period: Duration,
    /// Maximum time between the first feedback and the follow-up run, even if more feedback
    /// arrives. Default 5 minutes.
    pub max_wait: Duration,
    /// Time between a failed follow-up run and the next. Default 10 minutes.
    pub failure_backoff: Duration,
    /// Maximum number of automatic runs on a pull request in [`FollowUpPolicy::window`]: for feedback, failing
    /// checks and conflicts together. Default 4.
    pub max_follow_ups: usize,
    /// Period of [`FollowUpPolicy::max_follow_ups`]. Default 24 hours.
    pub window: Duration,
}

impl Default for FollowUpPolicy {
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_secs(30),
            max_wait: Duration::from_secs(5 * 60),
            failure_backoff: Duration::from_secs(10 * 60),
            max_follow_ups: 4,
            window: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Returns the time at which the service may start another automatic run on a pull request, if the daily limit is
/// reached. Runs that waited for a usage limit of their model provider do not count, nor do merges of the base branch
/// without conflicts.
pub fn automatic_runs_resume_at(
    policy: &FollowUpPolicy,
    jobs: &[Job],
    now: Timestamp,
) -> Option<Timestamp> {
    let mut recent: Vec<Timestamp> = jobs
        .iter()
        .filter(|job| job.kind.is_automatic() && job.resumes_at.is_none())
        .filter(|job| !job.merge.as_ref().is_some_and(MergeReport::is_clean))
        .map(|job| job.reserved_at)
        .filter(|at| now.since(*at) < policy.window)
        .collect();
    recent.sort();
    let excess = recent.len().checked_sub(policy.max_follow_ups)?;
    Some(recent[excess] + policy.window)
}
