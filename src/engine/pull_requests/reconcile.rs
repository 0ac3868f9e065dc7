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

use super::follow_up::MAX_CONCURRENT_PULLS;
use super::ledger::{add_finding, close_pull, is_own_comment, own_job, record_command, withdraw};

/// Time after the last run of a pull request for which it is reconciled.
const MAX_TRACKING_AGE: Duration = Duration::from_secs(60 * 24 * 60 * 60);

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
            .filter(|pull| has_webhook && ours.contains_key(&pull.number))
            .map(|pull| (id(pull.number), pull.updated_at))
            .filter(|(id, updated_at)| app.live.reconciliation.is_due(id, *updated_at));
        stream::iter(due.map(Ok))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |(id, updated_at)| {
                check_pull(app, github, id, updated_at)
            })
            .await?;
        let own_open = open.iter().filter(|pull| ours.contains_key(&pull.number));
        update_readiness(app, github, &repo, own_open.collect()).await?;
        let numbers: HashSet<u64> = open.iter().map(|pull| pull.number).collect();
        let is_open = |number| numbers.contains(&number);
        app.live.reconciliation.retain_open(&repo, is_open);
        let closed = ours
            .iter()
            .filter(|(number, status)| **status != PullRequestStatus::Closed && !is_open(**number))
            .rev()
            .take(MAX_CLOSED_PER_SWEEP);
        stream::iter(closed.map(|(number, _)| Ok(id(*number))))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |id| record_close(app, github, id))
            .await?;
    }
    app.live.reconciliation.record_sweep(app.core.now());
    Ok(())
}

type Tracked = BTreeMap<Repo, BTreeMap<u64, PullRequestStatus>>;

/// Our pull requests that may be open, with their last known status, by mapped repository.
async fn tracked(core: &Core) -> StoreResult<Tracked> {
    let since = core.now() - MAX_TRACKING_AGE;
    core.store
        .read_long(move |tx| {
            let targets: BTreeSet<Repo> = mappings::all(tx)?
                .iter()
                .map(|mapping| mapping.target_repo())
                .collect();
            let mut tracked = Tracked::new();
            for (pull, last_job) in jobs::pulls(tx)? {
                if jobs::get(tx, &last_job)?.is_some_and(|job| job.reserved_at < since) {
                    // Sorted by job, latest first: all that follow are older.
                    break;
                }
                let row = pull_feedback::get_pull(tx, &pull)?;
                if !row.has_final_commits && targets.contains(&pull.repo) {
                    let of_repo = tracked.entry(pull.repo).or_default();
                    of_repo.insert(pull.number, row.status);
                }
            }
            Ok(tracked)
        })
        .await
}

/// Reads the checks and reviews of our open pull requests of a repository, and stores those that changed. If
/// they cannot be read, the stored ones stay.
async fn update_readiness(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    open: Vec<&OpenPullRequest>,
) -> StoreResult<()> {
    let numbers: Vec<u64> = open.iter().map(|pull| pull.number).collect();
    let found = match github.pull_readiness(repo, &numbers).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%repo, %error, "Failed to read the checks and reviews of pull requests.");
            return Ok(());
        }
    };
    let report = |pull: &OpenPullRequest| {
        let id = PullRequestId {
            repo: repo.clone(),
            number: pull.number,
        };
        let readiness = *found.get(&pull.number)?;
        Some((id, pull.created_at, pull.draft, readiness))
    };
    let reports: Vec<_> = open.into_iter().filter_map(report).collect();
    let changes = app.core.store.read(|tx| {
        let mut changes = Vec::new();
        for (id, created_at, draft, readiness) in reports {
            let row = pull_feedback::get_pull(tx, &id)?;
            let change = move |row: PullRequestRecord| PullRequestRecord {
                status: PullRequestStatus::Open,
                created_at: Some(created_at),
                draft: Some(draft),
                readiness,
                ..row
            };
            if change(row.clone()) != row {
                changes.push((id, row.status, change));
            }
        }
        Ok(changes)
    })?;
    if changes.is_empty() {
        return Ok(());
    }
    let write = app.core.store.write(move |tx| {
        changes.iter().try_for_each(|(id, status, change)| {
            let row = pull_feedback::get_pull(tx, id)?;
            // A webhook may have reported its end after the list was read.
            match row.status == *status {
                true => pull_feedback::put_pull(tx, id, &change(row)),
                false => Ok(()),
            }
        })
    });
    write.await
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
        .write(move |tx| reconcile_feedback(tx, &pull_id, &seen, now))
        .await?;
    app.live
        .reconciliation
        .record_check(&pull, updated_at, added);
    if added > 0 {
        tracing::info!(repo = %pull.repo, pull = pull.number, added, "Reconciliation found feedback that no webhook delivered.");
        app.live.notifiers.follow_up.notify_one();
    }
    Ok(())
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
        return close_pull(tx, pull, status).map(u64::from);
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
