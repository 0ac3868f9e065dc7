//! Reconciliation of open pull requests with GitHub, for events that no webhook delivered.
//!
//! Each sweep lists the pull requests of a repository once, which does not count against the rate
//! limit while nothing changes, and reads each pull request that was updated, if the repository
//! webhook is configured; otherwise feedback does not start runs. One more request per repository
//! reads the checks and reviews of all our open pull requests for the panel: a check that ends
//! does not count as an update.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::{TryStreamExt, stream};

use crate::app::{App, Core};
use domain::feedback::{
    self, FeedbackClass, PullRequestId, PullRequestRecord, PullRequestStatus, ReviewComment,
};
use domain::ids::Repo;
use domain::job::JobKind;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, WriteTx, jobs, mappings, pull_feedback};
use vendors::scm::{FeedbackItem, GitHub, OpenPullRequest, PullRequestFeedback, PullRequestState};

use super::changed_files;
use super::follow_up::MAX_CONCURRENT_PULLS;
use super::ledger::{add_finding, close_pull, is_own_comment, own_job, record_command, withdraw};
use super::readiness;

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
    let has_webhook = app.vendors.credentials.scm_webhook_secret.is_some();
    for (repo, ours) in tracked(&app.core).await? {
        let began_at = app.core.now();
        if ours.is_empty() {
            app.live.reconciliation.record_repository(&repo, began_at);
            continue;
        }
        let open = match github.open_pulls(&repo).await {
            Ok(open) => open,
            Err(error) => {
                tracing::warn!(%repo, %error, "Could not list open pull requests.");
                continue;
            }
        };
        let id = |number| PullRequestId {
            repo: repo.clone(),
            number,
        };
        let due = open
            .iter()
            .filter(|pull| {
                let known = ours.get(&pull.number);
                let is_settled =
                    |known: &TrackedPull| known.feedback_settled_at == Some(pull.updated_at);
                has_webhook && known.is_some_and(|known| !is_settled(known))
            })
            .map(|pull| (id(pull.number), pull.updated_at));
        stream::iter(due.map(Ok))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |(id, updated_at)| {
                check_pull(app, github, id, updated_at)
            })
            .await?;
        let own_open = open.iter().filter(|pull| ours.contains_key(&pull.number));
        let own_open: Vec<&OpenPullRequest> = own_open.collect();
        changed_files::update(app, github, &repo, &own_open).await?;
        let is_read = readiness::update_listed(app, github, &repo, own_open).await?;
        let numbers: HashSet<u64> = open.iter().map(|pull| pull.number).collect();
        let is_open = |number| numbers.contains(&number);
        let closed = ours
            .iter()
            .filter(|(number, known)| {
                known.status != PullRequestStatus::Closed && !is_open(**number)
            })
            .rev()
            .take(MAX_CLOSED_PER_SWEEP);
        stream::iter(closed.map(|(number, _)| Ok(id(*number))))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |id| record_close(app, github, id))
            .await?;
        if is_read && app.live.reconciliation.record_repository(&repo, began_at) {
            app.live.notifiers.poll.notify_one();
        }
    }
    app.live.reconciliation.record_sweep(app.core.now());
    app.live.notifiers.follow_up.notify_one();
    Ok(())
}

/// Pull request of the service that may be open, as last known.
struct TrackedPull {
    status: PullRequestStatus,
    feedback_settled_at: Option<Timestamp>,
}

type Tracked = BTreeMap<Repo, BTreeMap<u64, TrackedPull>>;

/// Our pull requests that may be open, by mapped repository and number. Repositories without any are included.
async fn tracked(core: &Core) -> StoreResult<Tracked> {
    let since = core.now() - MAX_TRACKING_AGE;
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
                if jobs::get(tx, &last_job)?.is_some_and(|job| job.reserved_at < since) {
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

async fn check_pull(
    app: &App,
    github: &GitHub,
    pull: PullRequestId,
    updated_at: Timestamp,
) -> StoreResult<()> {
    let seen = match github.pull_feedback(&pull).await {
        Ok(seen) => seen,
        Err(error) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "Failed to read the feedback on a pull request.");
            return Ok(());
        }
    };
    let (pull_id, now) = (pull.clone(), app.core.now());
    let added = app
        .core
        .store
        .write(move |tx| {
            let added = reconcile_feedback(tx, &pull_id, &seen, now)?;
            record_feedback_read(tx, &pull_id, updated_at)?;
            Ok(added)
        })
        .await?;
    app.live.reconciliation.record_check(added);
    if added > 0 {
        tracing::info!(repo = %pull.repo, pull = pull.number, added, "Reconciliation found feedback that no webhook delivered.");
        app.live.notifiers.follow_up.notify_one();
    }
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

/// Records that a pull request was merged or closed, and reads the commits of one whose merge a
/// webhook has reported. One that cannot be read does not change.
async fn record_close(app: &App, github: &GitHub, pull: PullRequestId) -> StoreResult<()> {
    let seen = match github.pull_feedback(&pull).await {
        Ok(seen) if seen.state == PullRequestState::Open => return Ok(()),
        Ok(seen) => seen,
        Err(error) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "Failed to read a pull request.");
            return Ok(());
        }
    };
    let (pull_id, now) = (pull.clone(), app.core.now());
    let closed = app
        .core
        .store
        .write(move |tx| reconcile_feedback(tx, &pull_id, &seen, now));
    if closed.await? > 0 {
        app.live.reconciliation.record_missed_close();
        app.live.notifiers.poll.notify_one();
    }
    Ok(())
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
