//! Decision about the next step when checks fail.

use std::time::Duration;

use super::{CiRecord, CiStatus, CiStop, HeadCheck, HeadVerdict, names};
use crate::ci_settings::CiSettings;
use crate::feedback::{ChecksState, PullRequestReadiness};
use crate::job::Job;
use crate::time::Timestamp;

/// Time after a push in which its checks may begin.
const CHECKS_DELAY: Duration = Duration::from_secs(10 * 60);

/// Time after a rerun in which the host may still list the checks of the first attempt.
const LISTING_DELAY: Duration = Duration::from_secs(5 * 60);

/// Run of a workflow of GitHub Actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionsRun {
    /// Id.
    pub id: u64,
    /// Attempt, from 1.
    pub attempt: u64,
    /// Whether it has ended.
    pub is_completed: bool,
    /// Whether it has ended with success.
    pub has_succeeded: bool,
}

/// Facts about a head commit with failing checks.
#[derive(Debug, Clone, Copy)]
pub struct CiSituation<'a> {
    /// Settings of the repository.
    pub settings: &'a CiSettings,
    /// Jobs of the pull request.
    pub jobs: &'a [Job],
    /// Workflow runs of the failing checks, and of the rerun on this head commit.
    pub runs: &'a [ActionsRun],
    /// Whether the request for a rerun is still to be sent.
    pub is_rerun_pending: bool,
    /// Current time.
    pub now: Timestamp,
}

/// Next step about the checks of a head commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CiStep {
    /// Nothing is decided before more checks have ended.
    Wait,
    /// Nothing to do: the state is recorded.
    Settle(CiStatus),
    /// Failed jobs run again.
    Rerun {
        /// Ids of the workflow runs.
        runs: Vec<u64>,
        /// Names of the checks.
        checks: Vec<String>,
    },
    /// A run repairs the failure, unless an earlier one got the same failure.
    Repair {
        /// Names of the checks.
        checks: Vec<String>,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        of: u32,
    },
}

impl CiRecord {
    /// Decides without a request. `None` if the checks must be read.
    pub fn next_step_unread(
        &self,
        readiness: &PullRequestReadiness,
        head_seen_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<CiStep> {
        let is_new = head_seen_at.is_some_and(|at| now.since(at) < CHECKS_DELAY);
        match readiness.checks.map(|checks| checks.state) {
            Some(ChecksState::Success) => Some(CiStep::Settle(CiStatus::Quiet)),
            // Those that ran have passed. Whether the failure is gone shows at the end.
            Some(ChecksState::Pending) => Some(CiStep::Settle(self.status.clone())),
            // The checks of a new commit may not have begun.
            None if is_new && self.status != CiStatus::Quiet => Some(CiStep::Wait),
            None => Some(CiStep::Settle(CiStatus::Quiet)),
            Some(ChecksState::Failure) => None,
        }
    }

    /// Decides the next step.
    pub fn next_step(&self, verdict: &HeadVerdict, situation: &CiSituation<'_>) -> CiStep {
        let (ours, inherited) = match verdict {
            HeadVerdict::Pending => return CiStep::Wait,
            HeadVerdict::Green => return CiStep::Settle(CiStatus::Quiet),
            HeadVerdict::Red { ours, inherited } => (ours, inherited),
        };
        if ours.is_empty() {
            let checks = inherited.clone();
            return CiStep::Settle(CiStatus::OnBase { checks });
        }
        let checks = names(ours);
        if let Some(reason) = self.stop.filter(|reason| *reason != CiStop::Off) {
            return CiStep::Settle(CiStatus::Stopped { checks, reason });
        }
        if let Some(step) = self.rerun_step(ours, &checks, situation) {
            return step;
        }
        let stopped = |reason| {
            let checks = checks.clone();
            CiStep::Settle(CiStatus::Stopped { checks, reason })
        };
        let of = situation.settings.attempts;
        let attempt = self.counted_attempts(situation.jobs) + 1;
        match () {
            () if of == 0 => stopped(CiStop::Off),
            () if self.is_cancelled(situation.jobs) => stopped(CiStop::Cancelled),
            () if attempt > of => stopped(CiStop::AttemptsUsed),
            () => CiStep::Repair {
                checks,
                attempt,
                of,
            },
        }
    }

    /// Decides about a rerun. `None` if none is possible or the last one has ended.
    fn rerun_step(
        &self,
        ours: &[HeadCheck],
        checks: &[String],
        situation: &CiSituation<'_>,
    ) -> Option<CiStep> {
        let run_ids = ours.iter().filter_map(|check| check.job?.run);
        let mut run_ids: Vec<u64> = run_ids.collect();
        run_ids.sort_unstable();
        run_ids.dedup();
        let requested = self
            .rerun
            .as_ref()
            .filter(|rerun| Some(&rerun.head) == self.head.as_ref());
        let relevant: Vec<&ActionsRun> = situation
            .runs
            .iter()
            .filter(|run| {
                run_ids.contains(&run.id)
                    || requested.is_some_and(|rerun| rerun.runs.contains(&run.id))
            })
            .collect();
        if situation.is_rerun_pending || relevant.iter().any(|run| !run.is_completed) {
            return Some(CiStep::Wait);
        }
        if let Some(rerun) = requested {
            // The host still lists the first attempt of a run that has succeeded since.
            let is_outdated = relevant
                .iter()
                .any(|run| run_ids.contains(&run.id) && run.has_succeeded);
            let is_recent = situation.now.since(rerun.at) < LISTING_DELAY;
            return (is_outdated && is_recent).then_some(CiStep::Wait);
        }
        let runs: Vec<u64> = relevant
            .iter()
            .filter(|run| run.attempt <= 1 && run_ids.contains(&run.id))
            .map(|run| run.id)
            .collect();
        let is_possible = situation.settings.rerun && !runs.is_empty();
        is_possible.then(|| CiStep::Rerun {
            runs,
            checks: checks.to_vec(),
        })
    }
}
