//! Detection of run events that no report delivered, and of timeouts.
//!
//! CI runs are found with one list call per repository, by their run ID or by the dispatch ID in
//! their name; never by time. With many repositories, each is listed less often. Session machines are found with one list call per host
//! (`machines`). Every finding and every deadline that has passed becomes an event of the job.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::app::{App, Core};
use domain::effect::DraftState;
use domain::ids::Repo;
use domain::job::{Job, JobKind, JobState, PullRequestRef, RunHandle, RunnerKind};
use domain::limits;
use domain::time::Timestamp;
use domain::transition::{JobEvent, MissingReport, RunActivity};
use store::{StoreResult, jobs};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequest, WorkflowRun};
use vendors::session_hosts::ci;

use super::artifact_reports::{self, Collected};
use super::job_events::{self, BreakerPolicy};
use super::pull_requests::ownership;

mod machines;

/// Maximum lag of a vendor's clock behind ours, within which runs and comments are still found.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Checks every active job once.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let active = app.core.store.read(jobs::active)?;
    let (awaiting_confirmation, mut active): (Vec<Job>, Vec<Job>) = active
        .into_iter()
        .partition(|job| job.unconfirmed_result.is_some());
    let checks = awaiting_confirmation
        .iter()
        .map(|job| ownership::verify_held_result(app, job));
    let settled: StoreResult<Vec<_>> = join_all(checks).await.into_iter().collect();
    settled?;
    active.retain(|job| job.state != JobState::Reserved);
    if let Some(github) = &app.vendors.github {
        let mut by_repo: BTreeMap<&Repo, Vec<&Job>> = BTreeMap::new();
        for job in active.iter().filter(|job| job.runner == RunnerKind::Ci) {
            by_repo.entry(&job.repo).or_default().push(job);
        }
        let (watches, cycle) = (&app.live.run_watches, app.core.timings.run_monitor_interval);
        let with_runs = by_repo.keys().copied().collect();
        let due = watches.take_due(&with_runs, cycle, app.core.now());
        let checks = by_repo
            .into_iter()
            .filter(|(repo, _)| due.contains(*repo))
            .map(|(repo, jobs)| check_ci_runs(app, github, repo, jobs));
        let checked: StoreResult<Vec<()>> = join_all(checks).await.into_iter().collect();
        checked?;
    }
    machines::check_machines(app, &active).await?;
    for job in &active {
        if job.exceeded_timeout(app.core.now()).is_some() {
            apply_event(&app.core, job, JobEvent::Tick).await?;
        }
    }
    Ok(())
}

async fn check_ci_runs(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    jobs: Vec<&Job>,
) -> StoreResult<()> {
    let core = &app.core;
    let oldest = jobs.iter().map(|job| job.reserved_at).min();
    let since = oldest.unwrap_or(Timestamp::EPOCH) - CLOCK_SKEW;
    let runs = match github.workflow_runs_since(repo, since).await {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%repo, %error, "Could not list open runs; timeouts still apply.");
            return end_expired(core, jobs, &error).await;
        }
    };
    for job in jobs {
        let event = match runs.iter().find(|run| is_run_of(run, job)) {
            Some(run) => observed_event(app, github, job, run).await?,
            None => missing_run_event(app, github, job).await?,
        };
        if let Some(event) = event {
            apply_event(core, job, event).await?;
        }
    }
    Ok(())
}

/// Ends runs that completed earlier and whose pull request can no longer be looked up, because
/// access to the repository is lost. Their recorded conclusion decides.
async fn end_expired(core: &Core, jobs: Vec<&Job>, error: &VendorError) -> StoreResult<()> {
    for job in jobs {
        let seen = job.run.clone().zip(job.conclusion.clone());
        if let Some((run, conclusion)) = seen.filter(|_| is_lookup_expired(core, job, error)) {
            let event = JobEvent::RunEnded {
                run,
                conclusion: conclusion.into(),
                pull: None,
                report: MissingReport::NotArrived,
            };
            apply_event(core, job, event).await?;
        }
    }
    Ok(())
}

/// Whether to stop waiting for a lookup about a run. Transient errors are always retried.
fn is_lookup_expired(core: &Core, job: &Job, error: &VendorError) -> bool {
    error.is_permanent() && job.is_outcome_lookup_expired(core.now())
}

fn is_run_of(run: &WorkflowRun, job: &Job) -> bool {
    match &job.run {
        Some(RunHandle::Ci { id, .. }) => run.id == *id,
        _ => ci::has_dispatch_id(&run.name, &job.id),
    }
}

/// Event of a run that the list does not contain. A run with a known ID may be missing only from
/// the list.
async fn missing_run_event(app: &App, github: &GitHub, job: &Job) -> StoreResult<Option<JobEvent>> {
    let Some(RunHandle::Ci { id, .. }) = &job.run else {
        return Ok(job.is_lost(app.core.now()).then_some(JobEvent::RunMissing));
    };
    match github.workflow_run(&job.repo, *id).await {
        Ok(run) => observed_event(app, github, job, &run).await,
        Err(error) if error.is_not_found() => Ok(deleted_run_event(app, github, job).await),
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "Failed to look up the CI run.");
            Ok(None)
        }
    }
}

/// Event of a run that was deleted, with its artifacts.
async fn deleted_run_event(app: &App, github: &GitHub, job: &Job) -> Option<JobEvent> {
    let report = MissingReport::NotArrived;
    Some(JobEvent::RunEnded {
        run: job.run.clone()?,
        conclusion: "deleted".into(),
        pull: opened_pull(&app.core, github, job, &report).await?,
        report,
    })
}

/// Event of a run that GitHub lists. `None` if its report is recorded, or while its report or its pull
/// request cannot be looked up.
async fn observed_event(
    app: &App,
    github: &GitHub,
    job: &Job,
    run: &WorkflowRun,
) -> StoreResult<Option<JobEvent>> {
    let handle = RunHandle::Ci {
        id: run.id,
        url: run.url.clone(),
    };
    if !run.is_completed() {
        let activity = match run.status.as_str() {
            "in_progress" => RunActivity::InProgress,
            _ => RunActivity::Queued,
        };
        let run = handle;
        return Ok(Some(JobEvent::RunFound { run, activity }));
    }
    let report = match artifact_reports::is_expected(app, job) {
        true => match artifact_reports::collect(app, github, job, run).await? {
            Collected::Missing(report) => report,
            Collected::Recorded | Collected::Unknown => return Ok(None),
        },
        false => MissingReport::NotArrived,
    };
    let pull = opened_pull(&app.core, github, job, &report).await;
    let conclusion = run.conclusion.as_deref().unwrap_or("unknown");
    Ok(pull.map(|pull| JobEvent::RunEnded {
        run: handle,
        conclusion: conclusion.into(),
        pull,
        report,
    }))
}

/// Looks up the pull request of a run that ended without a report. Planning opens none.
///
/// Returns `None` if the lookup failed and must be retried: without it, a successful run would
/// count as failed. After permanent errors for a long time the run counts as failed.
async fn opened_pull(
    core: &Core,
    github: &GitHub,
    job: &Job,
    report: &MissingReport,
) -> Option<Option<(PullRequestRef, DraftState)>> {
    let waited = job
        .run_ended_at
        .map_or(Duration::ZERO, |ended_at| core.now().since(ended_at));
    let may_report = *report == MissingReport::NotArrived && waited < limits::REPORT_GRACE;
    if may_report || job.kind == JobKind::Planning {
        return Some(None);
    }
    match github.find_open_pull(&job.repo, &job.branch).await {
        Ok(pull) => Some(pull.map(reference_and_draft_state)),
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "Failed to look up the pull request of the run.");
            is_lookup_expired(core, job, &error).then_some(None)
        }
    }
}

fn reference_and_draft_state(pull: PullRequest) -> (PullRequestRef, DraftState) {
    let draft = if pull.draft {
        DraftState::Draft
    } else {
        DraftState::Ready
    };
    let PullRequest { number, url, .. } = pull;
    (PullRequestRef { number, url }, draft)
}

/// Applies an event to a job, in a transaction of its own.
pub(super) async fn apply_event(core: &Core, job: &Job, event: JobEvent) -> StoreResult<()> {
    let (id, policy, now) = (
        job.id.clone(),
        BreakerPolicy::from_config(&core.config),
        core.now(),
    );
    let applied = core
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now));
    job_events::log_job_end(&applied.await?, now);
    Ok(())
}
