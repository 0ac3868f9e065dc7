//! Open work of the service on repositories, as the store and the last sweep know it. Sends no request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::pull_requests::reconcile::MAX_TRACKING_AGE;
use domain::collision::{ClaimedFiles, CollisionRule, comparable_files};
use domain::feedback::{PullRequestId, PullRequestRecord, ReviewDecision};
use domain::ids::{IssueId, Repo};
use domain::issue::{FlaggedIssue, Phase};
use domain::job::{Job, JobKind, JobState};
use domain::mapping::Mapping;
use domain::plan_approval::declared_files as declared_files_of;
use domain::repository_load::{HostKnowledge, OpenPull, OpeningRun, RepositoryLoad};
use domain::review_capacity;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, changed_files, job_index, jobs, pull_feedback};

/// Age of the last sweep of a repository after which its open pull requests are not known well enough: three sweeps.
const MAX_SWEEP_AGE: Duration = Duration::from_secs(30 * 60);

/// Returns the open work on these repositories. `active` are all active jobs.
pub(super) fn read(
    tx: &impl ReadableTx,
    app: &App,
    repos: BTreeSet<Repo>,
    active: &[Job],
    now: Timestamp,
) -> StoreResult<BTreeMap<Repo, RepositoryLoad>> {
    let mut loads = BTreeMap::new();
    for repo in repos {
        let mut load = RepositoryLoad {
            knowledge: knowledge(app, &repo, now),
            ..RepositoryLoad::default()
        };
        for number in pull_feedback::open_pulls_of(tx, &repo)? {
            let id = PullRequestId::new(&repo, number);
            if let Some(pull) = known_pull(tx, app, id, now)? {
                load.pulls.push(with_files(tx, pull)?);
            }
        }
        loads.insert(repo, load);
    }
    let opening = active
        .iter()
        .filter(|job| job.kind == JobKind::Implementation && job.pull.is_none() && !job.shadow);
    for job in opening {
        if let Some(load) = loads.get_mut(&job.repo) {
            load.runs.push(OpeningRun {
                issue: job.issue.id.clone(),
                key: job.issue.key.clone(),
                files: changed_files::declared(tx, &job.issue.id)?.into(),
            });
        }
    }
    Ok(loads)
}

/// Stores the files that a plan declares.
pub(super) fn put_declared<'t>(
    tx: &WriteTx<'_>,
    issue: &IssueId,
    plan: impl Iterator<Item = &'t String>,
) -> StoreResult<()> {
    let plan: Vec<String> = plan.cloned().collect();
    changed_files::put_declared(tx, issue, &comparable_files(declared_files_of(&plan)))
}

/// Files that the plans of flagged issues declare, as far as an implementation may start now.
pub(super) async fn declared_files(
    app: &App,
    issues: &[FlaggedIssue],
) -> StoreResult<BTreeMap<IssueId, Arc<[String]>>> {
    let waiting = issues.iter().filter(|issue| issue.stage.requires_run());
    let ids: Vec<IssueId> = waiting.map(|issue| issue.issue.id.clone()).collect();
    // Reads one row per issue, so it stays off the threads that serve requests.
    let declared = app.core.store.read_long(move |tx| {
        let mut declared = BTreeMap::new();
        for id in ids {
            let files = changed_files::declared(tx, &id)?;
            if !files.is_empty() {
                declared.insert(id, files.into());
            }
        }
        Ok(declared)
    });
    declared.await
}

/// Returns whether an implementation of an issue may start, as far as other work on the repository decides. Part of the
/// commit that reserves it.
pub(super) fn has_room(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    issue: &IssueId,
    phase: Phase,
    now: Timestamp,
) -> StoreResult<bool> {
    if phase != Phase::Implementation {
        return Ok(true);
    }
    let files = match mapping.collisions {
        CollisionRule::Allow => Vec::new(),
        CollisionRule::Wait => changed_files::declared(tx, issue)?,
    };
    if files.is_empty() && !review_capacity::is_limited(mapping) {
        return Ok(true);
    }
    let active = job_index::active_of_kind(tx, JobKind::Implementation)?;
    let loads = read(tx, app, [mapping.target_repo()].into(), &active, now)?;
    Ok(loads.values().all(|load| {
        let claimed = ClaimedFiles::of(load);
        review_capacity::full_message(load, mapping, issue, now).is_none()
            && claimed.collision_message(mapping, issue, &files).is_none()
    }))
}

/// Open pull request of the service, as the store knows it.
pub(super) struct KnownPull {
    pub id: PullRequestId,
    pub record: PullRequestRecord,
    /// Latest job.
    pub job: Job,
    pub opened_at: Timestamp,
    /// Whether it is no draft and not approved.
    pub awaits_review: bool,
}

/// Returns all open pull requests of the service. Those without a run for so long that they are not swept any more are
/// left out.
pub(super) fn open_pulls(
    tx: &impl ReadableTx,
    app: &App,
    now: Timestamp,
) -> StoreResult<Vec<KnownPull>> {
    let mut open = Vec::new();
    for id in pull_feedback::open_pulls(tx)? {
        open.extend(known_pull(tx, app, id, now)?);
    }
    Ok(open)
}

fn known_pull(
    tx: &impl ReadableTx,
    app: &App,
    id: PullRequestId,
    now: Timestamp,
) -> StoreResult<Option<KnownPull>> {
    let job = jobs::latest_of_pull(tx, &id)?;
    let Some(job) = job.filter(|job| now.since(job.reserved_at) <= MAX_TRACKING_AGE) else {
        return Ok(None);
    };
    let record = pull_feedback::get_pull(tx, &id)?;
    let is_approved = record.readiness.review_decision == Some(ReviewDecision::Approved);
    let is_draft = is_draft(&record, &job, app.live.reconciliation.swept_at(&id.repo));
    let named_at = record.opening.as_ref().map(|opening| opening.at);
    Ok(Some(KnownPull {
        opened_at: record.created_at.or(named_at).unwrap_or(job.reserved_at),
        awaits_review: !is_approved && !is_draft,
        id,
        record,
        job,
    }))
}

fn with_files(tx: &impl ReadableTx, pull: KnownPull) -> StoreResult<OpenPull> {
    let issue = pull.job.issue;
    let files: Arc<[String]> = match changed_files::of_pull(tx, &pull.id)? {
        Some(changed) => changed.files.into(),
        // Until the host was read, what the plan says.
        None => changed_files::declared(tx, &issue.id)?.into(),
    };
    Ok(OpenPull {
        number: pull.id.number,
        issue: issue.id,
        key: issue.key,
        opened_at: pull.opened_at,
        awaits_review: pull.awaits_review,
        files,
    })
}

/// Whether a pull request is a draft: as the last run left it, unless GitHub was read since.
fn is_draft(record: &PullRequestRecord, last_job: &Job, swept_at: Option<Timestamp>) -> bool {
    let is_reported = last_job.finished_at < swept_at;
    match last_job.state {
        JobState::ReviewFailed { .. } if !is_reported => true,
        JobState::Completed if !is_reported => false,
        _ => record.draft.unwrap_or_default(),
    }
}

fn knowledge(app: &App, repo: &Repo, now: Timestamp) -> HostKnowledge {
    match app.live.reconciliation.swept_at(repo) {
        None => HostKnowledge::Unread,
        Some(at) if now.since(at) > MAX_SWEEP_AGE => HostKnowledge::Old(at),
        Some(_) => HostKnowledge::Current,
    }
}
