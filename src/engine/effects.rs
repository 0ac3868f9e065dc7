//! Execution of one effect: the vendor calls, and the meaning of their responses.

use std::time::Duration;

use crate::app::{App, Vendors};
use domain::effect::{DraftState, Effect, PullCommentStyle};
use domain::feedback::PullRequestId;
use domain::ids::TeamKey;
use domain::ids::{JobId, Repo};
use domain::issue::IssueRef;
use domain::job::RunHandle;
use domain::templates::SyncReport;
use domain::transition::{FailureKind, JobEvent};
use store::outbox::OutboxEntry;
use vendors::http::VendorError;
use vendors::scm::GitHub;
use vendors::ticketing::{CommentLookup, TicketingClient};

use super::run_monitor::CLOCK_SKEW;

mod log_excerpt;
mod merge;
mod rerun;
mod session_machine;
mod start;
mod sync;
mod unconfirmed;
mod update_branch;

pub(crate) use merge::PullEvent;
pub(super) use start::start_refused_event;
use start::{run_config, start_run};
use sync::sync_workflows;

/// Outcome of one attempt to perform an effect.
#[derive(Debug)]
pub(super) enum EffectOutcome {
    /// Performed.
    Done,
    /// The target no longer exists; nothing is left to do.
    Gone(String),
    /// Performed, with the event that it causes for the job.
    JobEvent(JobId, Box<JobEvent>),
    /// Performed, with the event that it causes for the pull request.
    PullEvent(PullRequestId, PullEvent),
    /// Workflow sync performed, with the report for the operator.
    Synced(TeamKey, SyncReport),
    /// Not possible yet; a later attempt is planned.
    Postponed(&'static str),
    /// Failed.
    Failed(EffectFailure),
}

impl EffectOutcome {
    /// Returns the outcome of a performed effect that causes this event for a job.
    fn job_event(job: &JobId, event: JobEvent) -> Self {
        Self::JobEvent(job.clone(), Box::new(event))
    }
}

/// Failure of one attempt to perform an effect.
#[derive(Debug)]
pub(super) struct EffectFailure {
    /// Error for logs and operators.
    pub error: String,
    /// Whether a retry can help.
    pub cause: FailureKind,
    /// Whether the attempt may have taken effect at the vendor.
    pub is_outcome_unknown: bool,
    /// Minimum delay before the next attempt, as requested by the vendor.
    pub retry_after: Option<Duration>,
}

impl From<VendorError> for EffectFailure {
    /// Rejected credentials count as transient: the effect waits until an operator renews them, as
    /// long as it would wait for a vendor that is down.
    fn from(error: VendorError) -> Self {
        Self {
            error: error.to_string(),
            cause: if error.is_permanent() && !error.is_unauthorized() {
                FailureKind::Permanent
            } else {
                FailureKind::Transient
            },
            is_outcome_unknown: error.is_ambiguous(),
            retry_after: error.retry_after(),
        }
    }
}

impl EffectFailure {
    /// Failure without effect at the vendor that a retry cannot fix.
    fn permanent(error: &str) -> Self {
        Self {
            error: error.to_owned(),
            cause: FailureKind::Permanent,
            is_outcome_unknown: false,
            retry_after: None,
        }
    }

    /// Failure without effect at the vendor that a retry may fix.
    pub(super) fn transient(error: &str) -> Self {
        Self {
            cause: FailureKind::Transient,
            ..Self::permanent(error)
        }
    }
}

/// Performs the effect of an outbox entry once.
pub(super) async fn perform(app: &App, entry: &OutboxEntry) -> EffectOutcome {
    let outcome = match &entry.effect {
        Effect::StartRun { job, spec, .. } => start_run(app, entry, job, spec).await,
        Effect::StopRun { job, repo, run } => match run {
            Some(run) => end_run(&app.vendors, repo, run).await,
            None => unconfirmed::end_run(app, entry, job).await,
        },
        Effect::DestroyMachine { machine, job, .. } => {
            session_machine::destroy(&app.vendors, machine, job.as_ref()).await
        }
        Effect::SetMarker { issue, stage } => match account(&app.vendors, issue) {
            Ok(account) => treat_not_found_as_gone(account.set_stage(issue, *stage).await),
            Err(failure) => Err(failure),
        },
        Effect::TicketComment { issue, body } => {
            post_ticket_comment(app, entry, issue, &entry.idempotency_key(), body).await
        }
        Effect::WaitingComment { issue, name, body } => {
            let outcome = match body {
                Some(body) => post_ticket_comment(app, entry, issue, name, body).await,
                None => match account(&app.vendors, issue) {
                    Ok(account) => {
                        treat_not_found_as_gone(account.delete_comment(issue, name).await)
                    }
                    Err(failure) => Err(failure),
                },
            };
            // The comment is optional, so a permanent failure needs no operator.
            outcome.or_else(|failure| match failure.cause {
                FailureKind::Permanent => Ok(EffectOutcome::Gone(failure.error)),
                FailureKind::Transient => Err(failure),
            })
        }
        Effect::LogExcerpt {
            issue,
            repo,
            run,
            label,
            comment,
        } => {
            let read = log_excerpt::read(app, entry, repo, run).await;
            match read {
                Ok(Ok(excerpt)) => {
                    log_excerpt::publish(app, entry, issue, *label, comment.as_ref(), &excerpt)
                        .await
                }
                Ok(Err(outcome)) => Ok(outcome),
                Err(failure) => Err(failure),
            }
        }
        Effect::PullComment {
            repo,
            number,
            style,
            body,
        } => pull_comment(app, entry, repo, *number, style, body).await,
        Effect::SetDraft {
            repo,
            number,
            draft,
        } => set_draft(&app.vendors, repo, *number, *draft).await,
        Effect::UpdateBranch {
            repo,
            number,
            expected_head,
        } => update_branch::update_branch(app, repo, *number, expected_head).await,
        Effect::MergePull {
            repo,
            number,
            grant,
        } => merge::merge(app, entry, &PullRequestId::new(repo, *number), grant).await,
        Effect::DisarmMerge { repo, number } => {
            merge::disarm(app, &PullRequestId::new(repo, *number)).await
        }
        Effect::DeleteBranch { repo, number } => {
            merge::delete_branch(app, &PullRequestId::new(repo, *number)).await
        }
        Effect::RerunFailedJobs {
            repo,
            number,
            head,
            run,
        } => rerun::rerun_failed_jobs(app, &PullRequestId::new(repo, *number), head, *run).await,
        Effect::Chat { message } => match &app.vendors.chat {
            Some(chat) => chat
                .post(message)
                .await
                .map(|()| EffectOutcome::Done)
                .map_err(EffectFailure::from),
            None => Ok(EffectOutcome::Done),
        },
        Effect::SyncWorkflows { team, repo } => sync_workflows(app, team, repo).await,
    };
    outcome.unwrap_or_else(EffectOutcome::Failed)
}

/// Client of an issue's system. Without it the effect waits, because an operator may be replacing the credentials.
fn account<'a>(
    vendors: &'a Vendors,
    issue: &IssueRef,
) -> Result<&'a TicketingClient, EffectFailure> {
    vendors
        .account(issue.system)
        .ok_or_else(|| EffectFailure::transient("the ticketing system is not configured"))
}

fn github(vendors: &Vendors) -> Result<&GitHub, EffectFailure> {
    vendors
        .github
        .as_ref()
        .ok_or_else(|| EffectFailure::transient("the repository host is not configured"))
}

fn treat_not_found_as_gone(
    answer: Result<(), VendorError>,
) -> Result<EffectOutcome, EffectFailure> {
    match answer {
        Ok(()) => Ok(EffectOutcome::Done),
        Err(error) if error.is_not_found() => Ok(EffectOutcome::Gone(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

async fn end_run(
    vendors: &Vendors,
    repo: &Repo,
    run: &RunHandle,
) -> Result<EffectOutcome, EffectFailure> {
    match (run, run.machine()) {
        (RunHandle::Ci { id, .. }, _) => {
            treat_not_found_as_gone(github(vendors)?.cancel_workflow_run(repo, *id).await)
        }
        (_, Some(machine)) => session_machine::stop(vendors, &machine).await,
        (_, None) => Ok(EffectOutcome::Done),
    }
}

/// Posts a comment on a ticket, unless an earlier attempt may have posted it.
async fn post_ticket_comment(
    app: &App,
    entry: &OutboxEntry,
    issue: &IssueRef,
    idempotency_key: &str,
    body: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let account = account(&app.vendors, issue)?;
    if let Some(tried_at) = entry.outcome_unknown_since {
        // The vendor's clock may be behind ours, so the comment may appear older than its effect.
        let since = entry.pushed_at - CLOCK_SKEW;
        match account
            .look_up_comment(issue, idempotency_key, body, since)
            .await
        {
            Ok(CommentLookup::Found) => return Ok(EffectOutcome::Done),
            Ok(CommentLookup::NotFound) => {
                unconfirmed::check_settled(&app.core, tried_at, "have written the comment")?
            }
            Ok(CommentLookup::Idempotent) => {}
            Err(error) => return treat_not_found_as_gone(Err(error)),
        }
    }
    treat_not_found_as_gone(account.create_comment(issue, idempotency_key, body).await)
}

async fn pull_comment(
    app: &App,
    entry: &OutboxEntry,
    repo: &Repo,
    number: u64,
    style: &PullCommentStyle,
    body: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(&app.vendors)?;
    let name = match style {
        PullCommentStyle::New => entry.idempotency_key(),
        PullCommentStyle::Sticky { name } => name.clone(),
    };
    let marker = format!("<!-- agent-implement:{name} -->");
    let marked = format!("{body}\n\n{marker}");
    let lookup = match style {
        PullCommentStyle::New if entry.outcome_unknown_since.is_none() => Ok(None),
        PullCommentStyle::New | PullCommentStyle::Sticky { .. } => {
            github.find_comment(repo, number, &marker).await
        }
    };
    let found = match lookup {
        Ok(found) => found,
        Err(error) => return treat_not_found_as_gone(Err(error)),
    };
    if let (None, Some(tried_at)) = (&found, entry.outcome_unknown_since) {
        unconfirmed::check_settled(&app.core, tried_at, "have written the comment")?;
    }
    let put = github.put_comment(repo, number, found, &marked).await;
    treat_not_found_as_gone(put.map(drop))
}

async fn set_draft(
    vendors: &Vendors,
    repo: &Repo,
    number: u64,
    draft: DraftState,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(vendors)?;
    let pull = match github.pull(repo, number).await {
        Ok(pull) => pull,
        Err(error) => return treat_not_found_as_gone(Err(error)),
    };
    treat_not_found_as_gone(match draft {
        DraftState::Draft => github.set_draft(repo, &pull.node_id).await,
        DraftState::Ready => github.set_ready(repo, &pull.node_id).await,
    })
}
