//! Reserving a run.
//!
//! Whoever asks for a run — the poll, a comment, an operator — ends up here, inside a write
//! transaction, where what they saw may no longer hold. Only this transaction decides.

use ulid::Ulid;

use crate::app::App;
use crate::config::Config;
use domain::audit::{Action, Actor};
use domain::branch::branch_name;
use domain::effect::{Effect, RunSpec, ticket_queue_key};
use domain::ids::{IssueId, JobId, Repo};
use domain::issue::{FlaggedIssue, IssueRef, Phase, RelatedIssues};
use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::limits::{DEFAULT_JOB_MINUTES, DEFAULT_SESSION_MINUTES, MAX_SESSION_MINUTES};
use domain::machine::SessionSpec;
use domain::mapping::{Mapping, PLAN_WORKFLOW};
use domain::runner_image::{self, RequestedImage};
use domain::runner_mode::{self, Placement, RunnerMode};
use domain::time::Timestamp;
use store::dedup::DedupEntry;
use store::{
    ReadableTx, StoreResult, WriteTx, audit, dedup, issue_contexts, jobs, mappings, outbox,
};

use super::{budget, provider_limit};

/// A run that somebody decided to start.
#[derive(Debug, Clone)]
pub struct DispatchRequest {
    pub issue: FlaggedIssue,
    pub phase: Phase,
    /// The image that the repository asks for.
    pub image: RequestedImage,
}

/// Where a new run executes, and in what image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerAssignment {
    pub runner: RunnerKind,
    pub image: Option<String>,
    /// Whether the repository may ask for another image.
    pub is_image_unresolved: bool,
    /// The image of the machine that runs beside it, where one does.
    pub shadow_image: Option<String>,
}

impl RunnerAssignment {
    /// Where the next run of this mapping executes, in the image that its repository asks for, else
    /// in the operator's. None when it cannot run anywhere now.
    pub fn resolve(
        app: &App,
        tx: &impl ReadableTx,
        mapping: &Mapping,
        asked: RequestedImage,
    ) -> StoreResult<Option<Self>> {
        let placed =
            runner_mode::choose_placement(app.runner_mode(tx)?, mapping, app.available_runners());
        Ok(placed.ok().map(|placement| {
            let runner = placement.runner();
            let repo = mapping.target_repo();
            let shadow = (placement == Placement::Shadow)
                .then(|| resolve_image(app, RunnerKind::Vm, &repo, asked.clone()))
                .flatten();
            Self {
                runner,
                is_image_unresolved: asked == RequestedImage::LookupFailed,
                image: resolve_image(app, runner, &repo, asked),
                shadow_image: shadow,
            }
        }))
    }
}

/// The image of a run: what its repository asks for, else the operator's.
pub(super) fn resolve_image(
    app: &App,
    runner: RunnerKind,
    repo: &Repo,
    asked: RequestedImage,
) -> Option<String> {
    let configured = match runner {
        RunnerKind::Local => Some(app.config.containers.image.as_str()),
        RunnerKind::Ci | RunnerKind::Vm => app.config.session_image.as_deref(),
    };
    runner_image::resolve_image(runner, repo, asked.into_image(), configured)
}

/// Why no run of this mapping and phase can start in this mode, whatever the issue.
pub fn ineligible_reason(
    app: &App,
    mode: RunnerMode,
    mapping: &Mapping,
    phase: Phase,
) -> Option<String> {
    let config = &app.config;
    if let Some(trouble) = app.store.disk_space().problem() {
        return Some(format!("The service's disk: {trouble}."));
    }
    if config.github.is_none() {
        return Some(
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY."
                .to_owned(),
        );
    }
    if let Err(why) = runner_mode::choose_placement(mode, mapping, app.available_runners()) {
        return Some(why);
    }
    let silent = phase == Phase::Planning && !config.has_callbacks();
    silent.then(|| {
        "Planning needs runs that report: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET."
            .to_owned()
    })
}

/// Reserves a run: job, dedup entry, what stands around the issue, and the effect that starts it.
/// None when something has changed since it was decided; the next poll tells what.
pub fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    plan: &DispatchRequest,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let (issue, config) = (&plan.issue.issue, &app.config);
    let takes_it = |mapping: &Mapping| mapping.system() == issue.system && !mapping.paused;
    let Some(mapping) = mappings::get(tx, &plan.issue.team)?.filter(takes_it) else {
        return Ok(None);
    };
    let earlier = non_shadow_jobs(tx, &issue.id)?;
    let deduped =
        dedup::get(tx, &issue.id)?.is_some_and(|entry| entry.is_active(config.dedup_window, now));
    if deduped
        || earlier.iter().any(Job::is_active)
        || !has_slot(tx, &mapping)?
        || is_owed(tx, plan)?
        || budget::exhausted(tx, &mapping, now)?.is_some()
        || provider_limit::limited_until(tx, app, &mapping, now)?.is_some()
    {
        return Ok(None);
    }
    let Some(place) = RunnerAssignment::resolve(app, tx, &mapping, plan.image.clone())? else {
        return Ok(None);
    };
    let kind = plan.phase.into();
    let (shadow, image_unread) = (place.shadow_image.clone(), place.is_image_unresolved);
    let job = Job {
        trigger_stage: Some(plan.issue.stage),
        ..new_job(config, &mapping, place, kind, issue, &earlier, now)
    };
    let (description, related) = (&plan.issue.description, &plan.issue.related);
    let brief_of = |job: &Job| RunSpec {
        image_lookup_failed: image_unread,
        ..brief(&mapping, job, description, related)
    };
    let by = Actor::service();
    enqueue_start(tx, &by, &job, brief_of(&job), now)?;
    if let Some(image) = shadow {
        let shadow = shadow_of(&job, &mapping, image, now);
        enqueue_start(tx, &by, &shadow, brief_of(&shadow), now)?;
    }
    dedup::remove_expired(tx, config.dedup_window, now)?;
    dedup::put(
        tx,
        &DedupEntry {
            issue: issue.clone(),
            dispatched_at: now,
        },
    )?;
    issue_contexts::put_related(tx, &issue.id, related)?;
    Ok(Some(job.id))
}

/// The jobs of an issue that count, oldest first.
pub(super) fn non_shadow_jobs(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Vec<Job>> {
    let mut jobs = jobs::of_issue(tx, issue)?;
    jobs.retain(|job| !job.shadow);
    Ok(jobs)
}

/// The run beside a job: in a machine, on a branch of its own, and told to nobody.
fn shadow_of(job: &Job, mapping: &Mapping, image: String, now: Timestamp) -> Job {
    Job {
        id: fresh_id(now),
        runner: RunnerKind::Vm,
        shadow: true,
        session_image: Some(image),
        branch: format!("{}-shadow", job.branch),
        timeout_minutes: minutes(mapping, RunnerKind::Vm),
        ..job.clone()
    }
}

fn fresh_id(now: Timestamp) -> JobId {
    JobId::new(Ulid::from_parts(now.as_millis(), fastrand::u128(..)).to_string())
}

/// How long a run may take.
fn minutes(mapping: &Mapping, runner: RunnerKind) -> u32 {
    let given = mapping.max_job_minutes;
    match runner {
        RunnerKind::Ci => given.unwrap_or(DEFAULT_JOB_MINUTES),
        RunnerKind::Vm | RunnerKind::Local => given
            .unwrap_or(DEFAULT_SESSION_MINUTES)
            .min(MAX_SESSION_MINUTES),
    }
}

/// Stores a job and owes its start, for whoever asked for it.
pub(super) fn enqueue_start(
    tx: &WriteTx<'_>,
    by: &Actor,
    job: &Job,
    brief: RunSpec,
    now: Timestamp,
) -> StoreResult<()> {
    jobs::put(tx, job)?;
    let deed = by.audit_event(Action::RunDispatched, &job.issue.key);
    audit::append(tx, &deed.with_detail(audit_details(job)), now)?;
    let start = Effect::StartRun {
        job: job.id.clone(),
        issue: job.issue.clone(),
        spec: Box::new(brief),
    };
    outbox::push(tx, &start, now).map(drop)
}

/// What the audit says of a run.
pub(super) fn audit_details(job: &Job) -> String {
    let (kind, runner) = (job.kind.as_str(), job.runner.as_str());
    let shadow = if job.shadow { "shadow " } else { "" };
    format!("{shadow}{kind} run {} on {runner} in {}", job.id, job.repo)
}

fn has_slot(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<bool> {
    let active = jobs::active(tx)?;
    let taken = active
        .iter()
        .filter(|job| job.team == mapping.team_key && job.kind.phase().is_some() && !job.shadow)
        .count();
    Ok(taken < mapping.max_in_progress as usize)
}

fn is_owed(tx: &WriteTx<'_>, plan: &DispatchRequest) -> StoreResult<bool> {
    Ok(outbox::queue_keys(tx)?.contains(&ticket_queue_key(&plan.issue.issue)))
}

/// A job that nobody outside knows of yet, on the branch of its issue. `earlier` are the issue's
/// jobs so far.
pub(super) fn new_job(
    config: &Config,
    mapping: &Mapping,
    place: RunnerAssignment,
    kind: JobKind,
    issue: &IssueRef,
    earlier: &[Job],
    now: Timestamp,
) -> Job {
    let id = fresh_id(now);
    let repo = mapping.target_repo();
    let kept_branch = earlier
        .iter()
        .rev()
        .find(|job| job.repo == repo)
        .map(|job| job.branch.clone());
    Job {
        group: earlier
            .first()
            .map_or_else(|| id.clone(), |first| first.group.clone()),
        id,
        kind,
        issue: issue.clone(),
        team: mapping.team_key.clone(),
        branch: kept_branch.unwrap_or_else(|| {
            branch_name(mapping.branch_prefix.as_deref(), &issue.key, &issue.title)
        }),
        repo,
        runner: place.runner,
        shadow: false,
        session_image: place.image,
        dispatch_number: u32::try_from(earlier.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1),
        has_callbacks: config.has_callbacks(),
        timeout_minutes: minutes(mapping, place.runner),
        state: JobState::Reserved,
        run: None,
        pull: None,
        conclusion: None,
        start_refusal_status: None,
        reserved_at: now,
        dispatched_at: None,
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        resumes_at: None,
        result_accepted: false,
        unconfirmed_result: None,
    }
}

/// What the run of a job is started with, by the mapping as it is now.
pub(super) fn brief(
    mapping: &Mapping,
    job: &Job,
    description: &str,
    related: &RelatedIssues,
) -> RunSpec {
    let workflow_file = match (job.kind, &mapping.planning_workflow_file) {
        (JobKind::Planning, Some(file)) => file.clone(),
        (JobKind::Planning, None) => PLAN_WORKFLOW.to_owned(),
        (JobKind::Implementation | JobKind::GapFill | JobKind::FollowUp, _) => {
            mapping.workflow_file.clone()
        }
    };
    RunSpec {
        workflow_file,
        git_ref: mapping.default_branch.clone(),
        description: description.to_owned(),
        related: related.clone(),
        provider: mapping.provider.clone(),
        pr_number: None,
        instruction: None,
        findings: None,
        runner_image: job.session_image.clone(),
        image_lookup_failed: false,
        max_turns: mapping.max_turns,
        max_iterations: mapping.max_iterations,
        // Nobody but us ends a session, so it must know its time.
        job_timeout_minutes: match job.runner {
            RunnerKind::Ci => mapping.max_job_minutes,
            RunnerKind::Vm | RunnerKind::Local => Some(job.timeout_minutes),
        },
        shadow: job.shadow,
        session: job
            .runner
            .host()
            .map(|_| SessionSpec::from_mapping(mapping)),
    }
}
