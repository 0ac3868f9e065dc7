//! Changed files of open pull requests, for the collision forecast.
//!
//! They are read when a run ends with a pull request, and by the sweep whenever a head has moved: never by a poll.

use std::collections::HashMap;
use std::time::Duration;

use crate::app::App;
use domain::collision::comparable_files;
use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::Repo;
use store::changed_files::{self, PullFiles};
use store::{StoreResult, pull_feedback};
use vendors::scm::{ChangedFiles, GitHub, MAX_PULLS_OF_FILES, OpenPullRequest};

/// Timeout of the lookup after a run, whose request waits for it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the files of a pull request that a run has opened. Without an answer, the next sweep reads them.
pub(super) async fn read_after_run(app: &App, repo: &Repo, number: u64) -> StoreResult<()> {
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    let numbers = [number];
    let read = read(app, github, repo, &numbers);
    match tokio::time::timeout(LOOKUP_TIMEOUT, read).await {
        Ok(stored) => stored,
        Err(_) => Ok(()),
    }
}

/// Reads the files of open pull requests whose head has moved. One request per sweep, for at most 25 pull requests.
pub(super) async fn update(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    open: &[&OpenPullRequest],
) -> StoreResult<()> {
    let moved = app.core.store.read(|tx| {
        let mut moved = Vec::new();
        for pull in open {
            let id = pull_id(repo, pull.number);
            let known = changed_files::of_pull(tx, &id)?;
            if known.is_none_or(|known| known.head != pull.head_sha) {
                moved.push(pull.number);
            }
        }
        StoreResult::Ok(moved)
    })?;
    match moved.is_empty() {
        true => Ok(()),
        false => {
            read(
                app,
                github,
                repo,
                &moved[..moved.len().min(MAX_PULLS_OF_FILES)],
            )
            .await
        }
    }
}

async fn read(app: &App, github: &GitHub, repo: &Repo, numbers: &[u64]) -> StoreResult<()> {
    let found = match github.files_of_pulls(repo, numbers).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%repo, %error, "Failed to read the changed files of pull requests.");
            return Ok(());
        }
    };
    let redactor = &app.secrets.redactor;
    let is_plain = |file: &String| redactor.sanitize(file) == *file;
    let files: HashMap<u64, PullFiles> = found
        .into_iter()
        .map(|(number, ChangedFiles { head, files })| {
            let files = comparable_files(files.into_iter().filter(is_plain));
            (number, PullFiles { head, files })
        })
        .collect();
    let repo = repo.clone();
    let write = app.core.store.write(move |tx| {
        for (number, files) in &files {
            let id = pull_id(&repo, *number);
            if pull_feedback::get_pull(tx, &id)?.status == PullRequestStatus::Open {
                changed_files::put_of_pull(tx, &id, files)?;
            }
        }
        Ok(())
    });
    write.await
}

fn pull_id(repo: &Repo, number: u64) -> PullRequestId {
    PullRequestId {
        repo: repo.clone(),
        number,
    }
}
