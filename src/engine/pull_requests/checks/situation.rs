//! Facts about the checks of a head commit, read from GitHub.

use std::collections::BTreeSet;

use domain::effect::{Effect, pull_queue_key};
use domain::feedback::PullRequestId;
use domain::red_checks::{
    ActionsRun, CheckOutcome, CiRecord, CiSituation, CiStep, HeadCheck, HeadVerdict, judge, names,
};
use domain::time::Timestamp;
use store::outbox;
use vendors::http::VendorError;
use vendors::scm::GitHub;

use super::base_checks;
use crate::app::App;
use crate::pull_requests::stored_pull::StoredPull;
use crate::repo_settings::{self, RepoSettings};

/// Maximum number of workflow runs that are looked up.
const MAX_RUNS: usize = 10;

/// Facts about the checks of a head commit.
pub(super) struct ReadSituation {
    /// Settings of the repository.
    pub settings: RepoSettings,
    /// Result of all checks together.
    pub verdict: HeadVerdict,
    runs: Vec<ActionsRun>,
    is_rerun_pending: bool,
}

impl ReadSituation {
    /// Returns the facts for the decision.
    pub(super) fn situation<'a>(
        &'a self,
        stored: &'a StoredPull,
        now: Timestamp,
    ) -> CiSituation<'a> {
        CiSituation {
            settings: &self.settings.ci,
            jobs: &stored.jobs,
            runs: &self.runs,
            is_rerun_pending: self.is_rerun_pending,
            now,
        }
    }

    /// Returns the checks that passed in the rerun. `None` while its end is not known.
    pub(super) fn flaky_checks(&self, ci: &CiRecord, step: &CiStep) -> Option<Vec<String>> {
        let failing = match (&self.verdict, step) {
            (_, CiStep::Wait | CiStep::Rerun { .. }) | (HeadVerdict::Pending, _) => return None,
            (HeadVerdict::Green, _) => Vec::new(),
            (HeadVerdict::Red { ours, inherited }, _) => [names(ours), inherited.clone()].concat(),
        };
        Some(ci.flaky_checks(&failing))
    }

    /// Returns the failing checks that are the pull request's.
    pub(super) fn into_failing(self) -> Vec<HeadCheck> {
        match self.verdict {
            HeadVerdict::Red { ours, .. } => ours,
            HeadVerdict::Pending | HeadVerdict::Green => Vec::new(),
        }
    }
}

/// Reads the checks of a head commit, and what decides about them. The runs of a rerun are read first: if they have
/// ended, the checks read afterwards are those of the rerun.
pub(super) async fn read(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: &StoredPull,
    ci: &CiRecord,
    head: &str,
) -> Result<ReadSituation, String> {
    let message = |error: VendorError| error.to_string();
    let settings = repo_settings::fetch(github, &stored.mapping).await?;
    let is_rerun_pending = is_rerun_pending(app, pull, head)?;
    let mut runs = Vec::new();
    let rerun = ci.rerun.as_ref().filter(|rerun| rerun.head == head);
    for id in rerun.iter().flat_map(|rerun| &rerun.runs).take(MAX_RUNS) {
        let run = github.checking_run(&pull.repo, *id, head).await;
        runs.extend(run.map_err(message)?);
    }
    let mut checks = github
        .head_checks(&pull.repo, head)
        .await
        .map_err(message)?;
    checks.retain(|check| !settings.ci.ignores(&check.name));
    let is_conditional = |check: &HeadCheck| check.outcome == CheckOutcome::FailedIfRequired;
    let has_pending = checks
        .iter()
        .any(|check| check.outcome == CheckOutcome::Pending);
    let required = match checks.iter().any(is_conditional) && !has_pending {
        true => github.required_checks(&pull.repo, pull.number).await,
        false => Ok(BTreeSet::new()),
    };
    let required = required.map_err(message)?;
    let mut verdict = judge(&checks, &settings.ci, &required, &BTreeSet::new());
    if let (HeadVerdict::Red { .. }, Some(base)) = (&verdict, &stored.record.readiness.base) {
        let on_base = base_checks::failing(app, github, &pull.repo, base).await?;
        verdict = judge(&checks, &settings.ci, &required, &on_base);
    }
    if let HeadVerdict::Red { ours, .. } = &mut verdict
        && (settings.ci.rerun || rerun.is_some())
    {
        find_runs(github, pull, head, ours, &mut runs).await?;
    }
    Ok(ReadSituation {
        settings,
        verdict,
        runs,
        is_rerun_pending,
    })
}

fn is_rerun_pending(app: &App, pull: &PullRequestId, head: &str) -> Result<bool, String> {
    let queue_key = pull_queue_key(&pull.repo, pull.number);
    let entries = app
        .core
        .store
        .read(|tx| outbox::of_queue_key(tx, &queue_key));
    let entries = entries.map_err(|error| error.to_string())?;
    let of_head =
        |effect: &Effect| matches!(effect, Effect::RerunFailedJobs { head: of, .. } if of == head);
    Ok(entries.iter().any(|entry| of_head(&entry.effect)))
}

/// Finds the workflow runs of failing jobs. A run that a check names and that does not check this commit is
/// forgotten: anyone who can push a workflow can write the address of any run into a check.
async fn find_runs(
    github: &GitHub,
    pull: &PullRequestId,
    head: &str,
    failing: &mut [HeadCheck],
    runs: &mut Vec<ActionsRun>,
) -> Result<(), String> {
    for job in failing.iter_mut().filter_map(|check| check.job.as_mut()) {
        let is_known = |run: u64| runs.iter().any(|known| known.id == run);
        if job.run.is_some_and(is_known) {
            continue;
        }
        if runs.len() >= MAX_RUNS {
            job.run = None;
            continue;
        }
        let found = match (job.run, job.suite) {
            (Some(run), _) => github.checking_run(&pull.repo, run, head).await,
            (None, Some(suite)) => github.checking_run_of_suite(&pull.repo, suite, head).await,
            (None, None) => Ok(None),
        };
        let found = found.map_err(|error| error.to_string())?;
        job.run = found.map(|run| run.id);
        runs.extend(found.filter(|run| !runs.iter().any(|known| known.id == run.id)));
    }
    Ok(())
}
