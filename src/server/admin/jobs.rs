//! `/api/jobs/:id`: one job, and the patch with its unpushed changes.

use std::collections::HashMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, attachment, ok};
use domain::audit::Actor;
use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind, TimeoutReason};
use domain::report::{FailureCode, Usage};
use domain::time::Timestamp;
use engine::admin::downloads;
use engine::app::App;
use store::{ReadableTx, StoreResult, jobs};

/// Routes of `/api/jobs`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/jobs/:jobId", "showJob", show).returns::<JobView<'_>>(),
        Route::get("/api/jobs/:jobId/patch", "downloadPatch", download_patch),
    ]
}

async fn show(PathSegment(id): PathSegment, app: App) -> ApiResult {
    let (job, group) = app
        .core
        .store()
        .read(|tx| find_with_group(tx, &JobId::new(id)))?
        .ok_or(AdminApiError::JobNotFound)?;
    Ok(ok(&JobView::of(&job, group)))
}

/// Returns a job as JSON; `None` if it does not exist.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn job_json(tx: &impl ReadableTx, id: &JobId) -> StoreResult<Option<Value>> {
    let found = find_with_group(tx, id)?;
    Ok(found.map(|(job, group)| json!(JobView::of(&job, group))))
}

async fn download_patch(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    let patch = downloads::patch(&app.core, by, &JobId::new(id)).await?;
    Ok(attachment("work.patch", patch))
}

/// Loads a job and the status of its group.
pub(super) fn find_with_group(
    tx: &impl ReadableTx,
    id: &JobId,
) -> StoreResult<Option<(Job, JobGroupStatus)>> {
    let Some(job) = jobs::get(tx, id)? else {
        return Ok(None);
    };
    let group = JobGroupStatus::of(tx, &job)?;
    Ok(Some((job, group)))
}

/// Refers to the description of the statuses.
fn job_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": "#/components/schemas/JobStatus"})
}

fn optional_job_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": "#/components/schemas/OptionalJobStatus"})
}

/// Status of the planning and the implementation of one group, from the latest job of each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JobGroupStatus {
    planning: Option<&'static str>,
    implementation: Option<&'static str>,
}

impl JobGroupStatus {
    fn of(tx: &impl ReadableTx, job: &Job) -> StoreResult<Self> {
        let mut groups = HashMap::new();
        Self::of_issue(tx, &job.issue.id, &mut groups)?;
        Ok(groups.remove(&job.group).unwrap_or_default())
    }

    /// Adds the groups of an issue to `groups`, by group id.
    pub(super) fn of_issue(
        tx: &impl ReadableTx,
        issue: &IssueId,
        groups: &mut HashMap<JobId, Self>,
    ) -> StoreResult<()> {
        let jobs = jobs::of_issue(tx, issue)?.into_iter();
        for job in jobs.filter(|job| !job.shadow) {
            let status = Some(job.state.status());
            let group = groups.entry(job.group).or_default();
            match job.kind {
                JobKind::Planning => group.planning = status,
                JobKind::Implementation => group.implementation = status,
                JobKind::GapFill | JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict => {}
            }
        }
        Ok(())
    }
}

/// JSON representation of a job. Contains no token and no input of one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Job", description = "A run. Contains no tokens.")]
pub(super) struct JobView<'a> {
    id: &'a JobId,
    /// Id that correlates a result with its dispatch; equal to `id`.
    dispatch_id: &'a JobId,
    /// Id shared by the planning run and the implementation run of one issue.
    group_id: &'a JobId,
    kind: JobKind,
    issue_id: &'a IssueId,
    #[schemars(example = "ENG-42")]
    issue_identifier: &'a IssueKey,
    issue_title: &'a str,
    issue_url: &'a str,
    team_key: &'a TeamKey,
    #[schemars(example = "acme/shop")]
    repo: String,
    runner: RunnerKind,
    /// Whether it is a dry run beside another run, without external changes.
    shadow: bool,
    session_image: Option<&'a str>,
    #[schemars(schema_with = "job_status")]
    status: &'static str,
    timeout_reason: Option<TimeoutReason>,
    /// Conclusion reported by the runner.
    conclusion: Option<&'a str>,
    failure_code: Option<FailureCode>,
    failure_reason: Option<String>,
    /// Actor who cancelled the run, as in the audit log.
    cancelled_by: Option<&'a str>,
    /// Number of this dispatch of the issue.
    #[schemars(range(min = 1))]
    dispatch_number: u32,
    /// Number of this run among the runs of the issue with this kind. For runs of older versions, equal to
    /// `dispatchNumber`.
    #[schemars(range(min = 1))]
    attempt: u32,
    /// Agent program, once the run has reported it.
    agent: Option<&'a str>,
    /// Model of the first agent pass, once the run has reported it.
    model: Option<&'a str>,
    #[schemars(schema_with = "optional_job_status")]
    planning_status: Option<&'static str>,
    #[schemars(schema_with = "optional_job_status")]
    implementation_status: Option<&'static str>,
    branch: Option<&'a str>,
    pr_url: Option<&'a str>,
    #[schemars(range(min = 1))]
    pr_number: Option<u64>,
    /// Id of the workflow run.
    run_id: Option<String>,
    run_url: Option<&'a str>,
    /// Id of the machine or container.
    machine_id: Option<&'a str>,
    reserved_at: Timestamp,
    dispatched_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    usage: Option<Usage>,
    /// Whether the run has reported its result.
    report: bool,
}

/// Failure code and failure reason of a job.
type Failure = (Option<FailureCode>, Option<String>);

fn failure(state: &JobState) -> Failure {
    match state {
        JobState::Failed { code, reason } => (*code, Some(reason.clone())),
        JobState::ReviewFailed { unresolved } => (
            Some(FailureCode::ReviewUnapproved),
            Some(unresolved.join("\n")).filter(|lines| !lines.is_empty()),
        ),
        JobState::Reserved
        | JobState::Dispatched
        | JobState::Running
        | JobState::Completed
        | JobState::TimedOut { .. } => (None, None),
    }
}

impl<'a> JobView<'a> {
    /// Builds the representation of a job.
    pub(super) fn of(job: &'a Job, group: JobGroupStatus) -> Self {
        let (failure_code, failure_reason) = failure(&job.state);
        let (run_id, run_url, machine_id) = match &job.run {
            Some(RunHandle::Ci { id, url }) => (Some(id.to_string()), non_empty(url), None),
            Some(
                RunHandle::Machine { id, .. }
                | RunHandle::Container { id }
                | RunHandle::KubernetesJob { id },
            ) => (None, None, non_empty(id)),
            None => (None, None, None),
        };
        Self {
            id: &job.id,
            dispatch_id: &job.id,
            group_id: &job.group,
            kind: job.kind,
            issue_id: &job.issue.id,
            issue_identifier: &job.issue.key,
            issue_title: &job.issue.title,
            issue_url: &job.issue.url,
            team_key: &job.team,
            repo: job.repo.to_string(),
            runner: job.runner,
            shadow: job.shadow,
            session_image: job.session_image.as_deref(),
            status: job.state.status(),
            timeout_reason: match job.state {
                JobState::TimedOut { reason } => Some(reason),
                _ => None,
            },
            conclusion: job.conclusion.as_deref(),
            failure_code,
            failure_reason,
            cancelled_by: job.cancellation.as_ref().map(|one| one.by.as_str()),
            dispatch_number: job.dispatch_number,
            attempt: job.attempt.unwrap_or(job.dispatch_number),
            agent: job.agent.as_deref(),
            model: job.model.as_deref(),
            planning_status: group.planning,
            implementation_status: group.implementation,
            branch: non_empty(&job.branch),
            pr_url: job.pull.as_ref().map(|pull| pull.url.as_str()),
            pr_number: job.pull.as_ref().map(|pull| pull.number),
            run_id,
            run_url,
            machine_id,
            reserved_at: job.reserved_at,
            dispatched_at: job.dispatched_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            usage: job.usage,
            report: job.result_accepted,
        }
    }
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
