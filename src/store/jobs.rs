//! Jobs and the indexes to them. Only [`put`] writes, so that no index can go stale.

use std::ops::ControlFlow;

use crate::domain::ids::{IssueId, JobId, Repo};
use crate::domain::job::Job;

use super::StoreResult;
use super::news::News;
use super::shelf::{Order, Rows, WriteTx};
use super::tables::{JOBS, JOBS_ACTIVE, JOBS_BY_ISSUE, JOBS_BY_PULL};

/// How many entries the dispatch log shows. (spec: *Dispatch log entry*)
pub const LOG_SIZE: usize = 500;

/// Sorts after every id.
const LAST: &str = "\u{10FFFF}";

pub fn get(tx: &impl Rows, id: &JobId) -> StoreResult<Option<Job>> {
    JOBS.get(tx, id.as_str())
}

/// Stores a job, new or changed.
pub fn put(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let id = job.id.as_str();
    let before = JOBS.get(tx, id)?;
    if before.is_none() {
        JOBS_BY_ISSUE.put(tx, (job.issue.id.as_str(), id), &())?;
    }
    let was_active = before.as_ref().is_some_and(Job::is_active);
    if job.is_active() && !was_active {
        JOBS_ACTIVE.put(tx, id, &())?;
    } else if was_active && !job.is_active() {
        JOBS_ACTIVE.remove(tx, id)?;
    }
    let pull_before = before.and_then(|job| job.pull);
    if let Some(pull) = job
        .pull
        .as_ref()
        .filter(|pull| pull_before.as_ref() != Some(*pull))
    {
        JOBS_BY_PULL.put(tx, (job.repo.to_string().as_str(), pull.number, id), &())?;
    }
    JOBS.put(tx, id, job)?;
    tx.tell(News::Job(job.id.clone()));
    Ok(())
}

/// Jobs that have not ended.
pub fn active(tx: &impl Rows) -> StoreResult<Vec<Job>> {
    let ids = JOBS_ACTIVE.collect(tx, .., |id, ()| JobId::from(id))?;
    load(tx, &ids)
}

/// Every job of an issue, oldest first.
pub fn of_issue(tx: &impl Rows, issue: &IssueId) -> StoreResult<Vec<Job>> {
    let range = (issue.as_str(), "")..=(issue.as_str(), LAST);
    let ids = JOBS_BY_ISSUE.collect(tx, range, |(_, id), ()| JobId::from(id))?;
    load(tx, &ids)
}

/// Every job of a pull request, oldest first.
pub fn of_pull(tx: &impl Rows, repo: &Repo, number: u64) -> StoreResult<Vec<Job>> {
    let repo = repo.to_string();
    let range = (repo.as_str(), number, "")..=(repo.as_str(), number, LAST);
    let ids = JOBS_BY_PULL.collect(tx, range, |(_, _, id), ()| JobId::from(id))?;
    load(tx, &ids)
}

/// The latest jobs, newest first: the dispatch log.
pub fn latest(tx: &impl Rows, count: usize) -> StoreResult<Vec<Job>> {
    let mut jobs = Vec::new();
    JOBS.scan(tx, .., Order::Descending, |_, job| {
        jobs.push(job);
        if jobs.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(jobs)
}

fn load(tx: &impl Rows, ids: &[JobId]) -> StoreResult<Vec<Job>> {
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.extend(get(tx, id)?);
    }
    Ok(jobs)
}
