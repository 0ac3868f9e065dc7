//! More work on an open pull request, because a person asks for it in a comment.
//!
//! The issue is looked up among what the mappings own; whether the pull request is ours and its
//! branch free is decided in the commit that reserves the run, so that of two equal requests one
//! starts a run. The ticket hears nothing of it: no marker moves, no dedup entry is made, no slot is
//! taken. What goes wrong after the answer is told on the pull request.
//!
//! The host may have told of the same comment by webhook, before or after. Each comment is one run:
//! see [`Command`].

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::app::App;
use domain::audit::Actor;
use domain::comments;
use domain::feedback::{CommentCommand, CommentCommandState, PullRequestId, PullRequestStatus};
use domain::ids::{IssueKey, JobId, TeamKey};
use domain::issue::{IssueLookup, Phase, System};
use domain::job::{Job, JobKind, JobState};
use domain::limits;
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage as AskedImage;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::pull_feedback::KeyedRow;
use store::{ReadableTx, StoreError, StoreResult, WriteTx, jobs, mappings, pull_feedback};
use vendors::ticketing::TicketingClient;

use super::budget;
use super::dispatch;
use super::provider_limit;
use super::pull_run::{self, PullRunRequest};
use super::pull_wait_comments;
use super::repo_image;

/// How long is a ticketing system waited for?
const LOOK_UP: Duration = Duration::from_secs(15);

/// How long is the start waited for? Shorter than what a stop of the service leaves to requests.
const START: Duration = Duration::from_secs(8);

/// Ends an instruction that was cut.
const CUT_MARK: &str = "\n\n[… the instruction was cut here: it is longer than a run may be given]";

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapFillRequest {
    pub issue: String,
    pub pull_number: u64,
    pub instruction: Option<String>,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GapFillOutcome {
    Started(JobId),
    /// It is known already, and waits for its turn on the branch.
    Waiting,
}

/// Why no run was started.
#[derive(Debug, thiserror::Error)]
pub enum GapFillError {
    /// No mapping owns the issue, or the pull request is none that we opened for it.
    #[error("no mapping owns such an issue and pull request")]
    NotFound,
    #[error("{0} is paused")]
    Paused(TeamKey),
    #[error("{detail}")]
    NotDispatched {
        detail: String,
        /// The repository host's HTTP status, when it is the one who refused.
        status: Option<u16>,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl GapFillError {
    fn not_dispatched(detail: impl Into<String>) -> Self {
        Self::NotDispatched {
            detail: detail.into(),
            status: None,
        }
    }
}

/// Reserves a run on the pull request and waits a little for its start.
///
/// A start that is still open then counts as one: it is stored and will be tried for a day, and
/// whoever asks again meanwhile is refused, so that there is one run. Should it fail in the end, the
/// pull request is told.
///
/// # Errors
/// When no run is going to start, or it cannot be stored.
pub async fn trigger(app: &App, asked: GapFillRequest) -> Result<GapFillOutcome, GapFillError> {
    let key = IssueKey::parse(&asked.issue).ok_or(GapFillError::NotFound)?;
    let (owners, unclear) = owners(app, &key).await?;
    let images = images(app, &owners).await?;
    let asked = GapFillRequest {
        instruction: sanitize_instruction(asked.instruction),
        ..asked
    };
    let (handle, now) = (app.clone(), app.now());
    let reserved = app
        .store
        .write(
            move |tx| match reserve(tx, &handle, &owners, &images, &asked, now) {
                Err(GapFillError::Store(error)) => Err(error),
                decided => Ok(decided),
            },
        )
        .await?;
    match (reserved, unclear) {
        (Ok(GapFillOutcome::Waiting), _) => Ok(GapFillOutcome::Waiting),
        (Ok(GapFillOutcome::Started(job)), _) => {
            tracing::info!(job_id = %job, issue = %key, "Reserved a run on a pull request.");
            app.crash_plan.crash_if_planned(CrashPoint::Reserved);
            started(app, &job).await.map(GapFillOutcome::Started)
        }
        // A system that did not answer may be the one that has it.
        (Err(GapFillError::NotFound), Some(why)) => Err(GapFillError::not_dispatched(why)),
        (Err(refusal), _) => Err(refusal),
    }
}

/// The instruction as a run may have it: nothing in it is invisible, and it leaves room for the rest.
pub(super) fn sanitize_instruction(instruction: Option<String>) -> Option<String> {
    let instruction = instruction.map(|text| {
        let text = comments::strip_invisible_chars(&text);
        comments::truncate(text.trim(), limits::MAX_INSTRUCTION_BYTES, CUT_MARK)
    });
    instruction.filter(|text| !text.is_empty())
}

/// The issue as each mapping sees it that owns it, and why another might.
async fn owners(app: &App, key: &IssueKey) -> StoreResult<(Vec<IssueLookup>, Option<String>)> {
    let mut mapped: BTreeMap<System, Vec<Mapping>> = BTreeMap::new();
    for mapping in app.store.read(mappings::all)? {
        mapped.entry(mapping.system()).or_default().push(mapping);
    }
    let looks = app.ticketing.iter().filter_map(|account| {
        let mappings = mapped.get(&account.system())?;
        Some(look_up(account, mappings, key))
    });
    let (mut owners, mut unclear) = (Vec::new(), None);
    for look in join_all(looks).await {
        match look {
            Ok(found) => owners.extend(found),
            Err(why) => unclear = Some(why),
        }
    }
    Ok((owners, unclear))
}

async fn look_up(
    account: &TicketingClient,
    mappings: &[Mapping],
    key: &IssueKey,
) -> Result<Vec<IssueLookup>, String> {
    let mappings: Vec<&Mapping> = mappings.iter().collect();
    let why = match timeout(LOOK_UP, account.find_issue(&mappings, key)).await {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("{} did not answer in time", account.name()),
    };
    tracing::warn!(account = account.name(), issue = %key, why, "An issue could not be looked up.");
    Err(format!("the issue could not be looked up: {why}"))
}

/// What the repository of each owner asks for as an image, or why it cannot have it.
type Images = BTreeMap<TeamKey, Result<AskedImage, String>>;

async fn images(app: &App, owners: &[IssueLookup]) -> StoreResult<Images> {
    let mut images = Images::new();
    for named in owners {
        if let Some(mapping) = app.store.read(|tx| mappings::get(tx, &named.team))? {
            images.insert(
                named.team.clone(),
                repo_image::fetch(app, &mapping.target_repo(), &mapping.default_branch).await,
            );
        }
    }
    Ok(images)
}

/// Reserves the run, unless what was seen outside no longer holds, or the webhook has told of it.
fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    owners: &[IssueLookup],
    images: &Images,
    asked: &GapFillRequest,
    now: Timestamp,
) -> Result<GapFillOutcome, GapFillError> {
    let (named, mapping, opened) = permitted(tx, owners, asked.pull_number)?;
    let mode = app.runner_mode(tx)?;
    if let Some(why) = dispatch::ineligible_reason(app, mode, &mapping, Phase::Implementation) {
        return Err(GapFillError::not_dispatched(why));
    }
    let image = match images.get(&mapping.team_key) {
        Some(Err(why)) => return Err(GapFillError::not_dispatched(why)),
        Some(Ok(image)) => image.clone(),
        None => AskedImage::default(),
    };
    let pull = PullRequestId {
        repo: opened.repo.clone(),
        number: asked.pull_number,
    };
    if let PullRequestStatus::Merged { .. } = pull_feedback::get_pull(tx, &pull)?.status {
        return Err(GapFillError::not_dispatched("the pull request is merged"));
    }
    if let Some(spending) = budget::exhausted(tx, &mapping, now)? {
        let told = spending.exhausted_message(&mapping.team_key);
        pull_wait_comments::post_command_refused(tx, &pull, &told, now)?;
        return Err(GapFillError::not_dispatched(told));
    }
    let known = told_by_webhook(tx, &pull, asked, now)?;
    if let Some((key, command)) = &known {
        pull_feedback::put_command(tx, &pull, key, command)?;
        if let CommentCommandState::Started { job } = &command.state {
            return Ok(GapFillOutcome::Started(job.clone()));
        }
    }
    if let Some(Job { id, branch, .. }) = pull_run::active_run(tx, &opened)? {
        return match known {
            Some(_) => Ok(GapFillOutcome::Waiting),
            None => Err(GapFillError::not_dispatched(format!(
                "run {id} is at work on {branch}; comment again when it has ended"
            ))),
        };
    }
    if let Some(until) = provider_limit::limited_until(tx, app, &mapping, now)? {
        if known.is_none() {
            let key = format!("asked-{}", now.as_millis());
            pull_feedback::put_command(tx, &pull, &key, &by_workflow(asked, now))?;
        }
        pull_wait_comments::post_limit_wait(tx, &pull, until, now)?;
        return Ok(GapFillOutcome::Waiting);
    }
    let wanted = PullRunRequest {
        kind: JobKind::GapFill,
        actor: Actor::trigger(),
        last_job: &opened,
        mapping: &mapping,
        issue: named,
        instruction: asked.instruction.clone(),
        findings: None,
        image,
    };
    let Some(job) = pull_run::reserve(tx, app, wanted, now)? else {
        return Err(GapFillError::not_dispatched("its runner is not set up"));
    };
    let state = CommentCommandState::Started { job: job.clone() };
    let (key, command) = known.unwrap_or_else(|| (format!("job-{job}"), by_workflow(asked, now)));
    pull_feedback::put_command(tx, &pull, &key, &CommentCommand { state, ..command })?;
    Ok(GapFillOutcome::Started(job))
}

/// A comment that only the repository's workflow has told of.
fn by_workflow(asked: &GapFillRequest, now: Timestamp) -> CommentCommand {
    CommentCommand {
        comment_id: None,
        author: None,
        instruction: asked.instruction.clone(),
        requested_at: now,
        reported_by_workflow: true,
        state: CommentCommandState::Waiting,
    }
}

/// The comment meant, if the webhook has told of it and the workflow has not. The workflow has seen
/// that its author may ask.
fn told_by_webhook(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    asked: &GapFillRequest,
    now: Timestamp,
) -> StoreResult<Option<KeyedRow<CommentCommand>>> {
    let mut known = pull_feedback::commands(tx, pull)?.into_iter();
    let meant = known.find(|(_, command)| {
        !command.reported_by_workflow && command.is_same_request(asked.instruction.as_deref(), now)
    });
    Ok(meant.map(|(key, command)| {
        let command = CommentCommand {
            reported_by_workflow: true,
            author: None,
            ..command
        };
        (key, command)
    }))
}

/// The issue, the mapping that owns it, and the last job of ours on the pull request.
fn permitted<'a>(
    tx: &impl ReadableTx,
    owners: &'a [IssueLookup],
    pull: u64,
) -> Result<(&'a IssueLookup, Mapping, Job), GapFillError> {
    // Of several owners it is the one in whose repository we opened the pull request for the issue.
    let mut refused = GapFillError::NotFound;
    for named in owners {
        let Some(mapping) = mappings::get(tx, &named.team)? else {
            continue;
        };
        let of_pull = jobs::of_pull(tx, &mapping.target_repo(), pull)?;
        let of_issue = |job: &Job| job.issue.id == named.issue.id;
        match of_pull.into_iter().rfind(of_issue) {
            Some(opened) if !mapping.paused => return Ok((named, mapping, opened)),
            _ if mapping.paused => refused = GapFillError::Paused(mapping.team_key),
            _ => {}
        }
    }
    Err(refused)
}

/// Waits for what the host says to the start.
async fn started(app: &App, id: &JobId) -> Result<JobId, GapFillError> {
    let waiting = async {
        loop {
            let mut settled = pin!(app.notifiers.effect_settled.notified());
            // From here on no bell is missed.
            settled.as_mut().enable();
            let job = app.store.read(|tx| jobs::get(tx, id))?;
            if let Some(job) = job.filter(|job| job.state != JobState::Reserved) {
                return outcome(job);
            }
            settled.await;
        }
    };
    let waited = timeout(START, waiting).await;
    waited.unwrap_or_else(|_| Ok(id.clone()))
}

/// A job that has left its reservation: it was dispatched, whatever came then, or never will be.
fn outcome(job: Job) -> Result<JobId, GapFillError> {
    match job.state {
        JobState::Failed { reason, .. } if job.dispatched_at.is_none() => {
            Err(GapFillError::NotDispatched {
                detail: reason,
                status: job.start_refusal_status,
            })
        }
        _ => Ok(job.id),
    }
}
