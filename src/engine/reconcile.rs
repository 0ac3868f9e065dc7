//! What no webhook told: open pull requests are looked at now and then.
//!
//! One list a repository, which costs nothing while nothing changes, and one question for each pull
//! request in which something did. Only where webhooks are switched on: where nobody wants feedback
//! to start runs, none does.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::{TryStreamExt, stream};

use crate::app::App;
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::Repo;
use domain::time::Timestamp;
use store::{StoreResult, jobs, mappings, pull_feedback};
use vendors::scm::{GitHub, PullRequestState};

use super::feedback::{close_pull, reconcile_feedback};
use super::follow_up::MAX_CONCURRENT_PULLS;

/// A pull request without a run for longer than that is not looked after any more.
const TRACKED_FOR: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// How many that are not open any more are asked about in one sweep of a repository?
const ENDED_AT_ONCE: usize = 20;

/// Looks once at all open pull requests of ours.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let (Some(github), true) = (&app.github, app.config.scm_webhook_secret.is_some()) else {
        return Ok(());
    };
    for (repo, ours) in tracked(app).await? {
        let open = match github.open_pulls(&repo).await {
            Ok(open) => open,
            Err(error) => {
                tracing::warn!(%repo, %error, "Open pull requests could not be listed.");
                continue;
            }
        };
        let id = |number| PullRequestId {
            repo: repo.clone(),
            number,
        };
        let due = open
            .iter()
            .filter(|pull| ours.contains_key(&pull.number))
            .map(|pull| (id(pull.number), pull.updated_at))
            .filter(|(id, updated_at)| app.reconciliation.is_due(id, *updated_at));
        stream::iter(due.map(Ok))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |(id, updated_at)| {
                look(app, github, id, updated_at)
            })
            .await?;
        let numbers: HashSet<u64> = open.iter().map(|pull| pull.number).collect();
        let is_open = |number| numbers.contains(&number);
        app.reconciliation.retain_open(&repo, is_open);
        let ended = ours
            .iter()
            .filter(|(number, standing)| {
                **standing == PullRequestStatus::Open && !is_open(**number)
            })
            .rev()
            .take(ENDED_AT_ONCE);
        stream::iter(ended.map(|(number, _)| Ok(id(*number))))
            .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |id| end(app, github, id))
            .await?;
    }
    app.reconciliation.record_sweep(app.now());
    Ok(())
}

type Tracked = BTreeMap<Repo, BTreeMap<u64, PullRequestStatus>>;

/// The pull requests of ours that may be open, as they were known last, by repository, where a
/// mapping still is.
async fn tracked(app: &App) -> StoreResult<Tracked> {
    let since = app.now() - TRACKED_FOR;
    app.store
        .read_long(move |tx| {
            let targets: BTreeSet<Repo> = mappings::all(tx)?
                .iter()
                .map(|mapping| mapping.target_repo())
                .collect();
            let mut tracked = Tracked::new();
            for (pull, last) in jobs::pulls(tx)? {
                if jobs::get(tx, &last)?.is_some_and(|job| job.reserved_at < since) {
                    // The latest come first, so all that follow are older.
                    break;
                }
                let standing = pull_feedback::get_pull(tx, &pull)?.status;
                let is_merged = matches!(standing, PullRequestStatus::Merged { .. });
                if !is_merged && targets.contains(&pull.repo) {
                    let of_repo = tracked.entry(pull.repo).or_default();
                    of_repo.insert(pull.number, standing);
                }
            }
            Ok(tracked)
        })
        .await
}

async fn look(
    app: &App,
    github: &GitHub,
    pull: PullRequestId,
    updated_at: Timestamp,
) -> StoreResult<()> {
    let seen = match github.pull_feedback(&pull).await {
        Ok(seen) => seen,
        Err(error) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "A conversation could not be read.");
            return Ok(());
        }
    };
    let (place, now) = (pull.clone(), app.now());
    let added = app
        .store
        .write(move |tx| reconcile_feedback(tx, &place, &seen, now))
        .await?;
    app.reconciliation.record_check(&pull, updated_at, added);
    if added > 0 {
        tracing::info!(repo = %pull.repo, pull = pull.number, added, "Found what no webhook told.");
        app.notifiers.follow_up.notify_one();
    }
    Ok(())
}

/// One that is not open any more has been merged or closed, or is not to be seen.
async fn end(app: &App, github: &GitHub, pull: PullRequestId) -> StoreResult<()> {
    let standing = match github.pull(&pull.repo, pull.number).await {
        Ok(seen) => match seen.state {
            PullRequestState::Open => return Ok(()),
            PullRequestState::Closed => PullRequestStatus::Closed,
            PullRequestState::Merged => PullRequestStatus::Merged {
                commit: seen.merge_sha.unwrap_or_default(),
                at: app.now(),
            },
        },
        Err(error) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "A pull request could not be read.");
            return Ok(());
        }
    };
    let place = pull.clone();
    let closed = app
        .store
        .write(move |tx| close_pull(tx, &place, standing.clone()));
    if closed.await? {
        app.reconciliation.record_missed_close();
    }
    Ok(())
}
