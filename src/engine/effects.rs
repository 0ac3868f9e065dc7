//! Performing one errand: the calls to the outside, and what their answers mean.

use std::time::Duration;

use crate::app::App;
use domain::crypto::run_token::TokenAudience;
use domain::effect::{DraftState, Effect, PullCommentStyle, RunSpec};
use domain::ids::TeamKey;
use domain::ids::{JobId, Repo};
use domain::issue::IssueRef;
use domain::job::{Job, RunHandle};
use domain::limits;
use domain::mapping::SessionMode;
use domain::run_config::{RunCallback, RunConfig};
use domain::runner_image::RequestedImage;
use domain::templates::{SYNC_BRANCH, SYNC_MESSAGE, SyncPullRequestBody, SyncReport, SyncStatus};
use domain::time::Timestamp;
use domain::transition::{FailureKind, JobEvent};
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::http::VendorError;
use vendors::scm::{DispatchError, GitHub, NewCommit, NewPullRequest};
use vendors::session_hosts::ci;
use vendors::ticketing::{CommentLookup, TicketingClient};

use super::run_monitor::CLOCK_SKEW;
use super::workflow_sync::{self, SyncPlanError};
use super::{dispatch, repo_image};

mod log_excerpt;
mod session_machine;
mod unconfirmed;

/// What came of a try.
#[derive(Debug)]
pub(super) enum EffectOutcome {
    Done,
    /// The thing to change is no longer there; nothing is left to do.
    Gone(String),
    /// Done, and this is what it means for the job.
    JobEvent(JobId, JobEvent),
    /// Done, and this is what the project's operator is told.
    Synced(TeamKey, SyncReport),
    /// It is not time yet: a later try is planned.
    Postponed(&'static str),
    Failed(EffectFailure),
}

#[derive(Debug)]
pub(super) struct EffectFailure {
    pub error: String,
    pub cause: FailureKind,
    /// Whether the try may have had its effect.
    pub is_outcome_unknown: bool,
    pub retry_after: Option<Duration>,
}

impl From<VendorError> for EffectFailure {
    /// A credential that a vendor no longer takes is renewed by an operator; what is owed waits for
    /// that as long as it waits for a vendor that is down.
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
    /// Nothing left, and trying again cannot help.
    fn permanent(error: &str) -> Self {
        Self {
            error: error.to_owned(),
            cause: FailureKind::Permanent,
            is_outcome_unknown: false,
            retry_after: None,
        }
    }

    /// Nothing left, and a later try may do better.
    pub(super) fn transient(error: &str) -> Self {
        Self {
            cause: FailureKind::Transient,
            ..Self::permanent(error)
        }
    }
}

/// Performs the errand once.
pub(super) async fn perform(app: &App, errand: &OutboxEntry) -> EffectOutcome {
    let acted = match &errand.effect {
        Effect::StartRun {
            job, spec: brief, ..
        } => start_run(app, errand, job, brief).await,
        Effect::StopRun { job, repo, run } => match run {
            Some(run) => end_run(app, repo, run).await,
            None => unconfirmed::end_run(app, errand, job).await,
        },
        Effect::DestroyMachine { machine, job, .. } => {
            session_machine::destroy(app, machine, job.as_ref()).await
        }
        Effect::SetMarker { issue, stage } => match account(app, issue) {
            Ok(account) => treat_not_found_as_gone(account.set_stage(issue, *stage).await),
            Err(failure) => Err(failure),
        },
        Effect::TicketComment { issue, body } => {
            post_ticket_comment(app, errand, issue, &errand.idempotency_key(), body).await
        }
        Effect::WaitingComment { issue, name, body } => {
            let acted = match body {
                Some(body) => post_ticket_comment(app, errand, issue, name, body).await,
                None => match account(app, issue) {
                    Ok(account) => {
                        treat_not_found_as_gone(account.delete_comment(issue, name).await)
                    }
                    Err(failure) => Err(failure),
                },
            };
            // People can do without it, so a refusal is not for an operator to repair.
            acted.or_else(|failure| match failure.cause {
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
            let read = log_excerpt::read(app, errand, repo, run).await;
            match read {
                Ok(Ok(excerpt)) => {
                    log_excerpt::publish(app, errand, issue, *label, comment.as_ref(), &excerpt)
                        .await
                }
                Ok(Err(without)) => Ok(without),
                Err(failure) => Err(failure),
            }
        }
        Effect::PullComment {
            repo,
            number,
            style,
            body,
        } => pull_comment(app, errand, repo, *number, style, body).await,
        Effect::SetDraft {
            repo,
            number,
            draft,
        } => set_draft(app, repo, *number, *draft).await,
        Effect::Chat { message } => match &app.chat {
            Some(chat) => chat
                .post(message)
                .await
                .map(|()| EffectOutcome::Done)
                .map_err(EffectFailure::from),
            None => Ok(EffectOutcome::Done),
        },
        Effect::SyncWorkflows { team, repo } => sync_workflows(app, team, repo).await,
    };
    acted.unwrap_or_else(EffectOutcome::Failed)
}

fn account<'a>(app: &'a App, issue: &IssueRef) -> Result<&'a TicketingClient, EffectFailure> {
    app.account(issue.system)
        .ok_or_else(|| EffectFailure::permanent("the ticketing system is not configured"))
}

fn github(app: &App) -> Result<&GitHub, EffectFailure> {
    app.github
        .as_ref()
        .ok_or_else(|| EffectFailure::permanent("the repository host is not configured"))
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

/// Starts the run, unless an earlier try may have: then the host is asked for it by name first, and
/// a second run is started only after it had time to show the first.
async fn start_run(
    app: &App,
    errand: &OutboxEntry,
    id: &JobId,
    brief: &RunSpec,
) -> Result<EffectOutcome, EffectFailure> {
    let job = match app.store.read(|tx| jobs::get(tx, id)) {
        Ok(Some(job)) => job,
        Ok(None) => {
            return Ok(EffectOutcome::Gone(
                "its job is not in the store".to_owned(),
            ));
        }
        Err(error) => {
            return Err(EffectFailure::transient(&error.to_string()));
        }
    };
    if job.dispatched_at.is_some() || !job.is_active() {
        return unconfirmed::adopt(app, errand, &job).await;
    }
    let (job, brief) = match with_image(app, job, brief).await? {
        Ok(known) => known,
        Err(why) => {
            return Ok(EffectOutcome::JobEvent(
                id.clone(),
                start_refused_event(FailureKind::Permanent, None, &why),
            ));
        }
    };
    if let Some(host) = job.runner.host() {
        return session_machine::start(app, errand, &job, &brief, host).await;
    }
    let github = github(app)?;
    if let Some(tried_at) = errand.outcome_unknown_since
        && let Some(run) = unconfirmed::find_run(app, &job, tried_at).await?
    {
        return Ok(unconfirmed::run_started(&job, run));
    }
    let run_config = run_config(app, &job, &brief);
    match ci::start(
        github,
        &job.repo,
        &brief.workflow_file,
        &brief.git_ref,
        &run_config,
    )
    .await
    {
        Ok(started) => {
            let run = started.run.map(|run| RunHandle::Ci {
                id: run.id,
                url: run.url,
            });
            Ok(EffectOutcome::JobEvent(
                id.clone(),
                JobEvent::Started { run },
            ))
        }
        // Some hosts take a dispatch that they answer with a limit.
        Err(DispatchError::Vendor(error)) if error.is_rate_limited() => Err(EffectFailure {
            is_outcome_unknown: true,
            ..error.into()
        }),
        Err(DispatchError::Vendor(error)) if !error.is_permanent() => Err(error.into()),
        Err(refused) => Ok(EffectOutcome::JobEvent(
            id.clone(),
            start_refused_event(
                FailureKind::Permanent,
                refused.status(),
                &refused.to_string(),
            ),
        )),
    }
}

/// The job with the image that its repository asks for, when the host did not show it before; or why
/// it cannot have that one.
async fn with_image(
    app: &App,
    job: Job,
    brief: &RunSpec,
) -> Result<Result<(Job, RunSpec), String>, EffectFailure> {
    if !brief.image_lookup_failed {
        return Ok(Ok((job, brief.clone())));
    }
    let asked = match repo_image::fetch(app, &job.repo, &brief.git_ref).await {
        Ok(RequestedImage::LookupFailed) => {
            let unread = "the image that the repository asks for could not be read";
            return Err(EffectFailure::transient(unread));
        }
        Ok(asked) => asked,
        Err(why) => return Ok(Err(why)),
    };
    let session_image = dispatch::resolve_image(app, job.runner, &job.repo, asked);
    let brief = RunSpec {
        runner_image: session_image.clone(),
        image_lookup_failed: false,
        ..brief.clone()
    };
    let job = Job {
        session_image,
        ..job
    };
    let kept = job.clone();
    app.store
        .write(move |tx| match jobs::get(tx, &kept.id)? {
            Some(now) => jobs::put(
                tx,
                &Job {
                    session_image: kept.session_image.clone(),
                    ..now
                },
            ),
            None => Ok(()),
        })
        .await
        .map_err(|error| EffectFailure::transient(&error.to_string()))?;
    Ok(Ok((job, brief)))
}

/// A run that is not going to start.
pub(super) fn start_refused_event(cause: FailureKind, status: Option<u16>, why: &str) -> JobEvent {
    JobEvent::StartRejected {
        kind: cause,
        status,
        reason: format!("the run could not be dispatched: {why}"),
    }
}

fn run_config(app: &App, job: &Job, brief: &RunSpec) -> RunConfig {
    RunConfig {
        dispatch_id: job.id.clone(),
        issue_id: job.issue.id.clone(),
        issue_key: job.issue.key.clone(),
        issue_title: job.issue.title.clone(),
        issue_description: brief.description.clone(),
        phase: job.kind.run_phase(),
        pr_number: brief.pr_number,
        branch: job.branch.clone(),
        instruction: brief.instruction.clone(),
        findings: brief.findings.clone(),
        related: brief.related.clone(),
        provider: brief.provider.clone(),
        runner_image: brief.runner_image.clone(),
        max_turns: brief.max_turns,
        max_iterations: brief.max_iterations,
        job_timeout_minutes: brief.job_timeout_minutes,
        session_mode: match &brief.session {
            // Nobody looks after a shadow.
            Some(_) if job.shadow => Some(SessionMode::Autonomous),
            Some(session) => Some(session.mode),
            None => None,
        },
        shadow: job.shadow,
        callback: callback(app, job),
    }
}

/// Tokens live as long as a report could matter, counted from this start: an effect that waited
/// out a long outage must not hand out tokens that are about to expire.
fn callback(app: &App, job: &Job) -> Option<RunCallback> {
    let (tokens, url) = (
        app.run_tokens.as_ref()?,
        app.config.callback_base_url.clone()?,
    );
    let now: Timestamp = app.now();
    let expires = now + job.timeout() + limits::RUN_LOOKUP_TIMEOUT + limits::TOKEN_GRACE;
    let token = |audience| tokens.issue(&job.id, audience, job.kind.run_phase(), now, expires);
    Some(RunCallback {
        url,
        run_token: token(TokenAudience::Result),
        progress_token: token(TokenAudience::Progress),
    })
}

async fn end_run(app: &App, repo: &Repo, run: &RunHandle) -> Result<EffectOutcome, EffectFailure> {
    match (run, run.machine()) {
        (RunHandle::Ci { id, .. }, _) => {
            treat_not_found_as_gone(github(app)?.cancel_workflow_run(repo, *id).await)
        }
        (_, Some(machine)) => session_machine::stop(app, &machine).await,
        (_, None) => Ok(EffectOutcome::Done),
    }
}

/// Writes a comment on a ticket, unless an earlier try may have.
async fn post_ticket_comment(
    app: &App,
    errand: &OutboxEntry,
    issue: &IssueRef,
    stamp: &str,
    body: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let account = account(app, issue)?;
    if let Some(tried_at) = errand.outcome_unknown_since {
        // The vendor's clock may be behind ours, so the comment may seem older than its effect.
        let since = errand.pushed_at - CLOCK_SKEW;
        match account.look_up_comment(issue, stamp, body, since).await {
            Ok(CommentLookup::Found) => return Ok(EffectOutcome::Done),
            Ok(CommentLookup::NotFound) => {
                unconfirmed::check_settled(app, tried_at, "have written the comment")?
            }
            Ok(CommentLookup::Idempotent) => {}
            Err(error) => return treat_not_found_as_gone(Err(error)),
        }
    }
    treat_not_found_as_gone(account.create_comment(issue, stamp, body).await)
}

async fn pull_comment(
    app: &App,
    errand: &OutboxEntry,
    repo: &Repo,
    number: u64,
    style: &PullCommentStyle,
    body: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(app)?;
    let name = match style {
        PullCommentStyle::New => errand.idempotency_key(),
        PullCommentStyle::Sticky { name } => name.clone(),
    };
    let marker = format!("<!-- agent-implement:{name} -->");
    let marked = format!("{body}\n\n{marker}");
    let looked = match style {
        PullCommentStyle::New if errand.outcome_unknown_since.is_none() => Ok(None),
        PullCommentStyle::New | PullCommentStyle::Sticky { .. } => {
            github.find_comment(repo, number, &marker).await
        }
    };
    let found = match looked {
        Ok(found) => found,
        Err(error) => return treat_not_found_as_gone(Err(error)),
    };
    if let (None, Some(tried_at)) = (&found, errand.outcome_unknown_since) {
        unconfirmed::check_settled(app, tried_at, "have written the comment")?;
    }
    let put = github.put_comment(repo, number, found, &marked).await;
    treat_not_found_as_gone(put.map(drop))
}

async fn set_draft(
    app: &App,
    repo: &Repo,
    number: u64,
    draft: DraftState,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(app)?;
    let pull = match github.pull(repo, number).await {
        Ok(pull) => pull,
        Err(error) => return treat_not_found_as_gone(Err(error)),
    };
    treat_not_found_as_gone(match draft {
        DraftState::Draft => github.set_draft(repo, &pull.node_id).await,
        DraftState::Ready => github.set_ready(repo, &pull.node_id).await,
    })
}

async fn sync_workflows(
    app: &App,
    team: &TeamKey,
    repo: &Repo,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(app)?;
    let refused = match offer(app, github, team, repo).await {
        Ok(report) => return Ok(EffectOutcome::Synced(team.clone(), report)),
        Err(SyncPlanError::Precondition(why)) => return Err(EffectFailure::permanent(&why)),
        Err(SyncPlanError::Store(error)) => {
            return Err(EffectFailure::transient(&error.to_string()));
        }
        Err(SyncPlanError::Vendor(error)) => error,
    };
    let remedy = workflow_sync::remedy(github, repo, &refused).await;
    let failure = EffectFailure::from(refused);
    Err(match remedy {
        Some(remedy) => EffectFailure {
            error: format!("{}. {remedy}", failure.error),
            ..failure
        },
        None => failure,
    })
}

/// Offers what the repository lacks: the commit, then the pull request.
async fn offer(
    app: &App,
    github: &GitHub,
    team: &TeamKey,
    repo: &Repo,
) -> Result<SyncReport, SyncPlanError> {
    let offer = workflow_sync::plan(app, github, team, repo).await?;
    if offer.files.is_empty() {
        return Ok(offer.report(repo, SyncStatus::UpToDate, None));
    }
    let (changed, pull) = (offer.changed_paths(), offer.pull.as_ref());
    if !offer.is_branch_current {
        let new = NewCommit {
            parent: &offer.base_sha,
            message: SYNC_MESSAGE,
            files: &offer.files,
        };
        let written =
            github.commit_files(repo, SYNC_BRANCH, offer.sync_branch_sha.as_deref(), &new);
        if written.await?.is_none() {
            let why = format!("{SYNC_BRANCH} was changed by somebody else meanwhile; sync again");
            return Err(SyncPlanError::Precondition(why));
        }
    }
    let body = SyncPullRequestBody(&changed).to_string();
    match pull {
        Some(pull) if offer.is_branch_current => {
            Ok(offer.report(repo, SyncStatus::PrExisting, Some(pull)))
        }
        Some(pull) => {
            let update = github.update_pull(repo, pull.number, SYNC_MESSAGE, &body);
            let pull = update.await?;
            Ok(offer.report(repo, SyncStatus::PrUpdated, Some(&pull)))
        }
        None => {
            let new = NewPullRequest {
                title: SYNC_MESSAGE.to_owned(),
                body,
                head: SYNC_BRANCH.to_owned(),
                base: offer.base_branch.clone(),
                draft: false,
            };
            let pull = github.create_pull(repo, &new).await?;
            Ok(offer.report(repo, SyncStatus::PrOpened, Some(&pull)))
        }
    }
}
