//! Updates of the branches of open pull requests from their base branch: by the host if a branch is behind, by a run
//! if it is in conflict. One at a time per repository, in the order of [`feedback::next_updates`].
//!
//! Before an update starts, the state of the pull request is read again, because a sweep may have read it minutes ago.
//! If that fails, a later cycle tries again.

use crate::app::App;
use domain::audit::Actor;
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{
    self, BranchUpdate, ConflictAttempt, FollowUpPolicy, HostUpdate, PullRequestId,
    PullRequestRecord,
};
use domain::ids::{JobId, Repo};
use domain::issue::IssueLookup;
use domain::job::{AfterCancel, Job, JobKind};
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, job_index, outbox, pull_feedback};
use vendors::scm::GitHub;

use super::landing;
use super::readiness;
use super::run::{self, PullRunRequest};
use super::stored_pull::{StoredPull, current_ticket};
use super::wait_comments;
use crate::repo_image;

/// Name of the comment about a pull request to another branch than the project's.
const OTHER_BASE_COMMENT: &str = "conflict-base";

/// Name of the comment about the limit of automatic runs.
const LIMIT_COMMENT: &str = "conflict-limit";

/// What is due on a pull request.
pub(super) enum DueStep {
    /// An update starts.
    Update(PullRequestId, BranchUpdate, Box<StoredPull>),
    /// A run must wait until this time, because of the limit of automatic runs.
    Limited(PullRequestId, Timestamp),
    /// The pull request goes to the first branch, not to the project's.
    OtherBase(PullRequestId, String, String),
}

impl DueStep {
    /// Returns the pull request that the step is about.
    pub(super) fn pull(&self) -> &PullRequestId {
        match self {
            Self::Update(pull, ..) | Self::Limited(pull, _) | Self::OtherBase(pull, ..) => pull,
        }
    }
}

/// Pull request with its record.
type KnownPull = (PullRequestId, PullRequestRecord);

/// Reads the records of pull requests.
pub(super) fn read_records(
    tx: &impl ReadableTx,
    pulls: impl IntoIterator<Item = PullRequestId>,
) -> StoreResult<Vec<KnownPull>> {
    let read = |pull| {
        let record = pull_feedback::get_pull(tx, &pull)?;
        Ok((pull, record))
    };
    pulls.into_iter().map(read).collect()
}

/// Returns what is due on the open pull requests of a repository: at most one update, after everything that was passed
/// over with a comment.
pub(super) fn due_steps(
    tx: &impl ReadableTx,
    app: &App,
    open: &[KnownPull],
    now: Timestamp,
) -> StoreResult<Vec<DueStep>> {
    let records = open.iter().map(|(pull, record)| (pull.number, record));
    let needed = feedback::next_updates(records, false, now);
    let mut steps = Vec::new();
    let Some((PullRequestId { repo, .. }, _)) = open.first().filter(|_| !needed.is_empty()) else {
        return Ok(steps);
    };
    if has_active_run(tx, repo)? {
        return Ok(steps);
    }
    for (number, update) in needed {
        let pull = PullRequestId::new(repo, number);
        let stored = StoredPull::read(tx, app, &pull, now)?;
        let Some(stored) = stored.filter(StoredPull::allows_automatic_work) else {
            continue;
        };
        if update == BranchUpdate::ByRun {
            let (of_pull, of_project) = (
                &stored.record.readiness.base_branch,
                &stored.mapping.default_branch,
            );
            if let Some(base) = of_pull.as_ref().filter(|base| *base != of_project) {
                steps.push(DueStep::OtherBase(pull, base.clone(), of_project.clone()));
                continue;
            }
            let policy = FollowUpPolicy::default();
            if let Some(until) = feedback::automatic_runs_resume_at(&policy, &stored.jobs, now) {
                steps.push(DueStep::Limited(pull, until));
                continue;
            }
        }
        steps.push(DueStep::Update(pull, update, Box::new(stored)));
        break;
    }
    Ok(steps)
}

/// Whether a run for a conflict is active in a repository.
fn has_active_run(tx: &impl ReadableTx, repo: &Repo) -> StoreResult<bool> {
    let active = job_index::active_of_kind(tx, JobKind::Conflict)?;
    Ok(active.iter().any(|job| job.repo == *repo))
}

/// Performs a step.
pub(super) async fn perform(
    app: &App,
    github: &GitHub,
    step: DueStep,
    now: Timestamp,
) -> StoreResult<()> {
    match step {
        DueStep::Limited(pull, until) => {
            let body = comments::conflict_limit_reached(until);
            wait_comments::post_once(&app.core, &pull, until, LIMIT_COMMENT, body).await
        }
        DueStep::OtherBase(pull, base, of_project) => {
            refuse_base(app, pull, base, of_project, now).await
        }
        DueStep::Update(pull, update, stored) => {
            match (readiness::update(app, github, &pull).await?, update) {
                (false, _) => Ok(()),
                (true, BranchUpdate::ByHost) => update_by_host(app, pull).await,
                (true, BranchUpdate::ByRun) => update_by_run(app, pull, &stored).await,
            }
        }
    }
}

/// Comments once that conflicts with another branch than the project's are left to people.
async fn refuse_base(
    app: &App,
    pull: PullRequestId,
    base: String,
    of_project: String,
    now: Timestamp,
) -> StoreResult<()> {
    let refused = app
        .core
        .store
        .read(|tx| pull_feedback::get_pull(tx, &pull))?;
    if refused.updates.refused_base.as_ref() == Some(&base) {
        return Ok(());
    }
    let comment = Effect::PullComment {
        repo: pull.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::Sticky {
            name: OTHER_BASE_COMMENT.to_owned(),
        },
        body: comments::conflict_with_other_base(&base, &of_project),
    };
    let write = app.core.store.write(move |tx| {
        let mut record = pull_feedback::get_pull(tx, &pull)?;
        record.updates.refused_base = Some(base.clone());
        pull_feedback::put_pull(tx, &pull, &record)?;
        outbox::push(tx, &comment, now).map(drop)
    });
    write.await
}

/// Returns the pull request if this update of it is still the next of its repository.
fn confirm(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    update: BranchUpdate,
    now: Timestamp,
) -> StoreResult<Option<StoredPull>> {
    let numbers = pull_feedback::open_pulls_of(tx, &pull.repo)?;
    let open = numbers
        .into_iter()
        .map(|number| PullRequestId::new(&pull.repo, number));
    let next = due_steps(tx, app, &read_records(tx, open)?, now)?.pop();
    Ok(match next {
        Some(DueStep::Update(next, kind, stored)) if next == *pull && kind == update => {
            Some(*stored)
        }
        _ => None,
    })
}

async fn update_by_host(app: &App, pull: PullRequestId) -> StoreResult<()> {
    let (handle, now) = (app.clone(), app.core.now());
    let write = app.core.store.write(move |tx| {
        let stored = confirm(tx, &handle, &pull, BranchUpdate::ByHost, now)?;
        let Some((stored, (head, base))) = stored.and_then(with_commits) else {
            return Ok(None);
        };
        let effect = Effect::UpdateBranch {
            repo: pull.repo.clone(),
            number: pull.number,
            expected_head: head.clone(),
        };
        let mut record = stored.record;
        record.updates.by_host = Some(HostUpdate {
            head,
            base,
            at: now,
        });
        pull_feedback::put_pull(tx, &pull, &record)?;
        outbox::push(tx, &effect, now)?;
        Ok(Some(pull.clone()))
    });
    if let Some(pull) = write.await? {
        landing::crash_if_planned(app);
        tracing::info!(repo = %pull.repo, pull = pull.number, "Requested the update of a branch that is behind.");
    }
    Ok(())
}

fn with_commits(stored: StoredPull) -> Option<(StoredPull, (String, String))> {
    let (head, base) = stored.record.commits()?;
    let commits = (head.to_owned(), base.to_owned());
    Some((stored, commits))
}

async fn update_by_run(app: &App, pull: PullRequestId, stored: &StoredPull) -> StoreResult<()> {
    let branch = &stored.mapping.default_branch;
    let external = async {
        let ticket = current_ticket(&app.vendors, stored).await?;
        let image = repo_image::fetch(app, &pull.repo, branch).await?;
        Ok::<_, String>((ticket, image))
    };
    let (ticket, image) = match external.await {
        Ok(external) => external,
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Postponed a run for a conflict.");
            return Ok(());
        }
    };
    let (handle, pull_id, now) = (app.clone(), pull.clone(), app.core.now());
    let reserved = app
        .core
        .store
        .write(move |tx| reserve(tx, &handle, &pull_id, &ticket, &image, now));
    if let Some(job) = reserved.await? {
        landing::crash_if_planned(app);
        tracing::info!(job_id = %job, repo = %pull.repo, pull = pull.number, "Reserved a run for a conflict.");
    }
    Ok(())
}

/// Reserves the run and records the attempt, if it is still due.
fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    ticket: &IssueLookup,
    image: &RequestedImage,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let stored = confirm(tx, app, pull, BranchUpdate::ByRun, now)?;
    let Some((stored, (head, base))) = stored.and_then(with_commits) else {
        return Ok(None);
    };
    let request = PullRunRequest {
        kind: JobKind::Conflict,
        actor: Actor::service(),
        last_job: &stored.last_job,
        mapping: &stored.mapping,
        issue: ticket,
        instruction: None,
        findings: None,
        image: image.clone(),
    };
    let Some(job) = run::reserve(tx, app, request, now)? else {
        return Ok(None);
    };
    let attempt = ConflictAttempt {
        head,
        base,
        job: job.clone(),
    };
    let record = PullRequestRecord {
        updates: stored.record.updates.with_attempt(attempt),
        ..stored.record
    };
    pull_feedback::put_pull(tx, pull, &record)?;
    Ok(Some(job))
}

/// Forgets the attempt of an ended run that did not get to its work: it reached the usage limit of its model provider,
/// or an operator cancelled it with a retry.
pub(crate) fn settle_attempt(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let is_none = job.resumes_at.is_some() || job.after_cancel() == Some(AfterCancel::Retry);
    match (PullRequestId::of_job(job), job.kind) {
        (Some(pull), JobKind::Conflict) if is_none => forget_attempt(tx, &pull, job).map(drop),
        _ => Ok(()),
    }
}

/// Forgets the attempt of a run, so that the conflict gets another. Returns `false` if none is recorded, or if branch
/// or base branch have moved since.
pub(super) fn forget_attempt(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    job: &Job,
) -> StoreResult<bool> {
    let record = pull_feedback::get_pull(tx, pull)?;
    let commits = record.commits();
    let is_current = record.updates.attempts.iter().any(|attempt| {
        attempt.job == job.id
            && commits.is_some_and(|(head, base)| head == attempt.head && base == attempt.base)
    });
    let updates = record.updates.clone().without_attempt(&job.id);
    let row = PullRequestRecord { updates, ..record };
    pull_feedback::put_pull(tx, pull, &row)?;
    Ok(is_current)
}
