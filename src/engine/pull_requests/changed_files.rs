//! Changed files of open pull requests, for the collision forecast.
//!
//! They are read when a run ends with a pull request, and by the sweep whenever a head has moved: never by a poll.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::app::{App, Vendors};
use domain::collision::comparable_files;
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::Repo;
use store::changed_files::{self, PullFiles};
use store::{StoreResult, pull_feedback};
use vendors::http::VendorError;
use vendors::scm::{ChangedPaths, OpenPullRequest};

/// Timeout of the lookup after a run, whose request waits for it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Response of a lookup; `None` without one in time.
pub(super) type LookedUp = Option<Result<ChangedPaths, VendorError>>;

/// Looks up the files of a pull request that a run has reported.
pub(super) async fn look_up(vendors: &Vendors, pull: &PullRequestId) -> LookedUp {
    let lookup = vendors.github.as_ref()?.changed_paths(pull);
    tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.ok()
}

/// Stores the files that were looked up. If they could not be read, the next sweep reads them.
pub(super) async fn store_looked_up(
    app: &App,
    pull: PullRequestId,
    files: LookedUp,
) -> StoreResult<()> {
    match files {
        Some(Ok(files)) => store(app, vec![(pull, files)]).await,
        Some(Err(error)) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "Failed to read the changed files of a pull request.");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Returns the open pull requests whose head has moved since their files were read.
pub(super) fn moved(
    app: &App,
    repo: &Repo,
    open: &[&OpenPullRequest],
) -> StoreResult<BTreeSet<u64>> {
    app.core.store.read(|tx| {
        let mut moved = BTreeSet::new();
        for pull in open {
            let known = changed_files::of_pull(tx, &PullRequestId::new(repo, pull.number))?;
            if known.is_none_or(|known| known.head != pull.head_sha) {
                moved.insert(pull.number);
            }
        }
        Ok(moved)
    })
}

/// Stores the files of pull requests.
pub(super) async fn store(app: &App, read: Vec<(PullRequestId, ChangedPaths)>) -> StoreResult<()> {
    let redactor = &app.secrets.redactor;
    let is_plain = |file: &String| redactor.sanitize(file) == *file;
    let comparable = |ChangedPaths { head, paths }| PullFiles {
        head,
        files: comparable_files(paths.into_iter().filter(is_plain)),
    };
    let read = read.into_iter();
    let files: Vec<_> = read
        .map(|(pull, files)| (pull, comparable(files)))
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    let write = app.core.store.write(move |tx| {
        for (pull, files) in &files {
            if pull_feedback::get_pull(tx, pull)?.status == PullRequestStatus::Open {
                changed_files::put_of_pull(tx, pull, files)?;
            }
        }
        Ok(())
    });
    write.await
}
