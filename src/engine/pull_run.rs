//! A run on the branch of an open pull request, whoever asks for it: one at a time.

use crate::app::App;
use domain::audit::Actor;
use domain::effect::RunBrief;
use domain::ids::JobId;
use domain::image::Asked;
use domain::issue::{NamedIssue, Related};
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::time::Timestamp;
use store::{Rows, StoreResult, WriteTx, contexts, jobs};

use super::dispatch::{self, Place};

/// What is to be done, and on what.
pub(super) struct PullRun<'a> {
    pub kind: JobKind,
    /// Who asked for it.
    pub by: Actor,
    /// The last job of the pull request.
    pub opened: &'a Job,
    pub mapping: &'a Mapping,
    /// The ticket as it stands now.
    pub named: &'a NamedIssue,
    pub instruction: Option<String>,
    pub findings: Option<String>,
    /// The image that the repository asks for.
    pub image: Asked,
}

/// The run that is at work on the branch of a job, if there is one.
pub(super) fn at_work(tx: &impl Rows, opened: &Job) -> StoreResult<Option<Job>> {
    let on_branch = |job: &Job| job.repo == opened.repo && job.branch == opened.branch;
    Ok(jobs::active(tx)?.into_iter().find(on_branch))
}

/// Reserves the run. Nobody else may be at work on the branch. None when it cannot run anywhere now.
pub(super) fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    wanted: PullRun<'_>,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let PullRun {
        kind,
        by,
        opened,
        mapping,
        named,
        instruction,
        findings,
        image,
    } = wanted;
    let Some(place) = Place::of(app, tx, mapping, image)? else {
        return Ok(None);
    };
    let image_unread = place.image_unread;
    let issue = &named.issue;
    let earlier = dispatch::of_issue(tx, &issue.id)?;
    let job = Job {
        branch: opened.branch.clone(),
        pull: opened.pull.clone(),
        ..dispatch::new_job(&app.config, mapping, place, kind, issue, &earlier, now)
    };
    // Siblings take requests of their own to read; those that the first run was told of will do.
    let related = Related {
        siblings: contexts::get(tx, &issue.id)?.related.siblings,
        ..named.related.clone()
    };
    let brief = RunBrief {
        pr_number: opened.pull.as_ref().map(|pull| pull.number),
        instruction,
        findings,
        image_unread,
        ..dispatch::brief(mapping, &job, &named.description, &related)
    };
    dispatch::start(tx, &by, &job, brief, now)?;
    Ok(Some(job.id))
}
