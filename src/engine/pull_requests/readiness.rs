//! State of our open pull requests and of their commits, read from GitHub for many at once.

use std::collections::BTreeMap;

use crate::app::App;
use domain::feedback::{PullRequestId, PullRequestReadiness, PullRequestRecord, PullRequestStatus};
use domain::ids::Repo;
use domain::time::Timestamp;
use store::{StoreResult, pull_feedback};
use vendors::scm::{GitHub, OpenPullRequest};

/// State of one pull request as GitHub reported it.
struct Report {
    pull: PullRequestId,
    /// Creation time and draft flag, if the pull requests were listed.
    listed: Option<(Timestamp, bool)>,
    readiness: PullRequestReadiness,
}

impl Report {
    /// Returns the record with the report.
    fn applied_to(&self, record: PullRequestRecord, now: Timestamp) -> PullRequestRecord {
        let sha = |readiness: &PullRequestReadiness| {
            let head = readiness.head.as_ref();
            head.map(|head| head.sha.clone())
        };
        let has_moved = sha(&self.readiness) != sha(&record.readiness);
        PullRequestRecord {
            status: match self.listed {
                Some(_) => PullRequestStatus::Open,
                None => record.status,
            },
            created_at: self.listed.map(|(at, _)| at).or(record.created_at),
            draft: self.listed.map(|(_, draft)| draft).or(record.draft),
            head_seen_at: if has_moved {
                Some(now)
            } else {
                record.head_seen_at
            },
            readiness: self.readiness.clone(),
            ..record
        }
    }
}

/// Reads and stores the state of the listed pull requests of a repository. If it cannot be read, the stored state
/// stays. Returns whether it was read.
pub(super) async fn update_listed(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    open: Vec<&OpenPullRequest>,
) -> StoreResult<bool> {
    let listed: BTreeMap<u64, (Timestamp, bool)> = open
        .into_iter()
        .map(|pull| (pull.number, (pull.created_at, pull.draft)))
        .collect();
    let numbers: Vec<u64> = listed.keys().copied().collect();
    let Some(reports) = read(github, repo, &numbers).await else {
        return Ok(false);
    };
    let reports = reports.into_iter().map(|report| Report {
        listed: listed.get(&report.pull.number).copied(),
        ..report
    });
    store(app, reports.collect()).await?;
    Ok(true)
}

/// Reads and stores the state of one pull request.
pub(super) async fn update(app: &App, github: &GitHub, pull: &PullRequestId) -> StoreResult<()> {
    let reports = read(github, &pull.repo, &[pull.number]).await;
    store(app, reports.unwrap_or_default()).await
}

/// Returns the open pull requests of which GitHub had not yet computed whether they can be merged.
fn uncomputed(app: &App) -> StoreResult<Vec<PullRequestId>> {
    app.core.store.read(|tx| {
        let mut found = Vec::new();
        for pull in pull_feedback::open_pulls(tx)? {
            let readiness = pull_feedback::get_pull(tx, &pull)?.readiness;
            if readiness.head.is_some() && readiness.mergeable.is_none() {
                found.push(pull);
            }
        }
        Ok(found)
    })
}

/// Reads and stores the state of pull requests that an event has changed, and once a minute of those whose state
/// GitHub had not computed.
pub(super) async fn update_changed(app: &App) -> StoreResult<()> {
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    let mut changed = app.live.reconciliation.take_changed();
    for pull in &changed {
        app.live.reconciliation.note_check(pull.clone());
    }
    if app.live.reconciliation.is_repetition_due(app.core.now()) {
        changed.extend(uncomputed(app)?);
    }
    let mut by_repo: BTreeMap<Repo, Vec<u64>> = BTreeMap::new();
    for pull in changed {
        by_repo.entry(pull.repo).or_default().push(pull.number);
    }
    for (repo, numbers) in by_repo {
        let reports = read(github, &repo, &numbers).await;
        store(app, reports.unwrap_or_default()).await?;
    }
    Ok(())
}

/// Reads the state of pull requests. `None` if that failed.
async fn read(github: &GitHub, repo: &Repo, numbers: &[u64]) -> Option<Vec<Report>> {
    match github.pull_readiness(repo, numbers).await {
        Ok(found) => {
            let found = found.into_iter();
            let report = |(number, readiness)| Report {
                pull: PullRequestId {
                    repo: repo.clone(),
                    number,
                },
                listed: None,
                readiness,
            };
            Some(found.map(report).collect())
        }
        Err(error) => {
            tracing::warn!(%repo, %error, "Failed to read the checks and reviews of pull requests.");
            None
        }
    }
}

/// Stores what has changed.
async fn store(app: &App, reports: Vec<Report>) -> StoreResult<()> {
    let now = app.core.now();
    let changes = app.core.store.read(|tx| {
        let mut changes = Vec::new();
        for report in reports {
            let row = pull_feedback::get_pull(tx, &report.pull)?;
            if report.applied_to(row.clone(), now) != row {
                changes.push((row.status, report));
            }
        }
        Ok(changes)
    })?;
    if changes.is_empty() {
        return Ok(());
    }
    let write = app.core.store.write(move |tx| {
        changes.iter().try_for_each(|(status, report)| {
            let row = pull_feedback::get_pull(tx, &report.pull)?;
            // A webhook may have reported its end after the state was read.
            match row.status == *status {
                true => pull_feedback::put_pull(tx, &report.pull, &report.applied_to(row, now)),
                false => Ok(()),
            }
        })
    });
    write.await
}
