//! What should have happened by now.
//!
//! Open CI runs are found with one list call per repository, by their id or by the dispatch id in
//! their name; never by time. What was found, and every deadline that has passed, becomes an event
//! of the job.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::app::App;
use crate::domain::caps;
use crate::domain::ids::Repo;
use crate::domain::job::{Job, JobState, PullRef, RunHandle, RunnerKind};
use crate::domain::time::Timestamp;
use crate::domain::transition::{Activity, Event};
use crate::runners::ci;
use crate::scm::{GitHub, WorkflowRun};
use crate::store::{StoreResult, jobs};

use super::commit::{self, Policy};

/// How far may the host's clock be behind ours without hiding a run from us?
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Looks once at every job that is under way.
pub async fn once(app: &App) -> StoreResult<()> {
    let mut by_repo: BTreeMap<Repo, Vec<Job>> = BTreeMap::new();
    for job in app.store.read(jobs::active)? {
        if job.state != JobState::Unknown && job.runner == RunnerKind::Ci {
            by_repo.entry(job.repo.clone()).or_default().push(job);
        }
    }
    let Some(github) = &app.github else {
        return Ok(());
    };
    let looks = by_repo
        .into_iter()
        .map(|(repo, jobs)| look(app, github, repo, jobs));
    join_all(looks).await.into_iter().collect()
}

async fn look(app: &App, github: &GitHub, repo: Repo, jobs: Vec<Job>) -> StoreResult<()> {
    let oldest = jobs
        .iter()
        .map(|job| job.reserved_at)
        .min()
        .unwrap_or(Timestamp::EPOCH);
    let runs = match github.runs_since(&repo, oldest - CLOCK_SKEW).await {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%repo, %error, "Open runs could not be listed; deadlines are kept all the same.");
            Vec::new()
        }
    };
    for job in jobs {
        let found = runs.iter().find(|run| is_run_of(run, &job));
        if let Some(event) = found_event(app, github, &job, found).await {
            happen(app, &job, event).await?;
        }
        if let Some(reason) = job.overdue(app.now()) {
            let log = log_excerpt(github, &job).await;
            happen(app, &job, Event::DeadlinePassed { reason, log }).await?;
        }
    }
    Ok(())
}

fn is_run_of(run: &WorkflowRun, job: &Job) -> bool {
    match &job.run {
        Some(RunHandle::Ci { id, .. }) => run.id == *id,
        _ => ci::names(&run.name, &job.id),
    }
}

async fn found_event(
    app: &App,
    github: &GitHub,
    job: &Job,
    run: Option<&WorkflowRun>,
) -> Option<Event> {
    let run = run?;
    let handle = RunHandle::Ci {
        id: run.id,
        url: run.url.clone(),
    };
    if run.is_completed() {
        let conclusion = run
            .conclusion
            .clone()
            .unwrap_or_else(|| "unknown".to_owned());
        return ended(app, github, job, conclusion).await;
    }
    let activity = match run.status.as_str() {
        "in_progress" => Activity::InProgress,
        _ => Activity::Waiting,
    };
    Some(Event::RunSeen {
        run: handle,
        activity,
    })
}

/// The pull request and the log are asked for only when the end is about to be judged by them.
async fn ended(app: &App, github: &GitHub, job: &Job, conclusion: String) -> Option<Event> {
    let waited = job
        .run_ended_at
        .map_or(Duration::ZERO, |ended_at| app.now().since(ended_at));
    if job.callbacks && waited < caps::REPORT_GRACE {
        return Some(Event::RunEnded {
            conclusion,
            pull: None,
            log: None,
        });
    }
    let pull = match github.open_pull(&job.repo, &job.branch).await {
        Ok(pull) => pull.map(|pull| PullRef {
            number: pull.number,
            url: pull.url,
        }),
        Err(error) => {
            // Judged without it, a finished run would be called failed; the next look tries again.
            tracing::warn!(job.id = %job.id, %error, "The run's pull request could not be looked up.");
            return None;
        }
    };
    let log = if pull.is_some() {
        None
    } else {
        log_excerpt(github, job).await
    };
    Some(Event::RunEnded {
        conclusion,
        pull,
        log,
    })
}

async fn log_excerpt(github: &GitHub, job: &Job) -> Option<String> {
    let Some(RunHandle::Ci { id, .. }) = &job.run else {
        return None;
    };
    github
        .failed_log_excerpt(&job.repo, *id)
        .await
        .unwrap_or_default()
}

async fn happen(app: &App, job: &Job, event: Event) -> StoreResult<()> {
    let (id, policy, now) = (job.id.clone(), Policy::of(&app.config), app.now());
    app.store
        .write(move |tx| commit::happen(tx, policy, &id, event.clone(), now))
        .await
        .map(|_| ())
}
