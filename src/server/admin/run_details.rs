//! `/api/jobs/:id/details`: plan, passes, findings and trigger of a run. See docs/behaviour.md#details-of-a-run.

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::feedback::{CommentCommandState, PullRequestId};
use domain::ids::JobId;
use domain::job::{Job, JobKind};
use domain::run_details::{RunDetails, RunTrigger, RunTriggerSource};
use engine::app::App;
use store::{
    ReadableTx, StoreResult, evidence, issue_contexts, jobs, pull_feedback, run_logs, steps,
};

/// Separator of the comments of a plan.
const PLAN_SEPARATOR: &str = "\n\n---\n\n";

/// Routes of `/api/jobs/:id/details`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/jobs/:jobId/details", "showRunDetails", show).returns::<RunDetails>()]
}

async fn show(PathSegment(id): PathSegment, app: App) -> ApiResult {
    // Decodes all steps of the job.
    let found = app.core.store().read_long(move |tx| {
        let Some(job) = jobs::get(tx, &JobId::new(id))? else {
            return Ok(None);
        };
        let details = RunDetails::from_steps(&steps::of_job(tx, &job.id)?);
        Ok(Some(RunDetails {
            plan: match details.plan {
                Some(plan) => Some(plan),
                None => stored_plan(tx, &job)?,
            },
            trigger: trigger(tx, &job)?,
            log_bytes: run_logs::get(tx, &job.id)?.map(|log| log.end),
            evidence: evidence::get(tx, &job.id)?.map_or_else(Vec::new, |set| set.files),
            refused_hosts: job.refused_hosts,
            ..details
        }))
    });
    let details = found.await?.ok_or(AdminApiError::JobNotFound)?;
    Ok(ok(&details))
}

/// Plan of the issue, as of its last planning run.
fn stored_plan(tx: &impl ReadableTx, job: &Job) -> StoreResult<Option<String>> {
    if job.kind.phase().is_none() {
        return Ok(None);
    }
    let plan = issue_contexts::get(tx, &job.issue.id)?.plan;
    let comments: Vec<&str> = plan.iter().map(|comment| comment.body.as_str()).collect();
    Ok(Some(comments.join(PLAN_SEPARATOR)).filter(|plan| !plan.is_empty()))
}

/// Trigger of a job that no single person asked for.
fn by_service(job: &Job, source: RunTriggerSource) -> RunTrigger {
    RunTrigger {
        by: None,
        source,
        at: job.reserved_at,
    }
}

/// What the job was started for; `None` if that is not stored.
fn trigger(tx: &impl ReadableTx, job: &Job) -> StoreResult<Option<RunTrigger>> {
    Ok(match (job.kind, PullRequestId::of_job(job)) {
        (JobKind::Planning | JobKind::Implementation, _) => {
            Some(by_service(job, RunTriggerSource::Ticket))
        }
        (JobKind::GapFill, Some(pull)) => {
            let started = CommentCommandState::Started {
                job: job.id.clone(),
            };
            let mut commands = pull_feedback::commands(tx, &pull)?.into_iter();
            let command = commands.find(|(_, command)| command.state == started);
            command.map(|(_, command)| RunTrigger {
                by: command.author,
                source: RunTriggerSource::Command,
                at: command.requested_at,
            })
        }
        (JobKind::FollowUp, Some(pull)) => {
            let findings = pull_feedback::findings_of_pull(tx, &pull)?.into_iter();
            let of_job = findings.map(|(_, finding)| finding);
            let of_job = of_job.filter(|finding| finding.was_taken_by(&job.id));
            of_job
                .min_by_key(|finding| finding.seen_at)
                .map(|finding| RunTrigger {
                    by: Some(finding.comment.author.name().to_owned()),
                    source: RunTriggerSource::Review,
                    at: finding.seen_at,
                })
        }
        (JobKind::CiFix, _) => Some(by_service(job, RunTriggerSource::Checks)),
        (JobKind::Conflict, _) => Some(by_service(job, RunTriggerSource::Conflict)),
        (JobKind::GapFill | JobKind::FollowUp, None) => None,
    })
}
