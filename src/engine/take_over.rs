//! Take-over: people continue issues by hand, and give them back.
//!
//! The state belongs to the issue. While it lasts, no run of the issue is dispatched, and nothing automatic happens on its
//! pull request; `domain::take_over` decides that. It ends when the issue is given back, when its pull request is merged
//! or closed, or when its ticket is closed before there is a pull request.
//!
//! One comment on the pull request shows the state. Without an open pull request, the ticket gets a comment.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use crate::dispatch;
use crate::take_over_guide;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::effect::{Effect, PullCommentStyle};
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueRef, System};
use domain::job::Job;
use domain::take_over::{TakeOver, person_name};
use domain::take_over_guide::TakeOverGuide;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{
    ReadableTx, StoreError, StoreResult, WriteTx, audit, decisions, job_index, jobs, mappings,
    outbox, pull_feedback, take_overs,
};

/// Name of the comment that shows the state on the pull request.
const COMMENT: &str = "take-over";

/// Timeout of the question whether tickets are closed.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);

/// Issue that a person takes over or gives back, as it is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Id or key of the issue.
    Issue(String),
    /// Pull request of the issue.
    Pull(PullRequestId),
}

/// Reason why an issue cannot be taken over or given back.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// No poll and no run knows the issue.
    #[error("no such issue")]
    UnknownIssue,
    /// No run worked on the pull request.
    #[error("no such pull request")]
    UnknownPull,
    /// The pull request is merged or closed.
    #[error("the pull request is not open")]
    PullNotOpen,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Issue with its runs, as the store knows it.
pub(crate) struct KnownIssue {
    /// Issue.
    pub issue: IssueRef,
    /// Its runs without shadow runs, oldest first.
    pub jobs: Vec<Job>,
    /// Pull request by which it was named, else its latest one.
    pub pull: Option<PullRequestId>,
}

impl KnownIssue {
    /// Finds an issue.
    ///
    /// # Errors
    /// Fails if nothing knows it, or if the store cannot be read.
    pub(crate) fn find(tx: &impl ReadableTx, named: &Named) -> Result<Self, TakeOverError> {
        match named {
            Named::Issue(named) => {
                Self::find_issue(tx, named.trim())?.ok_or(TakeOverError::UnknownIssue)
            }
            Named::Pull(pull) => {
                // GitHub ignores the case of names.
                let repo = mappings::canonical_target(tx, &pull.repo)?;
                let repo = repo.unwrap_or_else(|| pull.repo.clone());
                let of_pull = jobs::of_pull(tx, &repo, pull.number)?;
                let last = of_pull.last().ok_or(TakeOverError::UnknownPull)?;
                let jobs = dispatch::non_shadow_jobs(tx, &last.issue.id)?;
                Ok(Self {
                    pull: PullRequestId::of_job(last),
                    ..Self::new(last.issue.clone(), jobs)
                })
            }
        }
    }

    fn find_issue(tx: &impl ReadableTx, named: &str) -> StoreResult<Option<Self>> {
        let history = decisions::get_named(tx, &IssueKey::from(named))?;
        let id = match &history {
            Some(history) => Some(history.issue.id.clone()),
            None => job_index::issue_named(tx, named)?,
        };
        let id = id.unwrap_or_else(|| IssueId::from(named));
        let jobs = dispatch::non_shadow_jobs(tx, &id)?;
        let of_history = history.map(|history| history.issue);
        let issue = of_history.or_else(|| Some(jobs.last()?.issue.clone()));
        let issue = match issue {
            Some(issue) => Some(issue),
            None => decisions::find_by_issue(tx, &id)?.map(|history| history.issue),
        };
        Ok(issue.map(|issue| Self::new(issue, jobs)))
    }

    fn new(issue: IssueRef, jobs: Vec<Job>) -> Self {
        Self {
            pull: jobs.iter().rev().find_map(PullRequestId::of_job),
            issue,
            jobs,
        }
    }

    /// Returns the pull request if it is open.
    fn open_pull(&self, tx: &impl ReadableTx) -> StoreResult<Option<PullRequestId>> {
        let Some(pull) = &self.pull else {
            return Ok(None);
        };
        let is_open = pull_feedback::get_pull(tx, pull)?.status == PullRequestStatus::Open;
        Ok(is_open.then(|| pull.clone()))
    }
}

/// Records that a person has an issue. `by` is the name that people read; without one, an operator has it. Returns what
/// the person needs to continue. A repeated call changes nothing, unless it names another person.
///
/// # Errors
/// Fails if the issue or pull request is not known, if the pull request is not open, or if the store cannot be written.
pub async fn take(
    app: &App,
    actor: Actor,
    named: Named,
    by: Option<&str>,
) -> Result<TakeOverGuide, TakeOverError> {
    let by = by.map(|name| app.secrets.redactor.sanitize(name));
    let (by, now) = (by.as_deref().and_then(person_name), app.core.now());
    let target = named.clone();
    let taken =
        app.core.store.write(
            move |tx| match take_in(tx, &actor, &target, by.as_deref(), now) {
                Err(TakeOverError::Store(error)) => Err(error),
                taken => Ok(taken),
            },
        );
    taken.await??;
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::TakeOverStored);
    take_over_guide::load(app, &named).await
}

fn take_in(
    tx: &WriteTx<'_>,
    actor: &Actor,
    named: &Named,
    by: Option<&str>,
    now: Timestamp,
) -> Result<(), TakeOverError> {
    let known = KnownIssue::find(tx, named)?;
    let pull = known.open_pull(tx)?;
    if pull.is_none() && matches!(named, Named::Pull(_)) {
        return Err(TakeOverError::PullNotOpen);
    }
    let before = take_overs::get(tx, &known.issue.id)?;
    let is_repeat = |before: &TakeOver| by.is_none_or(|by| by == before.by);
    if before.as_ref().is_some_and(is_repeat) {
        return Ok(());
    }
    let take_over = TakeOver {
        issue: known.issue,
        by: by.unwrap_or(actor.display_name()).to_owned(),
        at: now,
    };
    take_overs::put(tx, &take_over)?;
    let detail = details(&take_over.by, pull.as_ref());
    let event = actor.audit_event(Action::TakenOver, &take_over.issue.key);
    audit::append(tx, &event.with_detail(detail), now)?;
    let note = match pull {
        Some(pull) => on_pull(pull, comments::taken_over(&take_over.by)),
        None => on_ticket(&take_over, comments::ticket_taken_over(&take_over.by)),
    };
    outbox::push(tx, &note, now)?;
    Ok(())
}

/// Records that a person gives an issue back. An issue that nobody has stays as it is.
///
/// # Errors
/// Fails if the issue or pull request is not known, or if the store cannot be written.
pub async fn give_back(
    app: &App,
    actor: Actor,
    named: Named,
    by: Option<&str>,
) -> Result<(), TakeOverError> {
    let by = by.map(|name| app.secrets.redactor.sanitize(name));
    let (by, now) = (by.as_deref().and_then(person_name), app.core.now());
    let given = app.core.store.write(move |tx| {
        match give_back_in(tx, &actor, &named, by.as_deref(), now) {
            Err(TakeOverError::Store(error)) => Err(error),
            given => Ok(given),
        }
    });
    given.await??;
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::TakeOverStored);
    // What waited meanwhile.
    app.live.notifiers.follow_up.notify_one();
    app.live.notifiers.poll.notify_one();
    Ok(())
}

fn give_back_in(
    tx: &WriteTx<'_>,
    actor: &Actor,
    named: &Named,
    by: Option<&str>,
    now: Timestamp,
) -> Result<(), TakeOverError> {
    let known = KnownIssue::find(tx, named)?;
    let Some(take_over) = take_overs::get(tx, &known.issue.id)? else {
        return Ok(());
    };
    take_overs::remove(tx, &take_over.issue.id)?;
    let pull = known.open_pull(tx)?;
    let by = by.unwrap_or(actor.display_name());
    let event = actor.audit_event(Action::GivenBack, &take_over.issue.key);
    audit::append(tx, &event.with_detail(details(by, pull.as_ref())), now)?;
    let note = match pull {
        Some(pull) => on_pull(pull, comments::given_back(by)),
        None => on_ticket(&take_over, comments::ticket_given_back(by)),
    };
    outbox::push(tx, &note, now)?;
    Ok(())
}

fn details(by: &str, pull: Option<&PullRequestId>) -> String {
    match pull {
        Some(pull) => format!("by {by}; pull request {}#{}", pull.repo, pull.number),
        None => format!("by {by}; no open pull request"),
    }
}

fn on_pull(pull: PullRequestId, body: String) -> Effect {
    Effect::PullComment {
        repo: pull.repo,
        number: pull.number,
        style: PullCommentStyle::Sticky {
            name: COMMENT.to_owned(),
        },
        body,
    }
}

fn on_ticket(take_over: &TakeOver, body: String) -> Effect {
    Effect::TicketComment {
        issue: take_over.issue.clone(),
        body,
    }
}

/// Ends the take-over of an issue whose pull request was merged or closed, unless the issue has a later one.
pub(crate) fn end_with_pull(
    tx: &WriteTx<'_>,
    issue: &IssueId,
    pull: &PullRequestId,
    status: &PullRequestStatus,
    now: Timestamp,
) -> StoreResult<()> {
    let jobs = dispatch::non_shadow_jobs(tx, issue)?;
    let latest = jobs.iter().rev().find_map(PullRequestId::of_job);
    if latest.is_some_and(|latest| latest != *pull) {
        return Ok(());
    }
    let state = status.as_str();
    let closed = format!("pull request {}#{} is {state}", pull.repo, pull.number);
    end(tx, issue, &closed, now)
}

/// Ends the take-over of an issue, for this reason.
fn end(tx: &WriteTx<'_>, issue: &IssueId, closed: &str, now: Timestamp) -> StoreResult<()> {
    let Some(take_over) = take_overs::get(tx, issue)? else {
        return Ok(());
    };
    take_overs::remove(tx, issue)?;
    let event = Actor::service().audit_event(Action::GivenBack, &take_over.issue.key);
    let detail = format!("{closed}; {} had it", take_over.by);
    audit::append(tx, &event.with_detail(detail), now)
}

/// Ends the take-overs of closed tickets that have no open pull request. A system that does not answer is asked again in
/// the next cycle.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub(crate) async fn end_of_closed_tickets(app: &App) -> StoreResult<()> {
    let without_pull = app.core.store.read(|tx| {
        let mut by_system: BTreeMap<System, Vec<IssueRef>> = BTreeMap::new();
        for take_over in take_overs::all(tx)? {
            let issue = take_over.issue;
            let jobs = dispatch::non_shadow_jobs(tx, &issue.id)?;
            let (system, known) = (issue.system, KnownIssue::new(issue, jobs));
            if known.open_pull(tx)?.is_none() {
                by_system.entry(system).or_default().push(known.issue);
            }
        }
        Ok(by_system)
    })?;
    for (system, issues) in without_pull {
        let Some(account) = app.vendors.account(system) else {
            continue;
        };
        let closed = match timeout(LOOKUP_TIMEOUT, account.closed_issues(&issues)).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(error)) => {
                tracing::warn!(account = account.name(), %error, "Failed to read the states of issues that people have taken over.");
                continue;
            }
            Err(_) => continue,
        };
        let now = app.core.now();
        let ended: Vec<IssueId> = issues.into_iter().map(|issue| issue.id).collect();
        let ended = ended.into_iter().filter(|id| closed.contains(id));
        let ended: Vec<IssueId> = ended.collect();
        if ended.is_empty() {
            continue;
        }
        let write = app.core.store.write(move |tx| {
            ended
                .iter()
                .try_for_each(|issue| end(tx, issue, "the ticket is closed", now))
        });
        write.await?;
    }
    Ok(())
}
