//! Reserving a run.
//!
//! Whoever asks for a run — the poll, a comment, an operator — ends up here, inside a write
//! transaction, where what they saw may no longer hold. Only this transaction decides.

use ulid::Ulid;

use crate::config::Config;
use crate::domain::branch::branch_name;
use crate::domain::caps::DEFAULT_JOB_MINUTES;
use crate::domain::effect::{Effect, RunBrief, ticket_lane};
use crate::domain::ids::JobId;
use crate::domain::issue::{FlaggedIssue, IssueRef, Phase, Related};
use crate::domain::job::{Job, JobKind, JobState, RunnerKind};
use crate::domain::mapping::{ExecutionMode, Mapping, PLAN_WORKFLOW};
use crate::domain::time::Timestamp;
use crate::store::dedup::DedupEntry;
use crate::store::{StoreResult, WriteTx, contexts, dedup, jobs, mappings, outbox};

/// A run that somebody decided to start.
#[derive(Debug, Clone)]
pub struct Plan {
    pub issue: FlaggedIssue,
    pub phase: Phase,
}

/// Why no run of this mapping and phase can start, whatever the issue.
pub fn ineligible(config: &Config, mapping: &Mapping, phase: Phase) -> Option<String> {
    if config.github.is_none() {
        return Some(
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY."
                .to_owned(),
        );
    }
    if mapping.execution_mode == ExecutionMode::VmMachines {
        return Some("VM sessions are not configured.".to_owned());
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
    config: &Config,
    plan: &Plan,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let issue = &plan.issue.issue;
    let Some(mapping) = mappings::get(tx, &plan.issue.team)?.filter(|mapping| !mapping.paused)
    else {
        return Ok(None);
    };
    let earlier = jobs::of_issue(tx, &issue.id)?;
    let deduped =
        dedup::get(tx, &issue.id)?.is_some_and(|entry| entry.holds(config.dedup_window, now));
    if deduped
        || earlier.iter().any(Job::is_active)
        || !has_slot(tx, &mapping)?
        || is_owed(tx, plan)?
    {
        return Ok(None);
    }
    let job = new_job(config, &mapping, plan.phase.into(), issue, &earlier, now);
    let (description, related) = (&plan.issue.description, &plan.issue.related);
    let brief = brief(config, &mapping, job.kind, description, related);
    start(tx, &job, brief, now)?;
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

/// Stores a job and owes its start.
pub(super) fn start(
    tx: &WriteTx<'_>,
    job: &Job,
    brief: RunBrief,
    now: Timestamp,
) -> StoreResult<()> {
    jobs::put(tx, job)?;
    let start = Effect::StartRun {
        job: job.id.clone(),
        issue: job.issue.clone(),
        brief: Box::new(brief),
    };
    outbox::push(tx, &start, now).map(drop)
}

fn has_slot(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<bool> {
    let active = jobs::active(tx)?;
    let taken = active
        .iter()
        .filter(|job| job.team == mapping.team_key && job.kind.phase().is_some())
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
    kind: JobKind,
    issue: &IssueRef,
    earlier: &[Job],
    now: Timestamp,
) -> Job {
    let id = JobId::new(Ulid::from_parts(now.as_millis(), fastrand::u128(..)).to_string());
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
        runner: RunnerKind::Ci,
        shadow: false,
        session_image: config.session_image.clone(),
        dispatch_number: u32::try_from(earlier.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1),
        callbacks: config.has_callbacks(),
        minutes: mapping.max_job_minutes.unwrap_or(DEFAULT_JOB_MINUTES),
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
        machine_gone_at: None,
        reported: false,
    }
}

/// What a run of this kind is started with, by the mapping as it is now.
pub(super) fn brief(
    config: &Config,
    mapping: &Mapping,
    kind: JobKind,
    description: &str,
    related: &Related,
) -> RunBrief {
    let workflow_file = match (kind, &mapping.planning_workflow_file) {
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
        runner_image: config.session_image.clone(),
        max_turns: mapping.max_turns,
        max_iterations: mapping.max_iterations,
        job_timeout_minutes: mapping.max_job_minutes,
    }
}
