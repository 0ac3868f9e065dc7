//! Runs on the branch of an open pull request: at most one at a time.

use crate::app::App;
use domain::agent_choice::{AgentChoice, JobAgents};
use domain::audit::Actor;
use domain::effect::RunSpec;
use domain::ids::JobId;
use domain::issue::{IssueLookup, RelatedIssues};
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::run_options::{PullRequestTask, RunOptions};
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, issue_contexts, job_index};

use crate::dispatch::{self, RunnerAssignment};
use crate::provider_limit;

/// Request for a run on an open pull request.
pub(super) struct PullRunRequest<'a> {
    /// Kind of the run.
    pub kind: JobKind,
    /// Person or component that requested the run, for the audit.
    pub actor: Actor,
    /// Latest job of the pull request.
    pub last_job: &'a Job,
    /// Mapping of the repository.
    pub mapping: &'a Mapping,
    /// Ticket, as currently stored in the ticketing system.
    pub issue: &'a IssueLookup,
    /// Instruction from the comment that requested the run.
    pub instruction: Option<String>,
    /// Findings that the run must address.
    pub findings: Option<String>,
    /// Image named by the repository.
    pub image: RequestedImage,
}

/// Returns the active run on the branch of a job.
pub(super) fn active_run(tx: &impl ReadableTx, last_job: &Job) -> StoreResult<Option<Job>> {
    let on_branch = |job: &Job| job.repo == last_job.repo && job.branch == last_job.branch;
    // The name of a branch begins with the key of its issue.
    let active = job_index::active_of_issue(tx, &last_job.issue)?;
    Ok(active.into_iter().find(on_branch))
}

/// Reserves the run. The caller has checked that no other run is active on the branch. Returns
/// `None` if no runner is available, or while the usage limits of its agents are reached.
pub(super) fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    request: PullRunRequest<'_>,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let PullRunRequest {
        kind,
        actor,
        last_job,
        mapping,
        issue: lookup,
        instruction,
        findings,
        image,
    } = request;
    let labels = AgentChoice::from_labels(lookup.labels.iter().map(String::as_str));
    let Ok(choice) = provider_limit::available_choice(tx, app, mapping, &labels, now)? else {
        return Ok(None);
    };
    let Some(assignment) = RunnerAssignment::resolve(app, tx, mapping, image)? else {
        return Ok(None);
    };
    let image_lookup_failed = assignment.is_image_unresolved;
    let issue = &lookup.issue;
    let earlier = dispatch::non_shadow_jobs(tx, &issue.id)?;
    let job = Job {
        branch: last_job.branch.clone(),
        pull: last_job.pull.clone(),
        labels: dispatch::issue_labels(app, &lookup.labels),
        agents: JobAgents::of_choice(&choice),
        ..dispatch::new_job(
            &app.core.config,
            mapping,
            assignment,
            kind,
            issue,
            &earlier,
            now,
        )
    };
    // Reading siblings costs extra requests; those of the first run are good enough.
    let related = RelatedIssues {
        siblings: issue_contexts::get(tx, &issue.id)?.related.siblings,
        ..lookup.related.clone()
    };
    let spec = dispatch::run_spec(mapping, &job, &lookup.description, &related, &choice);
    let spec = RunSpec {
        pr_number: last_job.pull.as_ref().map(|pull| pull.number),
        instruction,
        findings,
        image_lookup_failed,
        options: RunOptions {
            task: PullRequestTask::of(kind),
            ..spec.options
        },
        ..spec
    };
    dispatch::enqueue_start(tx, &actor, &job, spec, now)?;
    Ok(Some(job.id))
}
