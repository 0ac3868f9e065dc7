//! Reconciliation of open pull requests with GitHub, for events that no webhook delivered.
//!
//! Each sweep lists the pull requests of a repository once, which does not count against the rate limit while nothing
//! changes. One more request per 25 of our open pull requests reads their checks and reviews: a check that ends does not
//! count as an update. The same request reads the feedback on those that were updated, if the repository webhook is
//! configured (otherwise feedback does not start runs), the changed files of those whose head has moved, and those that
//! are no longer listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::app::{App, Core};
use crate::dispatch;
use domain::feedback::{
    self, FeedbackAuthor, FeedbackClass, PullRequestId, PullRequestRecord, PullRequestStatus,
    ReviewComment,
};
use domain::ids::Repo;
use domain::job::JobKind;
use domain::time::Timestamp;
use store::{ReadTx, ReadableTx, StoreResult, WriteTx, jobs, mappings, pull_feedback};
use vendors::scm::{
    FeedbackItem, GitHub, OpenPullRequest, PullRequestFeedback, PullRequestReport,
    PullRequestSelection, PullRequestState,
};

use super::changed_files;
use super::follow_up::{authors_of_requests, check_authors};
use super::ledger::{add_finding, close_pull, is_own_comment, own_job, record_command, withdraw};
use super::readiness::{self, ListedReport};
use super::stored_pull::StoredPull;

/// Time after the last run of a pull request for which it is reconciled.
pub(crate) const MAX_TRACKING_AGE: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// Maximum lead of GitHub's clock over ours.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Age after which a command that no webhook delivered is no longer started.
const MAX_COMMAND_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of closed pull requests that one sweep reads per repository.
const MAX_CLOSED_PER_SWEEP: usize = 20;

/// Checks all open pull requests once.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    let mut tracked: Vec<_> = tracked(&app.core).await?.into_iter().collect();
    // A sweep that takes too long is aborted. The next one begins with what it did not reach.
    tracked.sort_by_key(|(repo, _)| app.live.reconciliation.swept_at(repo));
    for (repo, ours) in tracked {
        let began_at = app.core.now();
        let is_read = match ours.is_empty() {
            true => true,
            false => sweep_repository(app, github, &repo, &ours).await?,
        };
        if is_read && app.live.reconciliation.record_repository(&repo, began_at) && !ours.is_empty()
        {
            app.live.notifiers.poll.notify_one();
        }
    }
    app.live.reconciliation.record_sweep(app.core.now());
    app.live.notifiers.follow_up.notify_one();
    Ok(())
}

/// Compares the pull requests of a repository with GitHub. Returns whether all of them were read.
async fn sweep_repository(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    ours: &BTreeMap<u64, TrackedPull>,
) -> StoreResult<bool> {
    let listed = match github.open_pulls(repo).await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%repo, %error, "Could not list open pull requests.");
            return Ok(false);
        }
    };
    let open: HashMap<u64, &OpenPullRequest> =
        listed.iter().map(|pull| (pull.number, pull)).collect();
    let (own_open, missing): (Vec<_>, Vec<_>) = ours
        .iter()
        .partition(|(number, _)| open.contains_key(number));
    let not_known_as_closed = missing
        .into_iter()
        .filter(|(_, known)| known.status != PullRequestStatus::Closed)
        .rev()
        .take(MAX_CLOSED_PER_SWEEP);
    let closed = not_known_as_closed.map(|(number, _)| *number);
    let open_numbers = own_open.iter().map(|(number, _)| **number);
    let own_listed: Vec<&OpenPullRequest> = open_numbers
        .clone()
        .filter_map(|number| open.get(&number).copied())
        .collect();
    let has_webhook = app.vendors.credentials.scm_webhook_secret.is_some();
    let is_due = |(number, known): &&(&u64, &TrackedPull)| {
        let updated_at = open.get(number).map(|pull| pull.updated_at);
        has_webhook && known.feedback_settled_at != updated_at
    };
    let due = own_open.iter().filter(is_due).map(|(number, _)| **number);
    let selection = PullRequestSelection {
        numbers: open_numbers.chain(closed.clone()).collect(),
        feedback: due.chain(closed).collect(),
        files: changed_files::moved(app, repo, &own_listed)?,
    };
    let reports = readiness::read(github, repo, &selection).await;
    store_reports(app, github, reports.found, &open, ours).await?;
    Ok(reports.is_complete)
}

/// Stores what GitHub reported about our pull requests of a repository.
async fn store_reports(
    app: &App,
    github: &GitHub,
    reports: Vec<(PullRequestId, PullRequestReport)>,
    open: &HashMap<u64, &OpenPullRequest>,
    before: &BTreeMap<u64, TrackedPull>,
) -> StoreResult<()> {
    let (mut feedback, mut files, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for (pull, mut report) in reports {
        let listed = open.get(&pull.number).copied();
        let Some(TrackedPull { status, .. }) = before.get(&pull.number) else {
            continue;
        };
        if let Some(seen) = report.feedback.take() {
            feedback.push(ReadFeedback {
                pull: pull.clone(),
                seen,
                listed_at: listed.map(|listed| listed.updated_at),
                status_before: status.clone(),
            });
        }
        if let Some(changed) = report.paths.take() {
            files.push((pull.clone(), changed));
        }
        if let Some(listed) = listed {
            states.push(ListedReport {
                pull,
                created_at: listed.created_at,
                status_before: status.clone(),
                report,
            });
        }
    }
    store_feedback(app, github, feedback).await?;
    changed_files::store(app, files).await?;
    readiness::store_listed(app, states).await
}

/// Pull request of the service that may be open, as last known.
struct TrackedPull {
    status: PullRequestStatus,
    feedback_settled_at: Option<Timestamp>,
}

type Tracked = BTreeMap<Repo, BTreeMap<u64, TrackedPull>>;

/// Our pull requests that may be open, by mapped repository and number. Repositories without any are included.
async fn tracked(core: &Core) -> StoreResult<Tracked> {
    let since = (core.now() - MAX_TRACKING_AGE).as_millis();
    core.store
        .read_long(move |tx| {
            let targets: BTreeSet<Repo> = mappings::all(tx)?
                .iter()
                .map(|mapping| mapping.target_repo())
                .collect();
            let mut tracked: Tracked = targets
                .into_iter()
                .map(|repo| (repo, BTreeMap::new()))
                .collect();
            for (pull, last_job) in jobs::pulls(tx)? {
                if dispatch::time_of(&last_job).is_some_and(|at| at < since) {
                    // Sorted by job, latest first: all that follow are older.
                    break;
                }
                let row = pull_feedback::get_pull(tx, &pull)?;
                if let Some(of_repo) = tracked.get_mut(&pull.repo)
                    && !row.has_final_commits
                {
                    let known = TrackedPull {
                        status: row.status,
                        feedback_settled_at: row.feedback_settled_at,
                    };
                    of_repo.insert(pull.number, known);
                }
            }
            Ok(tracked)
        })
        .await
}

/// Feedback on a pull request, as a sweep has read it.
struct ReadFeedback {
    pull: PullRequestId,
    seen: PullRequestFeedback,
    /// Time of the last update of an open one. `None` if the list of open ones lacks it.
    listed_at: Option<Timestamp>,
    /// Status in the store before the sweep.
    status_before: PullRequestStatus,
}

/// Stores the feedback on pull requests. One that was closed or opened again meanwhile is left to the next sweep.
async fn store_feedback(app: &App, github: &GitHub, read: Vec<ReadFeedback>) -> StoreResult<()> {
    // One that is open nevertheless was opened again, or is beyond the end of the list.
    let is_known =
        |read: &ReadFeedback| read.listed_at.is_some() || read.seen.state != PullRequestState::Open;
    let mut read: Vec<_> = read.into_iter().filter(is_known).collect();
    if read.is_empty() {
        return Ok(());
    }
    for read in read.iter_mut().filter(|read| read.listed_at.is_some()) {
        remove_unpermitted(app, github, &read.pull, &mut read.seen).await?;
    }
    let now = app.core.now();
    let write = app.core.store.write(move |tx| {
        let mut added = Vec::new();
        for read in &read {
            let pull = &read.pull;
            if pull_feedback::get_pull(tx, pull)?.status != read.status_before {
                continue;
            }
            let changes = reconcile_feedback(tx, pull, &read.seen, now)?;
            if let Some(updated_at) = read.listed_at {
                record_feedback_read(tx, pull, updated_at)?;
            }
            added.push((pull.clone(), changes, read.listed_at.is_some()));
        }
        Ok(added)
    });
    for (pull, changes, is_open) in write.await? {
        match (is_open, changes) {
            (true, added) => {
                app.live.reconciliation.record_check(added);
                if added > 0 {
                    tracing::info!(repo = %pull.repo, pull = pull.number, added, "Reconciliation found feedback that no webhook delivered.");
                    app.live.notifiers.follow_up.notify_one();
                }
            }
            (false, 0) => {}
            (false, _) => {
                app.live.reconciliation.record_missed_close();
                app.live.notifiers.poll.notify_one();
            }
        }
    }
    Ok(())
}

/// Removes the requests of authors whose feedback is not addressed. The next follow-up would remove them from the
/// ledger, and each later sweep would add them again; until then, they would stop a merge.
async fn remove_unpermitted(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    seen: &mut PullRequestFeedback,
) -> StoreResult<()> {
    let now = app.core.now();
    let read = |tx: &ReadTx| StoredPull::read(tx, app, pull, now);
    let Some(stored) = app.core.store.read(read)? else {
        return Ok(());
    };
    let authors: BTreeSet<FeedbackAuthor> = authors_of_requests(seen).collect();
    let authors = authors.into_iter().collect();
    let permitted = check_authors(app, github, pull, &stored.mapping, authors).await;
    let is_permitted = |item: &FeedbackItem| permitted.get(&item.comment.author) != Some(&false);
    seen.items
        .retain(|item| !item.is_active || is_permitted(item));
    Ok(())
}

/// Records that feedback was read. GitHub reports times in seconds, so each update is read twice: the second time
/// finds changes within the same second as the first.
fn record_feedback_read(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    updated_at: Timestamp,
) -> StoreResult<()> {
    let known = pull_feedback::get_pull(tx, pull)?;
    let is_second = known.feedback_read_at == Some(updated_at);
    let row = PullRequestRecord {
        feedback_read_at: Some(updated_at),
        feedback_settled_at: match is_second {
            true => Some(updated_at),
            false => known.feedback_settled_at,
        },
        ..known
    };
    pull_feedback::put_pull(tx, pull, &row)
}

/// Updates the ledger from GitHub: feedback that no webhook delivered is added, inactive feedback
/// is withdrawn. Returns the number of additions.
pub(super) fn reconcile_feedback(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    seen: &PullRequestFeedback,
    now: Timestamp,
) -> StoreResult<u64> {
    let status = match (seen.state, &seen.merge) {
        (PullRequestState::Open, _) => PullRequestStatus::Open,
        (PullRequestState::Merged, merge) => {
            let (commit, at) = merge.clone().unwrap_or_else(|| (String::new(), now));
            PullRequestStatus::Merged { commit, at }
        }
        (PullRequestState::Closed, _) => PullRequestStatus::Closed,
    };
    let known = pull_feedback::get_pull(tx, pull)?;
    let row = PullRequestRecord {
        created_at: Some(seen.created_at),
        human_commits: Some(seen.human_commits),
        has_final_commits: matches!(status, PullRequestStatus::Merged { .. }),
        ..known.clone()
    };
    if status != PullRequestStatus::Open {
        if row != known {
            pull_feedback::put_pull(tx, pull, &row)?;
        }
        return close_pull(tx, pull, status, now).map(u64::from);
    }
    let row = PullRequestRecord {
        status,
        draft: Some(seen.draft),
        ..row
    };
    if row != known {
        pull_feedback::put_pull(tx, pull, &row)?;
    }
    if own_job(tx, pull, &seen.body)?.is_none() {
        return Ok(0);
    }
    let mut added = 0;
    for item in &seen.items {
        added += u64::from(reconcile_item(tx, pull, item, now)?);
    }
    Ok(added)
}

/// Updates the ledger from one item. Returns whether the item was added.
fn reconcile_item(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    item: &FeedbackItem,
    now: Timestamp,
) -> StoreResult<bool> {
    let comment = &item.comment;
    if !item.is_active {
        withdraw(tx, pull, |known| {
            known.source == comment.source && known.id == comment.id
        })?;
        return Ok(false);
    }
    if is_own_comment(comment, item.is_by_pull_author) {
        return Ok(false);
    }
    match feedback::classify(comment) {
        // The line of an outdated comment has changed since, which probably addressed it.
        FeedbackClass::ChangeRequest if !item.is_outdated => {
            add_finding(tx, pull, comment.clone(), now)
        }
        FeedbackClass::Command(instruction) if !is_command_handled(tx, pull, comment, now)? => {
            record_command(tx, pull, comment, instruction, now)
        }
        FeedbackClass::ChangeRequest | FeedbackClass::Command(_) | FeedbackClass::Ignored(_) => {
            Ok(false)
        }
    }
}

/// Whether a run was started after the command, or the command is too old. The repository's
/// workflow does not report the comment of its command.
fn is_command_handled(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    comment: &ReviewComment,
    now: Timestamp,
) -> StoreResult<bool> {
    if now.since(comment.created_at) > MAX_COMMAND_AGE {
        return Ok(true);
    }
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    Ok(of_pull.iter().any(|job| {
        job.kind == JobKind::GapFill && job.reserved_at + CLOCK_SKEW >= comment.created_at
    }))
}
