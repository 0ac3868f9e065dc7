//! Pull request in the store, as far as its merge by policy depends on it.

use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::job::Job;
use domain::mapping::Mapping;
use domain::merge_policy::{LocalState, MergePolicy};
use domain::time::Timestamp;
use std::time::Duration;
use store::{ReadableTx, StoreResult, jobs, mappings, pull_feedback, take_overs};

use super::super::run;

/// Pull request in the store.
pub(super) struct StoredMerge {
    /// Record of the pull request.
    pub record: PullRequestRecord,
    /// Policy of its project. The default, which permits no merge, without a project.
    pub policy: MergePolicy,
    /// Default branch of its project.
    pub default_branch: String,
    /// Its project. `None` if no project uses the repository any more.
    pub mapping: Option<Mapping>,
    /// What in the service speaks against a merge.
    pub local: LocalState,
}

impl StoredMerge {
    /// Reads the state. `None` if the pull request has no job.
    pub(super) fn read(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<Self>> {
        let Some(job) = jobs::latest_of_pull(tx, pull)? else {
            return Ok(None);
        };
        let record = pull_feedback::get_pull(tx, pull)?;
        Self::of(tx, pull, &job, record).map(Some)
    }

    /// Reads the state of a pull request with this latest job and record.
    pub(super) fn of(
        tx: &impl ReadableTx,
        pull: &PullRequestId,
        job: &Job,
        record: PullRequestRecord,
    ) -> StoreResult<Self> {
        let mapping = mappings::get(tx, &job.team)?;
        let mapping = mapping.filter(|mapping| mapping.target_repo() == pull.repo);
        let findings = pull_feedback::unresolved(tx, pull)?.len();
        let commands = pull_feedback::commands(tx, pull)?;
        let commands = commands.iter().filter(|(_, one)| one.is_waiting()).count();
        Ok(Self {
            record,
            local: LocalState {
                is_paused: mapping.as_ref().is_some_and(|mapping| mapping.paused),
                taken_over: take_overs::get(tx, &job.issue.id)?.map(|one| one.sentence()),
                is_busy: run::active_run(tx, job)?.is_some(),
                open_feedback: findings + commands,
            },
            policy: mapping.as_ref().map(policy).unwrap_or_default(),
            default_branch: mapping
                .as_ref()
                .map(|mapping| mapping.default_branch.clone())
                .unwrap_or_default(),
            mapping,
        })
    }

    /// Returns the SHA of the head commit in the last report of GitHub.
    pub(super) fn head(&self) -> Option<&str> {
        let head = self.record.readiness.head.as_ref();
        head.map(|head| head.sha.as_str())
    }

    /// Returns the time since the service first saw the head commit.
    pub(super) fn head_age(&self, now: Timestamp) -> Duration {
        let seen_at = self.record.head_seen_at;
        seen_at.map_or(Duration::MAX, |at| now.since(at))
    }
}

fn policy(mapping: &Mapping) -> MergePolicy {
    mapping.merge.clone()
}
