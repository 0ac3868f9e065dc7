//! Reserving a run.
//!
//! Whoever asks for a run — the poll, a comment, an operator — ends up here, inside a write
//! transaction, where what they saw may no longer hold. Only this transaction decides.

use ulid::Ulid;

use crate::app::App;
use crate::config::Config;
use domain::audit::{Action, Actor};
use domain::branch::branch_name;
use domain::caps::{DEFAULT_JOB_MINUTES, DEFAULT_SESSION_MINUTES, MAX_SESSION_MINUTES};
use domain::effect::{Effect, RunBrief, ticket_lane};
use domain::ids::{IssueId, JobId, Repo};
use domain::image::{self, Asked};
use domain::issue::{FlaggedIssue, IssueRef, Phase, Related};
use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::machine::SessionBrief;
use domain::mapping::{Mapping, PLAN_WORKFLOW};
use domain::runner_mode::{self, Placement, RunnerMode};
use domain::time::Timestamp;
use store::dedup::DedupEntry;
use store::{Rows, StoreResult, WriteTx, audit, contexts, dedup, jobs, mappings, outbox};

use super::{budget, limit};

/// A run that somebody decided to start.
#[derive(Debug, Clone)]
pub struct Plan {
    pub issue: FlaggedIssue,
    pub phase: Phase,
    /// The image that the repository asks for.
    pub image: Asked,
}

/// Where a new run executes, and in what image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub runner: RunnerKind,
    pub image: Option<String>,
    /// Whether the repository may ask for another image.
    pub image_unread: bool,
    /// The image of the machine that runs beside it, where one does.
    pub shadow: Option<String>,
}

impl Place {
    /// Where the next run of this mapping executes, in the image that its repository asks for, else
    /// in the operator's. None when it cannot run anywhere now.
    pub fn of(
        app: &App,
        tx: &impl Rows,
        mapping: &Mapping,
        asked: Asked,
    ) -> StoreResult<Option<Self>> {
        let placed = runner_mode::place(app.runner_mode(tx)?, mapping, app.available());
        Ok(placed.ok().map(|placement| {
            let runner = placement.runner();
            let repo = mapping.target();
            let shadow = (placement == Placement::Shadow)
                .then(|| image_of(app, RunnerKind::Vm, &repo, asked.clone()))
                .flatten();
            Self {
                runner,
                image_unread: asked == Asked::Unread,
                image: image_of(app, runner, &repo, asked),
                shadow,
            }
        }))
    }
}

/// The image of a run: what its repository asks for, else the operator's.
pub(super) fn image_of(app: &App, runner: RunnerKind, repo: &Repo, asked: Asked) -> Option<String> {
    let configured = match runner {
        RunnerKind::Local => Some(app.config.containers.image.as_str()),
        RunnerKind::Ci | RunnerKind::Vm => app.config.session_image.as_deref(),
    };
    image::resolve(runner, repo, asked.image(), configured)
}

/// Why no run of this mapping and phase can start in this mode, whatever the issue.
pub fn ineligible(app: &App, mode: RunnerMode, mapping: &Mapping, phase: Phase) -> Option<String> {
    let config = &app.config;
    if let Some(trouble) = app.store.space().trouble() {
        return Some(format!("The service's disk: {trouble}."));
    }
    if config.github.is_none() {
        return Some(
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY."
                .to_owned(),
        );
    }
    if let Err(why) = runner_mode::place(mode, mapping, app.available()) {
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
    plan: &Plan,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let (issue, config) = (&plan.issue.issue, &app.config);
    let takes_it = |mapping: &Mapping| mapping.system() == issue.system && !mapping.paused;
    let Some(mapping) = mappings::get(tx, &plan.issue.team)?.filter(takes_it) else {
        return Ok(None);
    };
    let earlier = of_issue(tx, &issue.id)?;
    let deduped =
        dedup::get(tx, &issue.id)?.is_some_and(|entry| entry.holds(config.dedup_window, now));
    if deduped
        || earlier.iter().any(Job::is_active)
        || !has_slot(tx, &mapping)?
        || is_owed(tx, plan)?
        || budget::used_up(tx, &mapping, now)?.is_some()
        || limit::until(tx, app, &mapping, now)?.is_some()
    {
        return Ok(None);
    }
    let Some(place) = Place::of(app, tx, &mapping, plan.image.clone())? else {
        return Ok(None);
    };
    let kind = plan.phase.into();
    let (shadow, image_unread) = (place.shadow.clone(), place.image_unread);
    let job = Job {
        asked_at: Some(plan.issue.stage),
        ..new_job(config, &mapping, place, kind, issue, &earlier, now)
    };
    let (description, related) = (&plan.issue.description, &plan.issue.related);
    let brief_of = |job: &Job| RunBrief {
        image_unread,
        ..brief(&mapping, job, description, related)
    };
    let by = Actor::service();
    start(tx, &by, &job, brief_of(&job), now)?;
    if let Some(image) = shadow {
        let shadow = shadow_of(&job, &mapping, image, now);
        start(tx, &by, &shadow, brief_of(&shadow), now)?;
    }
    dedup::forget_aged(tx, config.dedup_window, now)?;
    dedup::put(
        tx,
        &DedupEntry {
            issue: issue.clone(),
            dispatched_at: now,
        },
    )?;
    contexts::put_related(tx, &issue.id, related)?;
    Ok(Some(job.id))
}

/// The jobs of an issue that count, oldest first.
pub(super) fn of_issue(tx: &impl Rows, issue: &IssueId) -> StoreResult<Vec<Job>> {
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
        minutes: minutes(mapping, RunnerKind::Vm),
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
pub(super) fn start(
    tx: &WriteTx<'_>,
    by: &Actor,
    job: &Job,
    brief: RunBrief,
    now: Timestamp,
) -> StoreResult<()> {
    jobs::put(tx, job)?;
    let deed = by.did(Action::RunDispatched, &job.issue.key);
    audit::append(tx, &deed.told(told(job)), now)?;
    let start = Effect::StartRun {
        job: job.id.clone(),
        issue: job.issue.clone(),
        brief: Box::new(brief),
    };
    outbox::push(tx, &start, now).map(drop)
}

/// What the audit says of a run.
pub(super) fn told(job: &Job) -> String {
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

fn is_owed(tx: &WriteTx<'_>, plan: &Plan) -> StoreResult<bool> {
    Ok(outbox::lanes(tx)?.contains(&ticket_lane(&plan.issue.issue)))
}

/// A job that nobody outside knows of yet, on the branch of its issue. `earlier` are the issue's
/// jobs so far.
pub(super) fn new_job(
    config: &Config,
    mapping: &Mapping,
    place: Place,
    kind: JobKind,
    issue: &IssueRef,
    earlier: &[Job],
    now: Timestamp,
) -> Job {
    let id = fresh_id(now);
    let repo = mapping.target();
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
        callbacks: config.has_callbacks(),
        minutes: minutes(mapping, place.runner),
        state: JobState::Unknown,
        run: None,
        pull: None,
        conclusion: None,
        refused_with: None,
        reserved_at: now,
        dispatched_at: None,
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
        nonce_hash: None,
        failure_told: false,
        machine_gone_at: None,
        asked_at: None,
        resumes_at: None,
        reported: false,
        held: None,
    }
}

/// What the run of a job is started with, by the mapping as it is now.
pub(super) fn brief(
    mapping: &Mapping,
    job: &Job,
    description: &str,
    related: &Related,
) -> RunBrief {
    let workflow_file = match (job.kind, &mapping.planning_workflow_file) {
        (JobKind::Planning, Some(file)) => file.clone(),
        (JobKind::Planning, None) => PLAN_WORKFLOW.to_owned(),
        (JobKind::Implementation | JobKind::GapFill | JobKind::FollowUp, _) => {
            mapping.workflow_file.clone()
        }
    };
    RunBrief {
        workflow_file,
        git_ref: mapping.default_branch.clone(),
        description: description.to_owned(),
        related: related.clone(),
        provider: mapping.provider.clone(),
        pr_number: None,
        instruction: None,
        findings: None,
        runner_image: job.session_image.clone(),
        image_unread: false,
        max_turns: mapping.max_turns,
        max_iterations: mapping.max_iterations,
        // Nobody but us ends a session, so it must know its time.
        job_timeout_minutes: match job.runner {
            RunnerKind::Ci => mapping.max_job_minutes,
            RunnerKind::Vm | RunnerKind::Local => Some(job.minutes),
        },
        shadow: job.shadow,
        session: job.runner.host().map(|_| SessionBrief::of(mapping)),
    }
}
