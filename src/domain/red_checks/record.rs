//! Repairs of failing checks on a pull request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CiStatus, CiStop, summary};
use crate::feedback::{HeadCommit, PullRequestChecks, PullRequestReadiness};
use crate::ids::JobId;
use crate::job::{AfterCancel, Job, JobState};
use crate::report::FailureCode;
use crate::time::Timestamp;

/// Maximum number of flaky checks that are kept, the latest last.
const MAX_FLAKES: usize = 5;

/// Bounds of the time until checks that have not ended are read again.
const MIN_LOOK_DELAY: Duration = Duration::from_secs(30);
const MAX_LOOK_DELAY: Duration = Duration::from_secs(10 * 60);

/// Repairs of failing checks on a pull request. All but the flaky checks begins anew when a person pushes.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CiRecord {
    /// SHA of the head commit that was judged last.
    pub head: Option<String>,
    /// State as it is shown.
    pub status: CiStatus,
    /// Runs for failing checks since a person pushed.
    pub attempts: Vec<CiAttempt>,
    /// Reason why no run starts until a person pushes.
    pub stop: Option<CiStop>,
    /// Rerun of failed jobs on the current head commit.
    pub rerun: Option<CiRerun>,
    /// Checks that failed, and passed on the same commit when they ran again.
    pub flakes: Vec<CiFlake>,
    /// Head, base and checks at the last judgement.
    pub seen: Option<SeenChecks>,
    /// Time at which the checks are read again although nothing has changed.
    pub look_at: Option<Timestamp>,
    /// Run whose end was not considered yet.
    pub unsettled: Option<JobId>,
    /// Text of the comment on the pull request.
    pub comment: Option<String>,
    /// Name of the comment on the ticket.
    pub ticket_comment: Option<String>,
    /// Sentence about an invalid setting of the repository.
    pub settings_error: Option<String>,
}

/// Run for failing checks.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiAttempt {
    /// Job of the run.
    pub job: JobId,
    /// Fingerprint of the failure that it got.
    pub fingerprint: String,
    /// SHA of the commit that it pushed, if it pushed one.
    #[serde(default)]
    pub commit: Option<String>,
}

/// Rerun of the failed jobs of a head commit.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiRerun {
    /// SHA of the head commit.
    pub head: String,
    /// Ids of the workflow runs.
    pub runs: Vec<u64>,
    /// Names of the checks that failed.
    pub checks: Vec<String>,
    /// Time of the request.
    pub at: Timestamp,
    /// Whether its end was considered.
    #[serde(default)]
    pub is_settled: bool,
}

/// Checks that failed and passed on the same commit.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiFlake {
    /// SHA of the commit.
    pub head: String,
    /// Names of the checks.
    pub checks: Vec<String>,
    /// Time at which it was noticed.
    pub at: Timestamp,
}

/// Head, base and checks of a pull request at its last judgement.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenChecks {
    head: String,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    checks: Option<PullRequestChecks>,
}

impl SeenChecks {
    fn of(readiness: &PullRequestReadiness) -> Option<Self> {
        Some(Self {
            head: readiness.head.as_ref()?.sha.clone(),
            base: readiness.base.clone(),
            checks: readiness.checks,
        })
    }
}

impl CiRecord {
    /// Returns whether the checks may need a decision: something has changed since the last one, or a wait is over.
    /// Costs nothing for a pull request whose checks have not changed.
    pub fn is_due(&self, readiness: &PullRequestReadiness, now: Timestamp) -> bool {
        self.must_be_read(readiness, now) || matches!(self.status, CiStatus::Due { .. })
    }

    /// Returns whether something has changed since the last decision, or a wait is over. If not, the checks may still
    /// be due for a run that waits.
    pub fn must_be_read(&self, readiness: &PullRequestReadiness, now: Timestamp) -> bool {
        let seen = SeenChecks::of(readiness);
        let has_changed = seen.is_some() && seen != self.seen;
        has_changed || self.unsettled.is_some() || self.look_at.is_some_and(|at| at <= now)
    }

    /// Returns the record for the current head commit. A commit of a person begins a new epoch: attempts and the
    /// reason to stop are forgotten. Commits of runs, and updates of the branch that the service requested, do not.
    pub fn at_head(mut self, head: &HeadCommit, is_ours: bool) -> Self {
        if self.head.as_deref() == Some(head.sha.as_str()) {
            return self;
        }
        let is_continued = is_ours && self.head.is_some();
        // Until the end of a repair is considered, no other run works on the branch.
        if let Some(attempt) = self.attempts.last_mut()
            && self.unsettled.as_ref() == Some(&attempt.job)
            && head.is_of_run()
        {
            attempt.commit = Some(head.sha.clone());
        }
        self.rerun = self.rerun.filter(|rerun| rerun.head == head.sha);
        self.head = Some(head.sha.clone());
        if is_continued {
            return self;
        }
        Self {
            attempts: Vec::new(),
            stop: None,
            status: match self.status {
                CiStatus::Quiet => CiStatus::Quiet,
                _ => CiStatus::Unjudged,
            },
            ..self
        }
    }

    /// Returns the record after a judgement of these checks.
    pub fn judged(self, readiness: &PullRequestReadiness, status: CiStatus) -> Self {
        Self {
            seen: SeenChecks::of(readiness),
            look_at: None,
            unsettled: None,
            status,
            ..self
        }
    }

    /// Returns the record while checks have not ended. They are read again the later the older the head commit is.
    pub fn waiting(
        self,
        readiness: &PullRequestReadiness,
        head_seen_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let age = head_seen_at.map_or(Duration::ZERO, |at| now.since(at));
        let delay = (age / 10).clamp(MIN_LOOK_DELAY, MAX_LOOK_DELAY);
        Self {
            seen: SeenChecks::of(readiness),
            look_at: Some(now + delay),
            unsettled: None,
            ..self
        }
    }

    /// Returns the record after an operator requested another run: earlier attempts no longer count.
    pub fn restarted(self) -> Self {
        Self {
            attempts: Vec::new(),
            stop: None,
            status: CiStatus::Unjudged,
            seen: None,
            ..self
        }
    }

    /// Returns the checks of an unsettled rerun on the current head that have passed: they are flaky. `failing` are
    /// the names of the checks that fail now.
    pub fn flaky_checks(&self, failing: &[String]) -> Vec<String> {
        let rerun = self.rerun.as_ref().filter(|rerun| !rerun.is_settled);
        let rerun = rerun.filter(|rerun| Some(&rerun.head) == self.head.as_ref());
        let checks = rerun.map(|rerun| rerun.checks.clone()).unwrap_or_default();
        let passed = checks.into_iter().filter(|name| !failing.contains(name));
        passed.collect()
    }

    /// Returns the record after the end of a rerun, with the checks that turned out to be flaky.
    pub fn with_rerun_settled(mut self, flaky: Vec<String>, now: Timestamp) -> Self {
        if let Some(rerun) = &mut self.rerun {
            rerun.is_settled = true;
            if !flaky.is_empty() {
                let excess = (self.flakes.len() + 1).saturating_sub(MAX_FLAKES);
                self.flakes.drain(..excess);
                self.flakes.push(CiFlake {
                    head: rerun.head.clone(),
                    checks: flaky,
                    at: now,
                });
            }
        }
        self
    }

    /// Returns whether an earlier run since the last push of a person got the same failure.
    pub fn has_seen(&self, fingerprint: &str, jobs: &[Job]) -> bool {
        self.attempts
            .iter()
            .any(|attempt| attempt.fingerprint == fingerprint && is_counted(attempt, jobs))
    }

    /// Returns the record with an attempt that starts now. Attempts that do not count are forgotten.
    pub fn with_attempt(mut self, attempt: CiAttempt, jobs: &[Job]) -> Self {
        self.attempts.retain(|earlier| is_counted(earlier, jobs));
        self.unsettled = Some(attempt.job.clone());
        self.attempts.push(attempt);
        self
    }

    /// Number of attempts that count: not those that an operator cancelled for a retry, or that waited for a usage
    /// limit of their model provider.
    pub(super) fn counted_attempts(&self, jobs: &[Job]) -> u32 {
        let counted = self.attempts.iter();
        let counted = counted.filter(|attempt| is_counted(attempt, jobs)).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// Returns whether an operator cancelled the last attempt without a retry.
    pub(super) fn is_cancelled(&self, jobs: &[Job]) -> bool {
        let last = self.attempts.last().and_then(|last| job_of(last, jobs));
        last.and_then(Job::after_cancel) == Some(AfterCancel::Stop)
    }

    /// Returns the state of the checks as a sentence without a full stop. `None` if there is nothing to say.
    pub fn message(&self) -> Option<String> {
        self.status.message().or_else(|| {
            let flake = self.flakes.last();
            let flake = flake.filter(|flake| Some(&flake.head) == self.head.as_ref())?;
            let checks = summary(&flake.checks);
            Some(format!("Flaky: {checks} passed when it ran again"))
        })
    }
}

fn job_of<'a>(attempt: &CiAttempt, jobs: &'a [Job]) -> Option<&'a Job> {
    jobs.iter().find(|job| job.id == attempt.job)
}

/// Returns whether an attempt counts.
fn is_counted(attempt: &CiAttempt, jobs: &[Job]) -> bool {
    job_of(attempt, jobs).is_none_or(|job| {
        let is_cancelled = matches!(
            &job.state,
            JobState::Failed {
                code: Some(FailureCode::Cancelled),
                ..
            }
        );
        !is_cancelled && job.resumes_at.is_none()
    })
}
