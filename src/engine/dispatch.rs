//! Reservation of runs.
//!
//! Every run, whether requested by the poll, a comment or an operator, is reserved here inside a
//! write transaction. The state that the caller saw may have changed; this transaction checks it
//! again.

use std::collections::BTreeSet;

use ulid::Ulid;

use crate::app::{App, Core};
use crate::config::Config;
use domain::agent_choice::{AgentChoice, JobAgents};
use domain::audit::{Action, Actor};
use domain::branch::branch_name;
use domain::decision::DecisionOutcome;
use domain::effect::{Effect, RunSpec, ticket_queue_key};
use domain::ids::{IssueId, JobId, Repo};
use domain::issue::{FlaggedIssue, IssueRef, Phase, RelatedIssues, stored_labels};
use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::limits::{DEFAULT_JOB_MINUTES, DEFAULT_SESSION_MINUTES, MAX_SESSION_MINUTES};
use domain::machine::SessionSpec;
use domain::mapping::{Mapping, PLAN_WORKFLOW, TicketingConfig};
use domain::report::FailureCode;
use domain::runner_image::{self, RequestedImage};
use domain::runner_mode::{self, Placement, RunnerMode};
use domain::stage::Stage;
use domain::time::Timestamp;
use store::dedup::DedupEntry;
use store::{
    ReadableTx, StoreResult, WriteTx, audit, decisions, dedup, issue_contexts, job_index, jobs,
    mappings, open_questions, operator_retries, outbox, take_overs,
};

use super::{budget, conversation, provider_limit, repository_load, time_zones};

/// Largest time of an id, in milliseconds.
const MAX_ID_MILLIS: u64 = (1 << Ulid::TIME_BITS) - 1;

/// Decision to start a run of an issue.
#[derive(Debug, Clone)]
pub struct DispatchRequest {
    /// Issue, with the context of the run.
    pub issue: FlaggedIssue,
    /// Phase of the run.
    pub phase: Phase,
    /// Image named by the repository.
    pub image: RequestedImage,
    /// Ticketing configuration of the mapping at the time of the decision.
    pub ticketing: Option<TicketingConfig>,
}

/// Runner and images of a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunnerAssignment {
    /// Runner that executes the run.
    pub runner: RunnerKind,
    /// Image of the run; `None` for a CI run in the workflow's own environment.
    pub image: Option<String>,
    /// Whether the image named by the repository could not be read yet.
    pub is_image_unresolved: bool,
    /// Image of the shadow run's machine, if there is a shadow run.
    pub shadow_image: Option<String>,
}

impl RunnerAssignment {
    /// Resolves the runner and image of the next run of a mapping. Returns `None` if no runner is
    /// available.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub(crate) fn resolve(
        app: &App,
        tx: &impl ReadableTx,
        mapping: &Mapping,
        requested: RequestedImage,
    ) -> StoreResult<Option<Self>> {
        let placed = runner_mode::choose_placement(
            app.core.runner_mode(tx)?,
            mapping,
            app.available_runners(),
        );
        Ok(placed.ok().map(|placement| {
            let runner = placement.runner();
            let repo = mapping.target_repo();
            let shadow = (placement == Placement::Shadow)
                .then(|| resolve_image(&app.core, RunnerKind::Vm, &repo, requested.clone()))
                .flatten();
            Self {
                runner,
                is_image_unresolved: requested == RequestedImage::LookupFailed,
                image: resolve_image(&app.core, runner, &repo, requested),
                shadow_image: shadow,
            }
        }))
    }
}

/// Image of a run: the image named by the repository, else the configured one.
pub(super) fn resolve_image(
    core: &Core,
    runner: RunnerKind,
    repo: &Repo,
    requested: RequestedImage,
) -> Option<String> {
    let configured = match runner {
        RunnerKind::Local => Some(core.config.containers.image.as_str()),
        RunnerKind::Ci | RunnerKind::Vm | RunnerKind::Kubernetes => {
            core.config.session_image.as_deref()
        }
    };
    runner_image::resolve_image(runner, repo, requested.into_image(), configured)
}

/// Returns the reason why no run of this mapping can start, independent of the issue.
pub(crate) fn ineligible_reason(app: &App, mode: RunnerMode, mapping: &Mapping) -> Option<String> {
    if let Some(trouble) = app.core.store.disk_space().problem() {
        return Some(format!("The service's disk: {trouble}."));
    }
    if app.vendors.github.is_none() {
        return Some(
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY."
                .to_owned(),
        );
    }
    runner_mode::choose_placement(mode, mapping, app.available_runners()).err()
}

/// Reserves a run: job, dedup entry, related issues, and the effect that starts it. Returns `None`
/// if the state has changed since the decision; the next poll decides again.
///
/// # Errors
/// Fails if the store cannot be written.
pub fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    request: &DispatchRequest,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let (issue, config) = (&request.issue.issue, &app.core.config);
    let accepts_runs = |mapping: &Mapping| {
        Some(&mapping.ticketing) == request.ticketing.as_ref() && !mapping.paused
    };
    let Some(mapping) = mappings::get(tx, &request.issue.team)?.filter(accepts_runs) else {
        return Ok(None);
    };
    let earlier = non_shadow_jobs(tx, &issue.id)?;
    let deduped =
        dedup::get(tx, &issue.id)?.is_some_and(|entry| entry.is_active(config.dedup_window, now));
    if deduped
        || earlier.iter().any(Job::is_active)
        || !has_slot(tx, &mapping)?
        || outbox::has_queue(tx, &ticket_queue_key(issue))?
        || budget::exhausted(tx, &mapping, now)?.is_some()
        || uncleared_issues(tx)?.contains(&issue.id)
        || open_questions::get(tx, &issue.id)?.is_some()
        || take_overs::get(tx, &issue.id)?.is_some()
        || is_outside_hours(tx, &mapping, &issue.id, now)?
        || !repository_load::has_room(tx, app, &mapping, &issue.id, request.phase, now)?
        || !conversation::is_plan_released(tx, &mapping, &request.issue, request.phase, now)?
    {
        return Ok(None);
    }
    let labels = &request.issue.agent_choice;
    let Ok(choice) = provider_limit::available_choice(tx, app, &mapping, labels, now)? else {
        return Ok(None);
    };
    let Some(assignment) = RunnerAssignment::resolve(app, tx, &mapping, request.image.clone())?
    else {
        return Ok(None);
    };
    if request.phase == Phase::Implementation {
        operator_retries::remove(tx, &issue.id)?;
    }
    conversation::begin_phase(tx, &request.issue, request.phase, &earlier)?;
    let kind = request.phase.into();
    let (shadow, image_lookup_failed) = (
        assignment.shadow_image.clone(),
        assignment.is_image_unresolved,
    );
    let job = Job {
        labels: issue_labels(app, request.issue.labels.as_deref().unwrap_or_default()),
        trigger_stage: Some(request.issue.stage),
        triggered_at: Some(trigger_time(tx, issue, &earlier, now)?),
        agents: JobAgents::of_choice(&choice),
        ..new_job(config, &mapping, assignment, kind, issue, &earlier, now)
    };
    let (description, related) = (&request.issue.description, &request.issue.related);
    let instruction = conversation::take_replan_instruction(tx, issue, request.phase)?;
    let spec_for = |job: &Job| -> StoreResult<RunSpec> {
        let mut spec = run_spec(&mapping, job, description, related, &choice);
        spec.options.may_not_ask = !conversation::may_ask(tx, &mapping, job)?;
        Ok(RunSpec {
            image_lookup_failed,
            instruction: instruction.clone(),
            ..spec
        })
    };
    let actor = Actor::service();
    enqueue_start(tx, &actor, &job, spec_for(&job)?, now)?;
    if let Some(image) = shadow {
        let shadow = shadow_of(&job, &mapping, image, now);
        enqueue_start(tx, &actor, &shadow, spec_for(&shadow)?, now)?;
    }
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

/// Labels of an issue as its jobs store them.
pub(super) fn issue_labels(app: &App, names: &[String]) -> Vec<String> {
    stored_labels(names, |text| app.secrets.redactor.sanitize(text))
}

/// Time of the request that a new run of an issue answers: the first decision of the wait that ends
/// now. Work that continues by itself, after a plan or a usage limit, answers the request of the
/// previous run.
fn trigger_time(
    tx: &impl ReadableTx,
    issue: &IssueRef,
    earlier: &[Job],
    now: Timestamp,
) -> StoreResult<Timestamp> {
    let continues = |job: &&Job| {
        let is_plan = job.kind == JobKind::Planning && job.state == JobState::Completed;
        let asked = matches!(
            job.state,
            JobState::Failed {
                code: Some(FailureCode::NeedsInput),
                ..
            }
        );
        is_plan || asked || job.resumes_at.is_some()
    };
    if let Some(before) = earlier.last().filter(continues)
        && let Some(at) = before.triggered_at
    {
        return Ok(at);
    }
    let history = decisions::get(tx, &issue.key)?;
    let decided = history.iter().flat_map(|history| history.decisions.iter());
    let waits = decided.rev().take_while(|decision| {
        let after_last_run = earlier
            .last()
            .is_none_or(|job| decision.at >= job.reserved_at);
        decision.outcome == DecisionOutcome::Waiting && after_last_run
    });
    Ok(waits.last().map_or(now, |first| first.at.min(now)))
}

/// Jobs of an issue without shadow jobs, oldest first.
pub(super) fn non_shadow_jobs(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Vec<Job>> {
    let mut jobs = jobs::of_issue(tx, issue)?;
    jobs.retain(|job| !job.shadow);
    Ok(jobs)
}

/// Shadow run of a job: on a machine and a branch of its own, without reports to people.
fn shadow_of(job: &Job, mapping: &Mapping, image: String, now: Timestamp) -> Job {
    Job {
        id: fresh_id(Some(&job.id), now),
        runner: RunnerKind::Vm,
        shadow: true,
        session_image: Some(image),
        branch: format!("{}-shadow", job.branch),
        timeout_minutes: timeout_minutes(mapping, RunnerKind::Vm),
        ..job.clone()
    }
}

/// Returns a new id, which sorts by the current time, but after the newest id of the issue: that one may be of a clock
/// that was ahead.
fn fresh_id(newest: Option<&JobId>, now: Timestamp) -> JobId {
    let earliest = newest.and_then(time_of).map_or(0, |newest| newest + 1);
    let millis = now.as_millis().max(earliest).min(MAX_ID_MILLIS);
    JobId::new(Ulid::from_parts(millis, fastrand::u128(..)).to_string())
}

/// Time of an id, in milliseconds: that of the reservation, or a later one. `None` if it was not made by this program.
pub(super) fn time_of(id: &JobId) -> Option<u64> {
    let id = Ulid::from_string(id.as_str()).ok()?;
    Some(id.timestamp_ms())
}

/// Timeout of a run, in minutes.
fn timeout_minutes(mapping: &Mapping, runner: RunnerKind) -> u32 {
    let configured = mapping.max_job_minutes;
    match runner {
        RunnerKind::Ci => configured.unwrap_or(DEFAULT_JOB_MINUTES),
        RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => configured
            .unwrap_or(DEFAULT_SESSION_MINUTES)
            .min(MAX_SESSION_MINUTES),
    }
}

/// Stores a job, the audit entry about its actor, and the effect that starts its run.
pub(super) fn enqueue_start(
    tx: &WriteTx<'_>,
    actor: &Actor,
    job: &Job,
    spec: RunSpec,
    now: Timestamp,
) -> StoreResult<()> {
    jobs::put(tx, job)?;
    let event = actor.audit_event(Action::RunDispatched, &job.issue.key);
    audit::append(tx, &event.with_detail(audit_details(job)), now)?;
    let start = Effect::StartRun {
        job: job.id.clone(),
        issue: job.issue.clone(),
        spec: Box::new(spec),
    };
    outbox::push(tx, &start, now).map(drop)
}

/// Details of a run for the audit.
pub(super) fn audit_details(job: &Job) -> String {
    let (kind, runner) = (job.kind.as_str(), job.runner.as_str());
    let shadow = if job.shadow { "shadow " } else { "" };
    format!("{shadow}{kind} run {} on {runner} in {}", job.id, job.repo)
}

fn has_slot(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<bool> {
    let active = job_index::active_of_team(tx, &mapping.team_key)?;
    let used_slots = active
        .iter()
        .filter(|job| job.kind.phase().is_some() && !job.shadow)
        .count();
    Ok(used_slots < mapping.max_in_progress as usize)
}

/// Whether it is outside of the dispatch hours, unless an operator requested the run.
fn is_outside_hours(
    tx: &WriteTx<'_>,
    mapping: &Mapping,
    issue: &IssueId,
    now: Timestamp,
) -> StoreResult<bool> {
    let is_closed = time_zones::closed_message(mapping, now).is_some();
    Ok(is_closed && !operator_retries::all(tx)?.contains(issue))
}

/// Issues whose trigger could not be removed after a cancellation: the update was given up. They
/// are not dispatched until an operator retries the run, or retries or drops the update.
pub(super) fn uncleared_issues(tx: &impl ReadableTx) -> StoreResult<BTreeSet<IssueId>> {
    let dead = outbox::dead(tx)?.into_iter();
    let issues = dead.filter_map(|entry| cleared_issue(&entry.effect).cloned());
    Ok(issues.collect())
}

/// Issue whose markers an effect removes after a cancellation.
pub(super) fn cleared_issue(effect: &Effect) -> Option<&IssueId> {
    match effect {
        Effect::SetMarker {
            issue,
            stage: Stage::Cancelled,
        } => Some(&issue.id),
        _ => None,
    }
}

/// Creates a job that no vendor knows yet, on the branch of its issue. `earlier` are the previous
/// jobs of the issue.
pub(super) fn new_job(
    config: &Config,
    mapping: &Mapping,
    assignment: RunnerAssignment,
    kind: JobKind,
    issue: &IssueRef,
    earlier: &[Job],
    now: Timestamp,
) -> Job {
    let id = fresh_id(earlier.last().map(|job| &job.id), now);
    let repo = mapping.target_repo();
    let earlier_branch = earlier
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
        branch: earlier_branch.unwrap_or_else(|| {
            branch_name(mapping.branch_prefix.as_deref(), &issue.key, &issue.title)
        }),
        repo,
        runner: assignment.runner,
        shadow: false,
        session_image: assignment.image,
        dispatch_number: next_number(earlier.len()),
        attempt: Some(next_number(
            earlier.iter().filter(|job| job.kind == kind).count(),
        )),
        has_callbacks: match assignment.runner {
            RunnerKind::Local => config.containers_can_report(),
            RunnerKind::Ci | RunnerKind::Vm | RunnerKind::Kubernetes => config.has_callbacks(),
        },
        timeout_minutes: timeout_minutes(mapping, assignment.runner),
        state: JobState::Reserved,
        run: None,
        pull: None,
        conclusion: None,
        cancellation: None,
        start_refusal_status: None,
        reserved_at: now,
        dispatched_at: None,
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
        agent: None,
        model: None,
        labels: Vec::new(),
        triggered_at: Some(now),
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        agents: JobAgents::default(),
        resumes_at: None,
        merge: None,
        result_accepted: false,
        unconfirmed_result: None,
        refused_hosts: Vec::new(),
    }
}

fn next_number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1)
}

/// Start parameters of a job's run, from the current mapping.
pub(super) fn run_spec(
    mapping: &Mapping,
    job: &Job,
    description: &str,
    related: &RelatedIssues,
    choice: &AgentChoice,
) -> RunSpec {
    let workflow_file = match (job.kind, &mapping.planning_workflow_file) {
        (JobKind::Planning, Some(file)) => file.clone(),
        (JobKind::Planning, None) => PLAN_WORKFLOW.to_owned(),
        _ => mapping.workflow_file.clone(),
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
        // Only this service ends a session, so the session must know its timeout.
        job_timeout_minutes: match job.runner {
            RunnerKind::Ci => mapping.max_job_minutes,
            RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => {
                Some(job.timeout_minutes)
            }
        },
        shadow: job.shadow,
        session: job
            .runner
            .host()
            .map(|_| SessionSpec::from_mapping(mapping)),
        runs_on: match job.runner {
            RunnerKind::Ci => mapping.runs_on.clone(),
            RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => Vec::new(),
        },
        options: choice.to_options(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_current_time_but_follows_the_newest_of_its_issue() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        for (newest, expected) in [
            (None, now.as_millis()),
            (Some(now.as_millis() - 1), now.as_millis()),
            (Some(now.as_millis()), now.as_millis() + 1),
            (
                Some(now.as_millis() + 7_200_000),
                now.as_millis() + 7_200_001,
            ),
            (Some(MAX_ID_MILLIS), MAX_ID_MILLIS),
        ] {
            let newest = newest.map(|at| JobId::new(Ulid::from_parts(at, 7).to_string()));
            let id = fresh_id(newest.as_ref(), now);
            assert_eq!(time_of(&id), Some(expected), "after {newest:?}");
        }
        let no_time = JobId::new("imported");
        assert_eq!(
            time_of(&fresh_id(Some(&no_time), now)),
            Some(now.as_millis())
        );
    }
}
