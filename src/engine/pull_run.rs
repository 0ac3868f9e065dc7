//! A run on the branch of an open pull request, whoever asks for it: one at a time.

use crate::app::App;
use domain::audit::Actor;
use domain::effect::RunSpec;
use domain::ids::JobId;
use domain::issue::{IssueLookup, RelatedIssues};
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, issue_contexts, jobs};

use super::dispatch::{self, RunnerAssignment};

/// What is to be done, and on what.
pub(super) struct PullRunRequest<'a> {
    pub kind: JobKind,
    /// Who asked for it.
    pub actor: Actor,
    /// The last job of the pull request.
    pub last_job: &'a Job,
    pub mapping: &'a Mapping,
    /// The ticket as it stands now.
    pub issue: &'a IssueLookup,
    pub instruction: Option<String>,
    pub findings: Option<String>,
    /// The image that the repository asks for.
    pub image: RequestedImage,
}

/// The run that is at work on the branch of a job, if there is one.
pub(super) fn active_run(tx: &impl ReadableTx, opened: &Job) -> StoreResult<Option<Job>> {
    let on_branch = |job: &Job| job.repo == opened.repo && job.branch == opened.branch;
    Ok(jobs::active(tx)?.into_iter().find(on_branch))
}

/// Reserves the run. Nobody else may be at work on the branch. None when it cannot run anywhere now.
pub(super) fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    wanted: PullRunRequest<'_>,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let PullRunRequest {
        kind,
        actor: by,
        last_job: opened,
        mapping,
        issue: named,
        instruction,
        findings,
        image,
    } = wanted;
    let Some(place) = RunnerAssignment::resolve(app, tx, mapping, image)? else {
        return Ok(None);
    };
    let image_unread = place.is_image_unresolved;
    let issue = &named.issue;
    let earlier = dispatch::non_shadow_jobs(tx, &issue.id)?;
    let job = Job {
        branch: opened.branch.clone(),
        pull: opened.pull.clone(),
        ..dispatch::new_job(&app.config, mapping, place, kind, issue, &earlier, now)
    };
    // Siblings take requests of their own to read; those that the first run was told of will do.
    let related = RelatedIssues {
        siblings: issue_contexts::get(tx, &issue.id)?.related.siblings,
        ..named.related.clone()
    };
    let brief = RunSpec {
        pr_number: opened.pull.as_ref().map(|pull| pull.number),
        instruction,
        findings,
        image_lookup_failed: image_unread,
        ..dispatch::brief(mapping, &job, &named.description, &related)
    };
    dispatch::enqueue_start(tx, &by, &job, brief, now)?;
    Ok(Some(job.id))
}
