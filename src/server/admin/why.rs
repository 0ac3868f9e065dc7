//! `/api/why/:issue`: current and earlier decisions about an issue, with its runs and pull requests.

use std::collections::{BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::jobs::{JobGroupStatus, JobView};
use super::pulls::{self, PullView};
use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::decision::{self, Decision};
use domain::effect::{queue_keys_of_run, ticket_queue_key};
use domain::feedback::PullRequestId;
use domain::ids::{IssueId, IssueKey};
use domain::issue::IssueRef;
use domain::job::Job;
use domain::time::Timestamp;
use engine::app::App;
use store::decisions::{self, DecisionHistory};
use store::outbox::OutboxEntry;
use store::{
    ReadTx, ReadableTx, StoreResult, dispatch_breaker, job_index, jobs, outbox, take_overs,
};

/// Routes of `/api/why`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/why/:issue", "why", show).returns::<IssueDecisionView>()]
}

async fn show(PathSegment(key): PathSegment, app: App) -> ApiResult {
    let (now, key) = (app.core.now(), IssueKey::new(key));
    let read = app
        .core
        .store()
        .read_long(move |tx| explain_issue(tx, &key, now));
    let view = read.await?;
    Ok(ok(&view.ok_or(AdminApiError::IssueNotFound)?))
}

/// Loads the decisions about an issue, its jobs and its pull requests. `key` is the key or the id of the issue.
/// `None` if no poll has ever seen it and no job knows it.
///
/// # Errors
/// When the store cannot be read.
pub fn explain_issue(
    tx: &ReadTx,
    key: &IssueKey,
    now: Timestamp,
) -> StoreResult<Option<IssueDecisionView>> {
    let Some(KnownIssue {
        issue,
        history,
        jobs,
    }) = find(tx, key)?
    else {
        return Ok(None);
    };
    let decision = current_decision(tx, history.as_ref(), &jobs, now)?;
    let mut earlier = history.map_or_else(Vec::new, |row| row.decisions);
    if decision.as_ref() == earlier.last() {
        earlier.pop();
    }
    earlier.reverse();
    let jobs_view = job_views(tx, &jobs)?;
    let pending_updates = pending_updates(tx, &issue, &jobs)?;
    Ok(Some(IssueDecisionView {
        pending_updates,
        identifier: issue.key,
        taken_over: take_overs::get(tx, &issue.id)?.map(|one| TakenOverView {
            by: one.by,
            at: one.at,
        }),
        title: issue.title,
        url: issue.url,
        decision,
        history: earlier,
        job: jobs_view.first().cloned(),
        pull_requests: pull_views(tx, &jobs, now)?,
        jobs: jobs_view,
    }))
}

/// Issue that decisions or jobs know.
struct KnownIssue {
    issue: IssueRef,
    history: Option<DecisionHistory>,
    /// Jobs, oldest first.
    jobs: Vec<Job>,
}

/// Finds an issue by its key, else by its id.
fn find(tx: &ReadTx, key: &IssueKey) -> StoreResult<Option<KnownIssue>> {
    let id = IssueId::from(key.as_str());
    let mut history = decisions::get_named(tx, key)?;
    let jobs = jobs_of(tx, key)?;
    if history.is_none() {
        history = match jobs.last() {
            // A team may have reused the key for another issue.
            Some(job) => {
                decisions::get(tx, &job.issue.key)?.filter(|row| row.issue.id == job.issue.id)
            }
            None => decisions::find_by_issue(tx, &id)?,
        };
    }
    let of_history = history.as_ref().map(|row| row.issue.clone());
    let issue = of_history.or_else(|| jobs.last().map(|job| job.issue.clone()));
    Ok(issue.map(|issue| KnownIssue {
        issue,
        history,
        jobs,
    }))
}

/// Loads the jobs of the issue with this key or id, oldest first.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn jobs_of(tx: &impl ReadableTx, key: &IssueKey) -> StoreResult<Vec<Job>> {
    let id = job_index::issue_named(tx, key.as_str())?;
    id.map_or(Ok(Vec::new()), |id| jobs::of_issue(tx, &id))
}

/// Returns the decision in force: that of the last poll, unless the last run failed after it.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn current_decision(
    tx: &impl ReadableTx,
    history: Option<&DecisionHistory>,
    jobs: &[Job],
    now: Timestamp,
) -> StoreResult<Option<Decision>> {
    let last = history.and_then(DecisionHistory::current);
    let is_parked = match jobs.last() {
        Some(job) => dispatch_breaker::get(tx, &job.issue.id)?.is_some(),
        None => false,
    };
    let failed = decision::decision_after_failure(jobs, last, is_parked, now);
    Ok(failed.or_else(|| last.cloned()))
}

/// Returns the jobs of one issue as JSON, newest first.
fn job_views(tx: &impl ReadableTx, jobs: &[Job]) -> StoreResult<Vec<Value>> {
    let mut groups = HashMap::new();
    if let Some(job) = jobs.last() {
        JobGroupStatus::of_issue(tx, &job.issue.id, &mut groups)?;
    }
    let view = |job: &Job| {
        let group = groups.get(&job.group).copied().unwrap_or_default();
        json!(JobView::of(job, group))
    };
    Ok(jobs.iter().rev().map(view).collect())
}

/// Returns the pull requests of jobs, newest first.
fn pull_views(tx: &impl ReadableTx, jobs: &[Job], now: Timestamp) -> StoreResult<Vec<PullView>> {
    let mut ids: Vec<PullRequestId> = Vec::new();
    for job in jobs.iter().rev() {
        ids.extend(PullRequestId::of_job(job).filter(|id| !ids.contains(id)));
    }
    let views = ids.iter().map(|id| pulls::view(tx, id, now));
    Ok(views
        .collect::<StoreResult<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Returns the updates of an issue and its runs that are not made yet, those that were given up first.
fn pending_updates(
    tx: &impl ReadableTx,
    issue: &IssueRef,
    jobs: &[Job],
) -> StoreResult<Vec<PendingUpdateView>> {
    let of_jobs = jobs.iter().flat_map(queue_keys_of_run);
    let queue_keys: BTreeSet<String> = of_jobs.chain([ticket_queue_key(issue)]).collect();
    let view = |entry: OutboxEntry, given_up| PendingUpdateView {
        description: entry.effect.description(),
        attempts: entry.attempts,
        last_error: entry.last_error,
        given_up,
    };
    let dead = outbox::dead(tx)?.into_iter();
    let dead = dead.filter(|entry| queue_keys.contains(&entry.queue_key));
    let mut views: Vec<_> = dead.map(|entry| view(entry, true)).collect();
    for queue_key in &queue_keys {
        let entries = outbox::of_queue_key(tx, queue_key)?.into_iter();
        views.extend(entries.map(|entry| view(entry, false)));
    }
    Ok(views)
}

/// JSON representation of the decisions about an issue, with its runs.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "IssueDecisions")]
pub struct IssueDecisionView {
    identifier: IssueKey,
    title: String,
    url: String,
    /// Current decision.
    decision: Option<Decision>,
    /// Earlier decisions, newest first.
    history: Vec<Decision>,
    /// Last job, if there is one.
    #[schemars(with = "Option<JobView<'_>>")]
    job: Option<Value>,
    /// All jobs, newest first.
    #[schemars(with = "Vec<JobView<'_>>")]
    jobs: Vec<Value>,
    /// All pull requests, newest first.
    pull_requests: Vec<PullView>,
    /// Person who continues the work by hand.
    taken_over: Option<TakenOverView>,
    /// Updates at vendors that are not made yet, among them cancellations of its runs.
    pending_updates: Vec<PendingUpdateView>,
}

/// Person who continues the work on an issue by hand.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TakenOver")]
struct TakenOverView {
    /// Name of the person.
    by: String,
    /// Time since when the person has it.
    at: Timestamp,
}

/// Update at a vendor that is not made yet.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PendingUpdate")]
struct PendingUpdateView {
    /// What the update does, for operators.
    #[schemars(example = "cancel run")]
    description: String,
    attempts: u32,
    last_error: Option<String>,
    /// Whether it is no longer retried, until an operator retries or drops it.
    given_up: bool,
}
