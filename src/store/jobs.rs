//! Jobs and their indexes. Only [`put`] writes, so that the indexes stay consistent.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use serde_json::json;

use domain::feedback::PullRequestId;
use domain::ids::{IssueId, JobId, Repo};
use domain::job::{Job, JobKind, JobProgress, PullRequestRef};

use super::change_feed::StoreChange;
use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{JOBS, JOBS_ACTIVE, JOBS_BY_ISSUE, JOBS_BY_NONCE, JOBS_BY_PULL, META};
use super::{StoreResult, failed_runs, job_counts, job_index, scoreboard};

/// Number of entries in the dispatch log. See docs/behaviour.md#dispatch-log.
pub const DISPATCH_LOG_SIZE: usize = 500;

/// Key of the counts of ended jobs in the meta table.
const ENDED: &str = "jobs-ended";

/// Job with this id.
pub fn get(tx: &impl ReadableTx, id: &JobId) -> StoreResult<Option<Job>> {
    JOBS.get(tx, id.as_str())
}

/// Part of a job that progress reports need.
pub fn run_state(tx: &impl ReadableTx, id: &JobId) -> StoreResult<Option<JobProgress>> {
    JOBS.get_partial(tx, id.as_str())
}

/// Inserts or replaces a job and updates the indexes.
pub fn put(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let id = job.id.as_str();
    let before = JOBS.get(tx, id)?;
    if before.is_none() {
        JOBS_BY_ISSUE.put(tx, (job.issue.id.as_str(), id), &())?;
    }
    job_index::update(tx, before.as_ref().map(|job| &job.state), job)?;
    job_counts::update(tx, before.as_ref(), job)?;
    scoreboard::update_job(tx, before.as_ref(), job)?;
    let is_new = before.is_none();
    let was_active = before.as_ref().is_some_and(|job| !job.state.is_terminal());
    if job.is_active() && !was_active {
        JOBS_ACTIVE.put(tx, id, &())?;
    } else if was_active && !job.is_active() {
        JOBS_ACTIVE.remove(tx, id)?;
    }
    let nonce_before = before.as_ref().and_then(|job| job.nonce_hash.as_ref());
    if let Some(hash) = job
        .nonce_hash
        .as_ref()
        .filter(|hash| nonce_before != Some(*hash))
    {
        JOBS_BY_NONCE.put(tx, hash.as_str(), &job.id)?;
    }
    let pull_before = before.and_then(|job| job.pull);
    if let Some(pull) = job
        .pull
        .as_ref()
        .filter(|pull| pull_before.as_ref() != Some(*pull))
    {
        JOBS_BY_PULL.put(tx, (job.repo.to_string().as_str(), pull.number, id), &())?;
    }
    if !job.is_active() && (was_active || is_new) {
        count_end(tx, job)?;
        failed_runs::record_end(tx, job)?;
    }
    JOBS.put(tx, id, job)?;
    tx.publish(StoreChange::Job(job.id.clone()));
    Ok(())
}

/// Key under which ended jobs of this status and kind are counted.
pub fn ended_count_key(status: &str, kind: JobKind) -> String {
    format!("{status} {}", kind.as_str())
}

/// Counts an ended job. Each job ends once, so it is counted once; counts survive restarts.
fn count_end(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let mut ended = ended_counts(tx)?;
    *ended
        .entry(ended_count_key(job.state.status(), job.kind))
        .or_default() += 1;
    META.put(tx, ENDED, &json!(ended))
}

/// Numbers of ended jobs by [`ended_count_key`]. Reading them does not scan the jobs.
pub fn ended_counts(tx: &impl ReadableTx) -> StoreResult<BTreeMap<String, u64>> {
    let row = META.get(tx, ENDED)?;
    Ok(row
        .and_then(|ended| serde_json::from_value(ended).ok())
        .unwrap_or_default())
}

/// All jobs that have not ended.
pub fn active(tx: &impl ReadableTx) -> StoreResult<Vec<Job>> {
    let ids = JOBS_ACTIVE.collect(tx, .., |id, ()| JobId::from(id))?;
    load(tx, &ids)
}

/// All jobs of an issue, oldest first.
pub fn of_issue(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Vec<Job>> {
    let range = (issue.as_str(), "")..=(issue.as_str(), MAX_KEY_TEXT);
    let ids = JOBS_BY_ISSUE.collect(tx, range, |(_, id), ()| JobId::from(id))?;
    load(tx, &ids)
}

/// Job whose session was started with the nonce of this hash, in any state.
pub fn of_nonce(tx: &impl ReadableTx, hash: &str) -> StoreResult<Option<Job>> {
    match JOBS_BY_NONCE.get(tx, hash)? {
        Some(id) => get(tx, &id),
        None => Ok(None),
    }
}

/// All jobs of a pull request, oldest first.
pub fn of_pull(tx: &impl ReadableTx, repo: &Repo, number: u64) -> StoreResult<Vec<Job>> {
    let repo = repo.to_string();
    let range = (repo.as_str(), number, "")..=(repo.as_str(), number, MAX_KEY_TEXT);
    let ids = JOBS_BY_PULL.collect(tx, range, |(_, _, id), ()| JobId::from(id))?;
    load(tx, &ids)
}

/// Latest job of a pull request.
pub fn latest_of_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<Job>> {
    let (repo, number, mut latest) = (pull.repo.to_string(), pull.number, None);
    JOBS_BY_PULL.scan(
        tx,
        (repo.as_str(), number, "")..=(repo.as_str(), number, MAX_KEY_TEXT),
        ScanDirection::Descending,
        |(_, _, id), ()| {
            latest = Some(JobId::from(id));
            ControlFlow::Break(())
        },
    )?;
    match latest {
        Some(id) => get(tx, &id),
        None => Ok(None),
    }
}

/// Repository name as stored in the jobs of its pull requests; `repo` may differ in case. Skips from
/// repository to repository, so the cost does not depend on the number of pull requests.
pub(crate) fn canonical_pull_repo(tx: &impl ReadableTx, repo: &Repo) -> StoreResult<Option<Repo>> {
    let (wanted, mut last) = (repo.to_string(), String::new());
    loop {
        let mut next = None;
        let beyond = (last.as_str(), u64::MAX, MAX_KEY_TEXT);
        JOBS_BY_PULL.scan(
            tx,
            beyond..,
            ScanDirection::Ascending,
            |(repo, _, _), ()| {
                next = Some(repo.to_owned());
                ControlFlow::Break(())
            },
        )?;
        match next {
            Some(repo) if repo.eq_ignore_ascii_case(&wanted) => return Ok(Repo::parse(&repo)),
            Some(repo) => last = repo,
            None => return Ok(None),
        }
    }
}

/// All pull requests with their latest jobs, latest first.
pub fn pulls(tx: &impl ReadableTx) -> StoreResult<Vec<(PullRequestId, JobId)>> {
    let mut latest: BTreeMap<(String, u64), String> = BTreeMap::new();
    JOBS_BY_PULL.scan(
        tx,
        ..,
        ScanDirection::Ascending,
        |(repo, number, id), ()| {
            latest.insert((repo.to_owned(), number), id.to_owned());
            ControlFlow::Continue(())
        },
    )?;
    let mut pulls: Vec<(PullRequestId, JobId)> = latest
        .into_iter()
        .filter_map(|((repo, number), id)| {
            let repo = Repo::parse(&repo)?;
            Some((PullRequestId { repo, number }, JobId::new(id)))
        })
        .collect();
    pulls.sort_by(|(_, a), (_, b)| b.cmp(a));
    Ok(pulls)
}

/// Pull requests with the latest jobs, latest first, at most `count`. Reads jobs from the newest, so older
/// jobs cost nothing.
pub fn latest_pulls(tx: &impl ReadableTx, count: usize) -> StoreResult<Vec<PullRequestId>> {
    let (mut seen, mut pulls) = (HashSet::new(), Vec::new());
    JOBS.scan(tx, .., ScanDirection::Descending, |_, job| {
        if pulls.len() == count {
            return ControlFlow::Break(());
        }
        if let Some(PullRequestRef { number, .. }) = job.pull
            && seen.insert((job.repo.to_string(), number))
        {
            let repo = job.repo;
            pulls.push(PullRequestId { repo, number });
        }
        ControlFlow::Continue(())
    })?;
    Ok(pulls)
}

/// Latest jobs, newest first: the dispatch log.
pub fn latest(tx: &impl ReadableTx, count: usize) -> StoreResult<Vec<Job>> {
    let mut jobs = Vec::new();
    JOBS.scan(tx, .., ScanDirection::Descending, |_, job| {
        jobs.push(job);
        if jobs.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(jobs)
}

fn load(tx: &impl ReadableTx, ids: &[JobId]) -> StoreResult<Vec<Job>> {
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.extend(get(tx, id)?);
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use domain::job::RunHandle;
    use domain::report::Usage;

    /// Ended job, with or without a pull request.
    fn job(id: &str, repo: &str, pull: Option<u64>) -> Job {
        let row = json!({
            "id": id, "group": id, "kind": "implementation", "team": "ENG", "runner": "ci",
            "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "u"},
            "repo": {"owner": "acme", "name": repo}, "dispatchNumber": 1, "branch": "b",
            "callbacks": true, "minutes": 90, "state": {"status": "completed"},
            "pull": pull.map(|number| json!({"number": number, "url": "u"})),
            "reservedAt": "2026-10-31T22:00:00Z", "dispatchedAt": "2026-10-31T22:00:00Z",
        });
        serde_json::from_value(row).unwrap()
    }

    #[tokio::test]
    async fn reads_the_progress_fields_of_a_job() {
        let store = Store::in_memory().unwrap();
        let job = Job {
            run: Some(RunHandle::Ci {
                id: 7,
                url: "u".to_owned(),
            }),
            usage: Some(Usage {
                turns: 3,
                ..Usage::default()
            }),
            ..job("01A", "shop", Some(1))
        };
        let stored = job.clone();
        store.write(move |tx| put(tx, &stored)).await.unwrap();
        let read = store.read(|tx| run_state(tx, &job.id)).unwrap();
        let expected = JobProgress {
            runner: job.runner,
            state: job.state,
            run: job.run,
            usage: job.usage,
            agent: None,
            model: None,
        };
        assert_eq!(read, Some(expected));
    }

    #[tokio::test]
    async fn finds_repositories_of_pull_requests_in_any_case() {
        let store = Store::in_memory().unwrap();
        let rows = [
            ("01A", "shop", Some(1)),
            ("01B", "shop", Some(2)),
            ("01C", "Site", Some(1)),
            ("01D", "docs", None),
        ];
        let put = store.write(move |tx| {
            let jobs = rows.iter().map(|(id, repo, pull)| job(id, repo, *pull));
            jobs.into_iter().try_for_each(|job| put(tx, &job))
        });
        put.await.unwrap();
        for (name, expected) in [
            ("Shop", Some("shop")),
            ("shop", Some("shop")),
            ("site", Some("Site")),
            ("docs", None),
            ("sho", None),
            ("shopping", None),
        ] {
            let repo = Repo::new("ACME", name);
            let found = store.read(|tx| canonical_pull_repo(tx, &repo)).unwrap();
            let expected = expected.map(|name| Repo::new("acme", name));
            assert_eq!(found, expected, "{repo}");
        }
    }

    #[tokio::test]
    async fn latest_pull_requests_are_a_prefix_of_all() {
        let store = Store::in_memory().unwrap();
        let rows = [
            ("01A", "shop", Some(1)),
            ("01B", "shop", Some(2)),
            ("01C", "shop", None),
            ("01D", "site", Some(1)),
            ("01E", "shop", Some(1)),
            ("01F", "shop", None),
        ];
        let put = store.write(move |tx| {
            let jobs = rows.iter().map(|(id, repo, pull)| job(id, repo, *pull));
            jobs.into_iter().try_for_each(|job| put(tx, &job))
        });
        put.await.unwrap();
        let all = store.read(pulls).unwrap();
        let all: Vec<PullRequestId> = all.into_iter().map(|(pull, _)| pull).collect();
        let names: Vec<String> = all
            .iter()
            .map(|pull| format!("{} {}", pull.repo, pull.number))
            .collect();
        assert_eq!(names, ["acme/shop 1", "acme/site 1", "acme/shop 2"]);
        for count in 0..=4 {
            let latest = store.read(|tx| latest_pulls(tx, count)).unwrap();
            assert_eq!(latest, all[..count.min(all.len())], "{count}");
        }
    }
}
