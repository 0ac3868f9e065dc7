//! Indexes of the dispatch log, and its pages.
//!
//! Job ids sort by time of reservation, so every index yields jobs in that order and a page begins at an id.
//! Status, kind, project, issue and time are served by ranges of one index. Only a text is compared with each
//! job; the number of jobs that one page reads is bounded.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use ulid::Ulid;

use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::issue::IssueRef;
use domain::job::{Job, JobKind, JobState};
use domain::job_filter::{JobFilter, StateClass};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{
    JOBS, JOBS_ACTIVE, JOBS_BY_ISSUE, JOBS_BY_ISSUE_KEY, JOBS_BY_STATE, JOBS_BY_TEAM,
};
use super::{decisions, jobs};

/// Maximum number of jobs that one page reads.
pub const MAX_SCANNED: usize = 2_000;

/// Number of ids read from an index at a time.
const BATCH: usize = 256;

/// Page of the dispatch log.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPage {
    /// Jobs, newest first.
    pub jobs: Vec<Job>,
    /// Last job that was read, if there may be more before it.
    pub next: Option<JobId>,
}

/// Updates the indexes for a stored job. `before` is its stored state; `None` for a new job.
pub(super) fn update(tx: &WriteTx<'_>, before: Option<&JobState>, job: &Job) -> StoreResult<()> {
    let id = job.id.as_str();
    if before.is_none() {
        JOBS_BY_ISSUE_KEY.put(tx, (issue_key(job.issue.key.as_str()).as_str(), id), &())?;
    }
    let class = StateClass::of(&job.state);
    let class_before = before.map(StateClass::of);
    if class_before == Some(class) {
        return Ok(());
    }
    if let Some(before) = class_before {
        let key = state_key(before, job.kind.as_str());
        JOBS_BY_STATE.remove(tx, (key.as_str(), id))?;
        JOBS_BY_TEAM.remove(tx, (job.team.as_str(), key.as_str(), id))?;
    }
    let key = state_key(class, job.kind.as_str());
    JOBS_BY_STATE.put(tx, (key.as_str(), id), &())?;
    JOBS_BY_TEAM.put(tx, (job.team.as_str(), key.as_str(), id), &())
}

/// Builds the indexes in a store of schema version 3.
pub(super) fn build(tx: &WriteTx<'_>) -> StoreResult<()> {
    for_each_job(tx, |job| update(tx, None, job))
}

/// Visits every job, for migrations. One at a time, because all jobs may not fit into memory.
pub(super) fn for_each_job(
    tx: &WriteTx<'_>,
    mut visit: impl FnMut(&Job) -> StoreResult<()>,
) -> StoreResult<()> {
    let mut ids = Vec::new();
    JOBS.scan_partial_with_size(tx, .., ScanDirection::Ascending, |id, _: IgnoredAny, _| {
        ids.push(id.to_owned());
        ControlFlow::Continue(())
    })?;
    for id in ids {
        if let Some(job) = JOBS.get(tx, id.as_str())? {
            visit(&job)?;
        }
    }
    Ok(())
}

fn state_key(class: StateClass, kind: &str) -> String {
    format!("{} {kind}", class.as_str())
}

fn active_key(kind: JobKind) -> String {
    state_key(StateClass::Active, kind.as_str())
}

fn issue_key(key: &str) -> String {
    key.to_uppercase()
}

/// All jobs of the issue with this id or key, oldest first. The key is case-insensitive.
pub fn of_issue_named(tx: &impl ReadableTx, issue: &str) -> StoreResult<Vec<Job>> {
    let mut ids = Source::Issue(issue).all_ids(tx)?;
    ids.reverse();
    load(tx, ids)
}

/// Active jobs of an issue and of others with the same key, oldest first. Reads none of the jobs that have ended.
pub fn active_of_issue(tx: &impl ReadableTx, issue: &IssueRef) -> StoreResult<Vec<Job>> {
    let mut ids = BTreeSet::new();
    for named in [issue.id.as_str(), issue.key.as_str()] {
        for id in Source::Issue(named).all_ids(tx)? {
            if JOBS_ACTIVE.get(tx, id.as_str())?.is_some() {
                ids.insert(id);
            }
        }
    }
    load(tx, ids)
}

/// Active jobs of this kind, latest first.
pub fn active_of_kind(tx: &impl ReadableTx, kind: JobKind) -> StoreResult<Vec<Job>> {
    let states = vec![active_key(kind)];
    load(tx, Source::States(states).all_ids(tx)?)
}

/// Active jobs of a team, latest first.
pub fn active_of_team(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Vec<Job>> {
    let states = JobKind::ALL.map(active_key).into();
    load(tx, Source::Team(team.as_str(), states).all_ids(tx)?)
}

fn load(tx: &impl ReadableTx, ids: impl IntoIterator<Item = String>) -> StoreResult<Vec<Job>> {
    let mut found = Vec::new();
    for id in ids {
        found.extend(jobs::get(tx, &JobId::new(id))?);
    }
    Ok(found)
}

/// Issue with this id or key: the one that the decisions are about, else that of the latest job. `None` if neither knows
/// it.
pub fn issue_named(tx: &impl ReadableTx, named: &str) -> StoreResult<Option<IssueId>> {
    let key = IssueKey::from(named);
    if let Some(row) = decisions::get_named(tx, &key)? {
        return Ok(Some(row.issue.id));
    }
    let mut found = of_issue_named(tx, named)?;
    if let (true, Some(short)) = (found.is_empty(), key.without_owner()) {
        found = of_issue_named(tx, short.as_str())?;
        found.retain(|job| job.issue.matches_id_or_key(named));
    }
    // A team may have reused the key for another issue.
    let latest = found.pop();
    Ok(latest.map(|job| job.issue.id))
}

/// Page of the jobs that match, newest first, from the newest one before `before`. A page may have fewer than
/// `limit` jobs although there are more: then it has read [`MAX_SCANNED`] jobs.
pub fn page(
    tx: &impl ReadableTx,
    filter: &JobFilter,
    before: Option<&JobId>,
    limit: usize,
) -> StoreResult<JobPage> {
    let source = Source::of(filter);
    let lower = filter.reserved_from().map(first_id_at).unwrap_or_default();
    let upper = filter.reserved_to().map(first_id_at);
    let mut cursor = match (before.map(JobId::as_str), upper.as_deref()) {
        (Some(before), Some(upper)) => before.min(upper).to_owned(),
        (one, other) => one.or(other).unwrap_or(MAX_KEY_TEXT).to_owned(),
    };
    let (mut jobs, mut scanned) = (Vec::new(), 0);
    loop {
        let ids = source.ids(tx, &lower, &cursor, BATCH)?;
        let is_last = ids.len() < BATCH;
        for id in ids {
            if jobs.len() == limit || scanned == MAX_SCANNED {
                let next = Some(JobId::new(cursor));
                return Ok(JobPage { jobs, next });
            }
            scanned += 1;
            let job = jobs::get(tx, &JobId::from(id.as_str()))?;
            jobs.extend(job.filter(|job| filter.matches(job)));
            cursor = id;
        }
        if is_last {
            return Ok(JobPage { jobs, next: None });
        }
    }
}

/// Smallest id of a job that is reserved at this time.
fn first_id_at(at: Timestamp) -> String {
    Ulid::from_parts(at.as_millis(), 0).to_string()
}

/// Index that yields the candidates of a filter.
enum Source<'f> {
    All,
    Issue(&'f str),
    States(Vec<String>),
    Team(&'f str, Vec<String>),
}

impl<'f> Source<'f> {
    fn of(filter: &'f JobFilter) -> Self {
        let states = || {
            let kinds = filter.kinds();
            let classes = filter.classes().into_iter();
            let keys = classes.flat_map(|class| kinds.iter().map(move |kind| (class, kind)));
            keys.map(|(class, kind)| state_key(class, kind.as_str()))
                .collect()
        };
        match (&filter.issue, &filter.team) {
            (Some(issue), _) => Source::Issue(issue),
            (None, Some(team)) => Source::Team(team.as_str(), states()),
            (None, None) if filter.is_limited_by_state_or_kind() => Source::States(states()),
            (None, None) => Source::All,
        }
    }

    /// All ids, latest first.
    fn all_ids(&self, tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
        self.ids(tx, "", MAX_KEY_TEXT, usize::MAX)
    }

    /// Ids from `lower` to before `upper`, latest first, at most `count`.
    fn ids(
        &self,
        tx: &impl ReadableTx,
        lower: &str,
        upper: &str,
        count: usize,
    ) -> StoreResult<Vec<String>> {
        let mut found = Found::default();
        if lower >= upper {
            return Ok(Vec::new());
        }
        let descending = ScanDirection::Descending;
        match self {
            Source::All => {
                let visit = |id: &str, _: IgnoredAny, _| found.add(id, count);
                JOBS.scan_partial_with_size(tx, lower..upper, descending, visit)?;
            }
            Source::Issue(issue) => {
                let (key, issue) = (issue_key(issue), *issue);
                let range = (issue, lower)..(issue, upper);
                JOBS_BY_ISSUE.scan(tx, range, descending, |(_, id), ()| found.add(id, count))?;
                found.next_range();
                let range = (key.as_str(), lower)..(key.as_str(), upper);
                JOBS_BY_ISSUE_KEY
                    .scan(tx, range, descending, |(_, id), ()| found.add(id, count))?;
            }
            Source::States(states) => {
                for state in states {
                    found.next_range();
                    let range = (state.as_str(), lower)..(state.as_str(), upper);
                    JOBS_BY_STATE
                        .scan(tx, range, descending, |(_, id), ()| found.add(id, count))?;
                }
            }
            Source::Team(team, states) => {
                for state in states {
                    found.next_range();
                    let range = (*team, state.as_str(), lower)..(*team, state.as_str(), upper);
                    let visit = |(_, _, id): (&str, &str, &str), ()| found.add(id, count);
                    JOBS_BY_TEAM.scan(tx, range, descending, visit)?;
                }
            }
        }
        Ok(found.ids.into_iter().rev().take(count).collect())
    }
}

/// Ids found in one or several ranges of an index.
#[derive(Default)]
struct Found {
    ids: BTreeSet<String>,
    in_range: usize,
}

impl Found {
    fn next_range(&mut self) {
        self.in_range = 0;
    }

    /// Adds an id. Breaks at `count` ids of the range.
    fn add(&mut self, id: &str, count: usize) -> ControlFlow<()> {
        self.ids.insert(id.to_owned());
        self.in_range += 1;
        match self.in_range < count {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
#[path = "job_index_tests.rs"]
mod tests;
