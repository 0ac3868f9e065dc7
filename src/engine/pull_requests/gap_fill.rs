//! Gap-fill runs: more work on an open pull request, requested by the repository's workflow for a
//! command in a comment.
//!
//! The issue is looked up among those of all mappings. The transaction that reserves the run checks
//! that the pull request belongs to this service and that its branch is free, so of two equal
//! requests one starts a run. The ticket does not change: no marker moves, no dedup entry is
//! created, no slot is taken. A failure after the response is reported on the pull request.
//!
//! A webhook may deliver the same comment before or after. Each comment causes one run: see
//! [`CommentCommand`].

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::app::App;
use domain::agent_choice::AgentChoice;
use domain::audit::Actor;
use domain::feedback::{CommentCommand, CommentCommandState, PullRequestId, PullRequestStatus};
use domain::ids::{IssueKey, JobId, TeamKey};
use domain::issue::{IssueLookup, System};
use domain::job::{Job, JobKind, JobState};
use domain::limits;
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage;
use domain::sanitize;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::pull_feedback::KeyedRow;
use store::{ReadableTx, StoreError, StoreResult, WriteTx, jobs, mappings, pull_feedback};
use vendors::ticketing::TicketingClient;

use super::find_issue;
use super::run::{self, PullRunRequest};
use super::wait_comments;
use crate::{budget, dispatch, provider_limit, repo_image};

/// Maximum wait for the start of the run. Shorter than the time that a shutdown leaves to open
/// requests.
const START_WAIT: Duration = Duration::from_secs(8);

/// Marks the end of an instruction that was cut.
const CUT_MARK: &str = "\n\n[… instruction truncated: it exceeds the maximum length]";

/// Request for a gap-fill run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapFillRequest {
    /// Key of the issue.
    pub issue: String,
    /// Number of the pull request.
    pub pull_number: u64,
    /// Instruction for the run.
    pub instruction: Option<String>,
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GapFillOutcome {
    /// A run was reserved or started.
    Started(JobId),
    /// The command is known and waits for a free branch.
    Waiting,
}

/// Reason why no run was started.
#[derive(Debug, thiserror::Error)]
pub enum GapFillError {
    /// No mapping owns the issue, or this service has no job of the issue on the pull request.
    #[error("no mapping owns this issue and pull request")]
    NotFound,
    /// The mapping is paused.
    #[error("{0} is paused")]
    Paused(TeamKey),
    #[error("{detail}")]
    /// The run cannot be dispatched.
    NotDispatched {
        /// Reason.
        detail: String,
        /// HTTP status of GitHub, if it rejected the dispatch.
        status: Option<u16>,
    },
    /// The store failed.
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

/// Reserves a run on the pull request and waits briefly for its start.
///
/// A start that is still pending then counts as success: it is stored and retried for up to a day,
/// and further requests are rejected meanwhile, so that there is one run. A final failure is
/// reported on the pull request.
///
/// # Errors
/// Fails if no run will start, or if the store cannot be written.
pub async fn trigger(app: &App, request: GapFillRequest) -> Result<GapFillOutcome, GapFillError> {
    let key = IssueKey::parse(&request.issue).ok_or(GapFillError::NotFound)?;
    let (owners, lookup_failure) = owners(app, &key).await?;
    let images = images(app, &owners, request.pull_number).await?;
    let request = GapFillRequest {
        instruction: sanitize_instruction(request.instruction),
        ..request
    };
    let (handle, now) = (app.clone(), app.core.now());
    let reserved = app
        .core
        .store
        .write(
            move |tx| match reserve(tx, &handle, &owners, &images, &request, now) {
                Err(GapFillError::Store(error)) => Err(error),
                decided => Ok(decided),
            },
        )
        .await?;
    match (reserved, lookup_failure) {
        (Ok(GapFillOutcome::Waiting), _) => Ok(GapFillOutcome::Waiting),
        (Ok(GapFillOutcome::Started(job)), _) => {
            tracing::info!(job_id = %job, issue = %key, "Reserved a gap-fill run.");
            app.core.crash_plan.crash_if_planned(CrashPoint::Reserved);
            wait_for_start(app, &job).await.map(GapFillOutcome::Started)
        }
        // The issue may belong to the system that did not respond.
        (Err(GapFillError::NotFound), Some(reason)) => Err(GapFillError::not_dispatched(reason)),
        (Err(refusal), _) => Err(refusal),
    }
}

/// Removes invisible characters from an instruction and limits its length. Returns `None` if
/// nothing remains.
pub(super) fn sanitize_instruction(instruction: Option<String>) -> Option<String> {
    let instruction = instruction.map(|text| {
        let text = sanitize::strip_invisible(&text);
        sanitize::truncate(text.trim(), limits::MAX_INSTRUCTION_BYTES, CUT_MARK).into_owned()
    });
    instruction.filter(|text| !text.is_empty())
}

/// Looks up the issue in all mappings. The second value is the error of a system that did not
/// respond.
async fn owners(app: &App, key: &IssueKey) -> StoreResult<(Vec<IssueLookup>, Option<String>)> {
    let mut mapped: BTreeMap<System, Vec<Mapping>> = BTreeMap::new();
    for mapping in app.core.store.read(mappings::all)? {
        mapped.entry(mapping.system()).or_default().push(mapping);
    }
    let lookups = app.vendors.ticketing.iter().filter_map(|account| {
        let mappings = mapped.get(&account.system())?;
        Some(look_up(account, mappings, key))
    });
    let (mut owners, mut lookup_failure) = (Vec::new(), None);
    for lookup in join_all(lookups).await {
        match lookup {
            Ok(found) => owners.extend(found),
            Err(reason) => lookup_failure = Some(reason),
        }
    }
    Ok((owners, lookup_failure))
}

async fn look_up(
    account: &TicketingClient,
    mappings: &[Mapping],
    key: &IssueKey,
) -> Result<Vec<IssueLookup>, String> {
    let mappings: Vec<&Mapping> = mappings.iter().collect();
    find_issue(account, &mappings, key).await.map_err(|reason| {
        tracing::warn!(account = account.name(), issue = %key, reason, "Failed to look up an issue.");
        format!("the issue could not be looked up: {reason}")
    })
}

/// Image named by the repository of each owner, or the reason why it is invalid.
type Images = BTreeMap<TeamKey, Result<RequestedImage, String>>;

async fn images(app: &App, owners: &[IssueLookup], pull: u64) -> StoreResult<Images> {
    let mut images = Images::new();
    for lookup in owners {
        let owner = app
            .core
            .store
            .read(|tx| match mappings::get(tx, &lookup.team)? {
                Some(mapping) => Ok(last_job_on(tx, &mapping, lookup, pull)?.map(|_| mapping)),
                None => Ok(None),
            });
        if let Some(mapping) = owner? {
            images.insert(
                lookup.team.clone(),
                repo_image::fetch(app, &mapping.target_repo(), &mapping.default_branch).await,
            );
        }
    }
    Ok(images)
}

/// Reserves the run, unless the state has changed or the webhook has started a run for the command.
fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    owners: &[IssueLookup],
    images: &Images,
    request: &GapFillRequest,
    now: Timestamp,
) -> Result<GapFillOutcome, GapFillError> {
    let (lookup, mapping, last_job) = find_owned_pull(tx, owners, request.pull_number)?;
    let mode = app.core.runner_mode(tx)?;
    if let Some(why) = dispatch::ineligible_reason(app, mode, &mapping) {
        return Err(GapFillError::not_dispatched(why));
    }
    let image = match images.get(&mapping.team_key) {
        Some(Err(why)) => return Err(GapFillError::not_dispatched(why)),
        Some(Ok(image)) => image.clone(),
        None => RequestedImage::default(),
    };
    let pull = PullRequestId::new(&last_job.repo, request.pull_number);
    if let PullRequestStatus::Merged { .. } = pull_feedback::get_pull(tx, &pull)?.status {
        return Err(GapFillError::not_dispatched("the pull request is merged"));
    }
    if let Some(spending) = budget::exhausted(tx, &mapping, now)? {
        let reason = spending.exhausted_message(&mapping.team_key);
        wait_comments::post_command_refused(tx, &pull, &reason, now)?;
        return Err(GapFillError::not_dispatched(reason));
    }
    let known = command_from_webhook(tx, &pull, request, now)?;
    if let Some((key, command)) = &known {
        pull_feedback::put_command(tx, &pull, key, command)?;
        if let CommentCommandState::Started { job } = &command.state {
            return Ok(GapFillOutcome::Started(job.clone()));
        }
    }
    if let Some(Job { id, branch, .. }) = run::active_run(tx, &last_job)? {
        return match known {
            Some(_) => Ok(GapFillOutcome::Waiting),
            None => Err(GapFillError::not_dispatched(format!(
                "run {id} is active on {branch}; comment again when it has ended"
            ))),
        };
    }
    let labels = AgentChoice::from_labels(lookup.labels.iter().map(String::as_str));
    if let Err(until) = provider_limit::available_choice(tx, app, &mapping, &labels, now)? {
        if known.is_none() {
            let key = format!("asked-{}", now.as_millis());
            pull_feedback::put_command(tx, &pull, &key, &command_from_workflow(request, now))?;
        }
        wait_comments::post_limit_wait(tx, &pull, until, now)?;
        return Ok(GapFillOutcome::Waiting);
    }
    let run_request = PullRunRequest {
        kind: JobKind::GapFill,
        actor: Actor::trigger(),
        last_job: &last_job,
        mapping: &mapping,
        issue: lookup,
        instruction: request.instruction.clone(),
        findings: None,
        image,
    };
    let Some(job) = run::reserve(tx, app, run_request, now)? else {
        return Err(GapFillError::not_dispatched("its runner is not configured"));
    };
    let state = CommentCommandState::Started { job: job.clone() };
    let (key, command) =
        known.unwrap_or_else(|| (format!("job-{job}"), command_from_workflow(request, now)));
    pull_feedback::put_command(tx, &pull, &key, &CommentCommand { state, ..command })?;
    Ok(GapFillOutcome::Started(job))
}

/// Command that only the repository's workflow has reported.
fn command_from_workflow(request: &GapFillRequest, now: Timestamp) -> CommentCommand {
    CommentCommand {
        comment_id: None,
        author: None,
        instruction: request.instruction.clone(),
        requested_at: now,
        reported_by_workflow: true,
        state: CommentCommandState::Waiting,
    }
}

/// Finds the requested command, if the webhook has reported it and the workflow has not. The author
/// is cleared, because the workflow has checked the author's permission.
fn command_from_webhook(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    request: &GapFillRequest,
    now: Timestamp,
) -> StoreResult<Option<KeyedRow<CommentCommand>>> {
    let mut known = pull_feedback::commands(tx, pull)?.into_iter();
    let same = known.find(|(_, command)| {
        !command.reported_by_workflow
            && command.is_same_request(request.instruction.as_deref(), now)
    });
    Ok(same.map(|(key, command)| {
        let command = CommentCommand {
            reported_by_workflow: true,
            author: None,
            ..command
        };
        (key, command)
    }))
}

/// Finds the owner of the issue whose repository has the pull request, with its mapping and the
/// last job on the pull request.
fn find_owned_pull<'a>(
    tx: &impl ReadableTx,
    owners: &'a [IssueLookup],
    pull: u64,
) -> Result<(&'a IssueLookup, Mapping, Job), GapFillError> {
    // Several mappings can own the issue: the one of its last job on the pull request counts, else one whose
    // repository has that job.
    let (mut error, mut of_repo) = (GapFillError::NotFound, None);
    for lookup in owners {
        let Some(mapping) = mappings::get(tx, &lookup.team)? else {
            continue;
        };
        let last_job = last_job_on(tx, &mapping, lookup, pull)?;
        let is_its_own = last_job
            .as_ref()
            .is_some_and(|job| job.team == mapping.team_key);
        match last_job {
            _ if mapping.paused && is_its_own => {
                return Err(GapFillError::Paused(mapping.team_key));
            }
            _ if mapping.paused => error = GapFillError::Paused(mapping.team_key),
            Some(last_job) if is_its_own => return Ok((lookup, mapping, last_job)),
            Some(last_job) => of_repo = of_repo.or(Some((lookup, mapping, last_job))),
            None => {}
        }
    }
    of_repo.ok_or(error)
}

/// Last job of the issue on a pull request of the mapping's repository.
fn last_job_on(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    lookup: &IssueLookup,
    pull: u64,
) -> StoreResult<Option<Job>> {
    let of_pull = jobs::of_pull(tx, &mapping.target_repo(), pull)?;
    let of_issue = |job: &Job| job.issue.id == lookup.issue.id;
    Ok(of_pull.into_iter().rfind(of_issue))
}

/// Waits until the start has succeeded or failed, or `START_WAIT` has passed.
async fn wait_for_start(app: &App, id: &JobId) -> Result<JobId, GapFillError> {
    let started = app.live.notifiers.await_effects(|| {
        let job = app.core.store.read(|tx| jobs::get(tx, id))?;
        Ok::<_, StoreError>(job.filter(|job| job.state != JobState::Reserved))
    });
    match timeout(START_WAIT, started).await {
        Ok(job) => start_result(job?),
        Err(_) => Ok(id.clone()),
    }
}

/// Result for a job that is no longer reserved: it was dispatched, whatever happened since, or its
/// start failed.
fn start_result(job: Job) -> Result<JobId, GapFillError> {
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
