//! Performing one errand: the calls to the outside, and what their answers mean.

use std::time::Duration;

use crate::app::App;
use domain::caps;
use domain::effect::{Draft, Effect, PullCommentStyle, RunBrief};
use domain::ids::TeamKey;
use domain::ids::{JobId, Repo};
use domain::image::Asked;
use domain::issue::IssueRef;
use domain::job::{Job, RunHandle};
use domain::keys::run_token::Audience;
use domain::mapping::SessionMode;
use domain::run_config::{Callback, RunConfig};
use domain::templates::{SYNC_BRANCH, SYNC_MESSAGE, SyncBody, SyncReport, SyncStatus};
use domain::time::Timestamp;
use domain::transition::{Cause, Event};
use store::jobs;
use store::outbox::Errand;
use vendors::http::VendorError;
use vendors::scm::{DispatchError, GitHub, NewCommit, NewPull};
use vendors::session_hosts::ci;
use vendors::ticketing::{Account, EarlierTry};

use super::sync::{self, Obstacle};
use super::watch::CLOCK_SKEW;
use super::{dispatch, image};

mod log;
mod session;
mod unseen;

/// What came of a try.
#[derive(Debug)]
pub(super) enum Acted {
    Done,
    /// The thing to change is no longer there; nothing is left to do.
    Gone(String),
    /// Done, and this is what it means for the job.
    Told(JobId, Event),
    /// Done, and this is what the project's operator is told.
    Synced(TeamKey, SyncReport),
    /// It is not time yet: a later try is planned.
    NotYet(&'static str),
    Failed(Failure),
}

#[derive(Debug)]
pub(super) struct Failure {
    pub error: String,
    pub cause: Cause,
    /// Whether the try may have had its effect.
    pub unsure: bool,
    pub retry_after: Option<Duration>,
}

impl From<VendorError> for Failure {
    /// A credential that a vendor no longer takes is renewed by an operator; what is owed waits for
    /// that as long as it waits for a vendor that is down.
    fn from(error: VendorError) -> Self {
        Self {
            error: error.to_string(),
            cause: if error.is_permanent() && !error.is_unauthorized() {
                Cause::Lasting
            } else {
                Cause::Passing
            },
            unsure: error.is_ambiguous(),
            retry_after: error.retry_after(),
        }
    }
}

impl Failure {
    /// Nothing left, and trying again cannot help.
    fn lasting(error: &str) -> Self {
        Self {
            error: error.to_owned(),
            cause: Cause::Lasting,
            unsure: false,
            retry_after: None,
        }
    }

    /// Nothing left, and a later try may do better.
    pub(super) fn passing(error: &str) -> Self {
        Self {
            cause: Cause::Passing,
            ..Self::lasting(error)
        }
    }
}

/// Performs the errand once.
pub(super) async fn act(app: &App, errand: &Errand) -> Acted {
    let acted = match &errand.effect {
        Effect::StartRun { job, brief, .. } => start_run(app, errand, job, brief).await,
        Effect::EndRun { job, repo, run } => match run {
            Some(run) => end_run(app, repo, run).await,
            None => unseen::end(app, errand, job).await,
        },
        Effect::DestroyMachine { machine, job, .. } => {
            session::destroy(app, machine, job.as_ref()).await
        }
        Effect::MoveMarker { issue, stage } => match account(app, issue) {
            Ok(account) => gone_is_done(account.move_marker(issue, *stage).await),
            Err(failure) => Err(failure),
        },
        Effect::TicketComment { issue, body } => {
            ticket_comment(app, errand, issue, &errand.stamp(), body).await
        }
        Effect::WaitingComment { issue, name, body } => {
            let acted = match body {
                Some(body) => ticket_comment(app, errand, issue, name, body).await,
                None => match account(app, issue) {
                    Ok(account) => gone_is_done(account.delete_comment(issue, name).await),
                    Err(failure) => Err(failure),
                },
            };
            // People can do without it, so a refusal is not for an operator to repair.
            acted.or_else(|failure| match failure.cause {
                Cause::Lasting => Ok(Acted::Gone(failure.error)),
                Cause::Passing => Err(failure),
            })
        }
        Effect::LogExcerpt {
            issue,
            repo,
            run,
            label,
            comment,
        } => {
            let read = log::read(app, errand, repo, run).await;
            match read {
                Ok(Ok(excerpt)) => {
                    log::publish(app, errand, issue, *label, comment.as_ref(), &excerpt).await
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
                .map(|()| Acted::Done)
                .map_err(Failure::from),
            None => Ok(Acted::Done),
        },
        Effect::SyncWorkflows { team, repo } => sync_workflows(app, team, repo).await,
    };
    acted.unwrap_or_else(Acted::Failed)
}

fn account<'a>(app: &'a App, issue: &IssueRef) -> Result<&'a Account, Failure> {
    app.account(issue.system)
        .ok_or_else(|| Failure::lasting("the ticketing system is not configured"))
}

fn github(app: &App) -> Result<&GitHub, Failure> {
    app.github
        .as_ref()
        .ok_or_else(|| Failure::lasting("the repository host is not configured"))
}

fn gone_is_done(answer: Result<(), VendorError>) -> Result<Acted, Failure> {
    match answer {
        Ok(()) => Ok(Acted::Done),
        Err(error) if error.is_not_found() => Ok(Acted::Gone(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Starts the run, unless an earlier try may have: then the host is asked for it by name first, and
/// a second run is started only after it had time to show the first.
async fn start_run(
    app: &App,
    errand: &Errand,
    id: &JobId,
    brief: &RunBrief,
) -> Result<Acted, Failure> {
    let job = match app.store.read(|tx| jobs::get(tx, id)) {
        Ok(Some(job)) => job,
        Ok(None) => return Ok(Acted::Gone("its job is not in the store".to_owned())),
        Err(error) => {
            return Err(Failure::passing(&error.to_string()));
        }
    };
    if job.dispatched_at.is_some() || !job.is_active() {
        return unseen::adopt(app, errand, &job).await;
    }
    let (job, brief) = match with_image(app, job, brief).await? {
        Ok(known) => known,
        Err(why) => return Ok(Acted::Told(id.clone(), refusal(Cause::Lasting, None, &why))),
    };
    if let Some(host) = job.runner.host() {
        return session::start(app, errand, &job, &brief, host).await;
    }
    let github = github(app)?;
    if let Some(tried_at) = errand.unsure_since
        && let Some(run) = unseen::find(app, &job, tried_at).await?
    {
        return Ok(unseen::started(&job, run));
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
            Ok(Acted::Told(id.clone(), Event::Started { run }))
        }
        // Some hosts take a dispatch that they answer with a limit.
        Err(DispatchError::Vendor(error)) if error.is_limited() => Err(Failure {
            unsure: true,
            ..error.into()
        }),
        Err(DispatchError::Vendor(error)) if !error.is_permanent() => Err(error.into()),
        Err(refused) => Ok(Acted::Told(
            id.clone(),
            refusal(Cause::Lasting, refused.status(), &refused.to_string()),
        )),
    }
}

/// The job with the image that its repository asks for, when the host did not show it before; or why
/// it cannot have that one.
async fn with_image(
    app: &App,
    job: Job,
    brief: &RunBrief,
) -> Result<Result<(Job, RunBrief), String>, Failure> {
    if !brief.image_unread {
        return Ok(Ok((job, brief.clone())));
    }
    let asked = match image::asked(app, &job.repo, &brief.git_ref).await {
        Ok(Asked::Unread) => {
            let unread = "the image that the repository asks for could not be read";
            return Err(Failure::passing(unread));
        }
        Ok(asked) => asked,
        Err(why) => return Ok(Err(why)),
    };
    let session_image = dispatch::image_of(app, job.runner, &job.repo, asked);
    let brief = RunBrief {
        runner_image: session_image.clone(),
        image_unread: false,
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
        .map_err(|error| Failure::passing(&error.to_string()))?;
    Ok(Ok((job, brief)))
}

/// A run that is not going to start.
pub(super) fn refusal(cause: Cause, status: Option<u16>, why: &str) -> Event {
    Event::StartRefused {
        cause,
        status,
        reason: format!("the run could not be dispatched: {why}"),
    }
}

fn run_config(app: &App, job: &Job, brief: &RunBrief) -> RunConfig {
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
fn callback(app: &App, job: &Job) -> Option<Callback> {
    let (tokens, url) = (
        app.run_tokens.as_ref()?,
        app.config.callback_base_url.clone()?,
    );
    let now: Timestamp = app.now();
    let expires = now + job.time_budget() + caps::RUN_LINK_TIMEOUT + caps::TOKEN_GRACE;
    let token = |audience| tokens.issue(&job.id, audience, job.kind.run_phase(), now, expires);
    Some(Callback {
        url,
        run_token: token(Audience::Result),
        progress_token: token(Audience::Progress),
    })
}

async fn end_run(app: &App, repo: &Repo, run: &RunHandle) -> Result<Acted, Failure> {
    match (run, run.machine()) {
        (RunHandle::Ci { id, .. }, _) => gone_is_done(github(app)?.cancel_run(repo, *id).await),
        (_, Some(machine)) => session::stop(app, &machine).await,
        (_, None) => Ok(Acted::Done),
    }
}

/// Writes a comment on a ticket, unless an earlier try may have.
async fn ticket_comment(
    app: &App,
    errand: &Errand,
    issue: &IssueRef,
    stamp: &str,
    body: &str,
) -> Result<Acted, Failure> {
    let account = account(app, issue)?;
    if let Some(tried_at) = errand.unsure_since {
        // The vendor's clock may be behind ours, so the comment may seem older than its effect.
        let since = errand.pushed_at - CLOCK_SKEW;
        match account.earlier_try(issue, stamp, body, since).await {
            Ok(EarlierTry::Written) => return Ok(Acted::Done),
            Ok(EarlierTry::Absent) => unseen::wait(app, tried_at, "have written the comment")?,
            Ok(EarlierTry::Harmless) => {}
            Err(error) => return gone_is_done(Err(error)),
        }
    }
    gone_is_done(account.comment(issue, stamp, body).await)
}

async fn pull_comment(
    app: &App,
    errand: &Errand,
    repo: &Repo,
    number: u64,
    style: &PullCommentStyle,
    body: &str,
) -> Result<Acted, Failure> {
    let github = github(app)?;
    let name = match style {
        PullCommentStyle::New => errand.stamp(),
        PullCommentStyle::Pinned { name } => name.clone(),
    };
    let marker = format!("<!-- agent-implement:{name} -->");
    let marked = format!("{body}\n\n{marker}");
    let looked = match style {
        PullCommentStyle::New if errand.unsure_since.is_none() => Ok(None),
        PullCommentStyle::New | PullCommentStyle::Pinned { .. } => {
            github.find_comment(repo, number, &marker).await
        }
    };
    let found = match looked {
        Ok(found) => found,
        Err(error) => return gone_is_done(Err(error)),
    };
    if let (None, Some(tried_at)) = (&found, errand.unsure_since) {
        unseen::wait(app, tried_at, "have written the comment")?;
    }
    let put = github.put_comment(repo, number, found, &marked).await;
    gone_is_done(put.map(drop))
}

async fn set_draft(app: &App, repo: &Repo, number: u64, draft: Draft) -> Result<Acted, Failure> {
    let github = github(app)?;
    let pull = match github.pull(repo, number).await {
        Ok(pull) => pull,
        Err(error) => return gone_is_done(Err(error)),
    };
    gone_is_done(match draft {
        Draft::Draft => github.set_draft(repo, &pull.node_id).await,
        Draft::Ready => github.set_ready(repo, &pull.node_id).await,
    })
}

async fn sync_workflows(app: &App, team: &TeamKey, repo: &Repo) -> Result<Acted, Failure> {
    let github = github(app)?;
    let refused = match offer(app, github, team, repo).await {
        Ok(report) => return Ok(Acted::Synced(team.clone(), report)),
        Err(Obstacle::Rule(why)) => return Err(Failure::lasting(&why)),
        Err(Obstacle::Store(error)) => return Err(Failure::passing(&error.to_string())),
        Err(Obstacle::Vendor(error)) => error,
    };
    let remedy = sync::remedy(github, repo, &refused).await;
    let failure = Failure::from(refused);
    Err(match remedy {
        Some(remedy) => Failure {
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
) -> Result<SyncReport, Obstacle> {
    let offer = sync::look(app, github, team, repo).await?;
    if offer.files.is_empty() {
        return Ok(offer.report(repo, SyncStatus::UpToDate, None));
    }
    let (changed, pull) = (offer.changed(), offer.pull.as_ref());
    if !offer.stands {
        let new = NewCommit {
            parent: &offer.base,
            message: SYNC_MESSAGE,
            files: &offer.files,
        };
        let written = github.commit_files(repo, SYNC_BRANCH, offer.tip.as_deref(), &new);
        if written.await?.is_none() {
            let why = format!("{SYNC_BRANCH} was changed by somebody else meanwhile; sync again");
            return Err(Obstacle::Rule(why));
        }
    }
    let body = SyncBody(&changed).to_string();
    match pull {
        Some(pull) if offer.stands => Ok(offer.report(repo, SyncStatus::PrExisting, Some(pull))),
        Some(pull) => {
            let update = github.update_pull(repo, pull.number, SYNC_MESSAGE, &body);
            let pull = update.await?;
            Ok(offer.report(repo, SyncStatus::PrUpdated, Some(&pull)))
        }
        None => {
            let new = NewPull {
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
