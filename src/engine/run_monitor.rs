//! What should have happened by now.
//!
//! Open CI runs are found with one list call per repository, by their id or by the dispatch id in
//! their name; never by time. Machines of sessions are found with one list call per host
//! ([`machines`]). What was found, and every deadline that has passed, becomes an event
//! of the job.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::app::App;
use domain::effect::DraftState;
use domain::ids::Repo;
use domain::job::{Job, JobKind, JobState, PullRequestRef, RunHandle, RunnerKind};
use domain::limits;
use domain::time::Timestamp;
use domain::transition::{JobEvent, RunActivity};
use store::{StoreResult, jobs};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequest, WorkflowRun};
use vendors::session_hosts::ci;

use super::job_events::{self, BreakerPolicy};
use super::pull_ownership;

mod machines;

/// How far may the host's clock be behind ours without hiding a run from us?
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Looks once at every job that is under way.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let active = app.store.read(jobs::active)?;
    let (held, mut active): (Vec<Job>, Vec<Job>) = active
        .into_iter()
        .partition(|job| job.unconfirmed_result.is_some());
    let asked = held
        .iter()
        .map(|job| pull_ownership::verify_held_result(app, job));
    let settled: StoreResult<Vec<_>> = join_all(asked).await.into_iter().collect();
    settled?;
    active.retain(|job| job.state != JobState::Reserved);
    if let Some(github) = &app.github {
        let mut by_repo: BTreeMap<&Repo, Vec<&Job>> = BTreeMap::new();
        for job in active.iter().filter(|job| job.runner == RunnerKind::Ci) {
            by_repo.entry(&job.repo).or_default().push(job);
        }
        let looks = by_repo
            .into_iter()
            .map(|(repo, jobs)| look(app, github, repo, jobs));
        let looked: StoreResult<Vec<()>> = join_all(looks).await.into_iter().collect();
        looked?;
    }
    machines::check_machines(app, &active).await?;
    for job in &active {
        if job.exceeded_timeout(app.now()).is_some() {
            apply_event(app, job, JobEvent::Tick).await?;
        }
    }
    Ok(())
}

async fn look(app: &App, github: &GitHub, repo: &Repo, jobs: Vec<&Job>) -> StoreResult<()> {
    let oldest = jobs.iter().map(|job| job.reserved_at).min();
    let since = oldest.unwrap_or(Timestamp::EPOCH) - CLOCK_SKEW;
    let runs = match github.workflow_runs_since(repo, since).await {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%repo, %error, "Open runs could not be listed; time budgets hold all the same.");
            return judge_long_over(app, jobs, &error).await;
        }
    };
    for job in jobs {
        let event = match runs.iter().find(|run| is_run_of(run, job)) {
            Some(run) => seen(app, github, job, run).await,
            None => missed(app, github, job).await,
        };
        if let Some(event) = event {
            apply_event(app, job, event).await?;
        }
    }
    Ok(())
}

/// A host that knows us no more, or the repository, tells nothing of what a run left behind: what
/// ended long ago is judged by what was seen then.
async fn judge_long_over(app: &App, jobs: Vec<&Job>, error: &VendorError) -> StoreResult<()> {
    for job in jobs {
        let seen = job.run.clone().zip(job.conclusion.clone());
        if let Some((run, conclusion)) = seen.filter(|_| is_in_vain(app, job, error)) {
            let event = JobEvent::RunEnded {
                run,
                conclusion,
                pull: None,
            };
            apply_event(app, job, event).await?;
        }
    }
    Ok(())
}

/// Whether nobody is to wait any longer for what was asked about a run. A host that is out of order
/// may tell it yet.
fn is_in_vain(app: &App, job: &Job, error: &VendorError) -> bool {
    error.is_permanent() && job.is_outcome_lookup_expired(app.now())
}

fn is_run_of(run: &WorkflowRun, job: &Job) -> bool {
    match &job.run {
        Some(RunHandle::Ci { id, .. }) => run.id == *id,
        _ => ci::has_dispatch_id(&run.name, &job.id),
    }
}

/// A run that we know by its id may be missing only from the list.
async fn missed(app: &App, github: &GitHub, job: &Job) -> Option<JobEvent> {
    let Some(RunHandle::Ci { id, .. }) = &job.run else {
        return job.is_lost(app.now()).then_some(JobEvent::RunMissing);
    };
    match github.workflow_run(&job.repo, *id).await {
        Ok(run) => seen(app, github, job, &run).await,
        Err(error) if error.is_not_found() => Some(JobEvent::RunEnded {
            run: job.run.clone()?,
            conclusion: "deleted".to_owned(),
            pull: opened_pull(app, github, job).await?,
        }),
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "The run could not be looked up.");
            None
        }
    }
}

/// None while the end of the run cannot be judged.
async fn seen(app: &App, github: &GitHub, job: &Job, run: &WorkflowRun) -> Option<JobEvent> {
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
        return Some(JobEvent::RunFound { run, activity });
    }
    let conclusion = run.conclusion.as_deref().unwrap_or("unknown");
    Some(JobEvent::RunEnded {
        run: handle,
        conclusion: conclusion.to_owned(),
        pull: opened_pull(app, github, job).await?,
    })
}

/// The pull request is asked for only when the end is about to be judged by it; planning opens none.
/// None when it was asked for and not told: judged without it, a run that did well would be called
/// failed. It is called so when its host has refused to tell for long.
async fn opened_pull(
    app: &App,
    github: &GitHub,
    job: &Job,
) -> Option<Option<(PullRequestRef, DraftState)>> {
    let waited = job
        .run_ended_at
        .map_or(Duration::ZERO, |ended_at| app.now().since(ended_at));
    let may_report = job.has_callbacks && waited < limits::REPORT_GRACE;
    if may_report || job.kind == JobKind::Planning {
        return Some(None);
    }
    match github.find_open_pull(&job.repo, &job.branch).await {
        Ok(pull) => Some(pull.map(left_behind)),
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "The run's pull request could not be looked up.");
            is_in_vain(app, job, &error).then_some(None)
        }
    }
}

fn left_behind(pull: PullRequest) -> (PullRequestRef, DraftState) {
    let draft = if pull.draft {
        DraftState::Draft
    } else {
        DraftState::Ready
    };
    let PullRequest { number, url, .. } = pull;
    (PullRequestRef { number, url }, draft)
}

pub(super) async fn apply_event(app: &App, job: &Job, event: JobEvent) -> StoreResult<()> {
    let (id, policy, now) = (
        job.id.clone(),
        BreakerPolicy::from_config(&app.config),
        app.now(),
    );
    let happened = app
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now));
    job_events::log_job_end(&happened.await?, now);
    Ok(())
}
