//! State of our open pull requests and of their commits, read from GitHub for many at once.

use std::collections::BTreeMap;

use crate::app::App;
use domain::feedback::{PullRequestId, PullRequestReadiness, PullRequestRecord, PullRequestStatus};
use domain::ids::Repo;
use domain::time::Timestamp;
use store::{StoreResult, pull_feedback};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequestReport, PullRequestSelection};

/// State of one pull request as GitHub reported it.
struct Report {
    pull: PullRequestId,
    /// Creation time, if the pull requests were listed.
    created_at: Option<Timestamp>,
    /// Status in the store before the pull requests were listed.
    status_before: Option<PullRequestStatus>,
    is_draft: bool,
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
            status: match self.created_at {
                Some(_) => PullRequestStatus::Open,
                None => record.status,
            },
            created_at: self.created_at.or(record.created_at),
            draft: Some(self.is_draft),
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

/// What GitHub reported about pull requests of a repository.
pub(super) struct Reports {
    /// Those that were read.
    pub found: Vec<(PullRequestId, PullRequestReport)>,
    /// Whether all of the selection were read.
    pub is_complete: bool,
}

/// Reads pull requests. Those that cannot be read are left out.
pub(super) async fn read(
    github: &GitHub,
    repo: &Repo,
    selection: &PullRequestSelection,
) -> Reports {
    let mut reports = Reports {
        found: Vec::new(),
        is_complete: true,
    };
    let mut left = selection.requests();
    left.reverse();
    while let Some(part) = left.pop() {
        match github.pull_reports(repo, &part).await {
            Ok(found) => {
                let found = found.into_iter();
                let found =
                    found.map(|(number, report)| (PullRequestId::new(repo, number), report));
                reports.found.extend(found);
            }
            Err(error) => match part.halves().filter(|_| may_be_readable_in_parts(&error)) {
                Some([first, second]) => left.extend([second, first]),
                None => {
                    tracing::warn!(%repo, pulls = ?part.numbers, %error, "Failed to read pull requests.");
                    reports.is_complete = false;
                }
            },
        }
    }
    reports
}

/// Whether one pull request may be why the others cannot be read: it is gone, or the conversations together are too
/// long for GitHub or for a response.
fn may_be_readable_in_parts(error: &VendorError) -> bool {
    error.is_not_found()
        || error.is_undecodable()
        || error.status().is_some_and(|status| status >= 500)
}

/// State of a pull request that is listed as open.
pub(super) struct ListedReport {
    pub pull: PullRequestId,
    pub created_at: Timestamp,
    /// Status in the store before the list was read.
    pub status_before: PullRequestStatus,
    pub report: PullRequestReport,
}

/// Stores the state of pull requests that are listed as open. One whose end was stored meanwhile stays as it is.
pub(super) async fn store_listed(app: &App, reports: Vec<ListedReport>) -> StoreResult<()> {
    let reports = reports.into_iter().map(|listed| Report {
        pull: listed.pull,
        created_at: Some(listed.created_at),
        status_before: Some(listed.status_before),
        is_draft: listed.report.is_draft,
        readiness: listed.report.readiness,
    });
    store(app, reports.collect()).await
}

/// Reads and stores the state of one pull request. Returns whether it was read.
pub(super) async fn update(app: &App, github: &GitHub, pull: &PullRequestId) -> StoreResult<bool> {
    update_all(app, github, &pull.repo, [pull.number]).await
}

/// Reads and stores the state of pull requests of a repository. Returns whether all of them were read.
async fn update_all(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    numbers: impl IntoIterator<Item = u64>,
) -> StoreResult<bool> {
    let selection = PullRequestSelection::of_state(numbers);
    let reports = read(github, repo, &selection).await;
    let states = reports.found.into_iter().map(|(pull, report)| Report {
        pull,
        created_at: None,
        status_before: None,
        is_draft: report.is_draft,
        readiness: report.readiness,
    });
    store(app, states.collect()).await?;
    Ok(reports.is_complete)
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
/// could not be read, or was not computed by GitHub.
pub(super) async fn update_changed(app: &App) -> StoreResult<()> {
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    let mut changed = app.live.reconciliation.take_changed();
    for pull in &changed {
        app.live.reconciliation.note_check(pull.clone());
    }
    if app.live.reconciliation.is_repetition_due(app.core.now()) {
        changed.extend(app.live.reconciliation.take_unread());
        changed.extend(uncomputed(app)?);
    }
    let mut by_repo: BTreeMap<Repo, Vec<u64>> = BTreeMap::new();
    for pull in changed {
        by_repo.entry(pull.repo).or_default().push(pull.number);
    }
    for (repo, numbers) in by_repo {
        if !update_all(app, github, &repo, numbers.iter().copied()).await? {
            let unread = numbers.into_iter();
            let unread = unread.map(|number| PullRequestId::new(&repo, number));
            app.live.reconciliation.note_unread(unread);
        }
    }
    Ok(())
}

/// Stores what has changed.
async fn store(app: &App, reports: Vec<Report>) -> StoreResult<()> {
    let now = app.core.now();
    let changes = app.core.store.read(|tx| {
        let mut changes = Vec::new();
        for report in reports {
            let row = pull_feedback::get_pull(tx, &report.pull)?;
            if report.applied_to(row.clone(), now) != row {
                let before = report.status_before.clone().unwrap_or(row.status);
                changes.push((before, report));
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
