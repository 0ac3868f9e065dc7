//! Status of the workflow files in each repository: current, stale or missing.
//!
//! One request per repository, all concurrent. Requests about unchanged files do not count against
//! GitHub's rate limit.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::app::{App, Vendors};
use domain::ids::Repo;
use domain::mapping::Mapping;
use domain::templates::{self, SyncPolicy, TemplateFileStatus, WORKFLOWS_DIR};
use store::{StoreResult, mappings};
use vendors::http::VendorError;

use super::workflow_sync::{mappings_of_repo, missing_branch_message};

/// Maximum number of repositories read concurrently.
const MAX_CONCURRENT_REPOS: usize = 8;

/// Timeout for one repository.
const REPO_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for all repositories together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Status of the workflow files of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectTemplateStatus {
    /// Mapping of the project.
    pub mapping: Mapping,
    /// Status of the planning workflow.
    pub planning: TemplateFileStatus,
    /// Status of the implementation workflow.
    pub implementation: TemplateFileStatus,
    /// Status of each workflow that the project needs, by path.
    pub files: Vec<(String, TemplateFileStatus)>,
    /// Reason why the status is unknown.
    pub error: Option<String>,
}

/// Git object IDs of the workflow files of a branch, by path; or the reason why they are unknown.
type FileHashes = Result<BTreeMap<String, String>, String>;

/// Reads the status of all projects, in the order of their keys.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn all(app: &App) -> StoreResult<Vec<ProjectTemplateStatus>> {
    let all = app.core.store.read(mappings::all)?;
    let branches: BTreeMap<(Repo, String), ()> =
        all.iter().map(|mapping| (branch_of(mapping), ())).collect();
    let deadline = Instant::now() + TOTAL_TIMEOUT;
    let reads = branches.into_keys().map(|(repo, branch)| async move {
        let by = deadline.min(Instant::now() + REPO_TIMEOUT);
        let read = timeout_at(by, workflows(&app.vendors, &repo, &branch));
        let timed_out = |_| Err("the repository host did not respond in time".to_owned());
        let found = read.await.unwrap_or_else(timed_out);
        ((repo, branch), found)
    });
    let found: BTreeMap<(Repo, String), FileHashes> = stream::iter(reads)
        .buffered(MAX_CONCURRENT_REPOS)
        .collect()
        .await;
    let status = |mapping: &Mapping| {
        let not_read = || Err("the repository was not read".to_owned());
        let found = found.get(&branch_of(mapping)).cloned();
        compare(app, &all, mapping, found.unwrap_or_else(not_read))
    };
    Ok(all.iter().map(status).collect())
}

fn branch_of(mapping: &Mapping) -> (Repo, String) {
    (mapping.target_repo(), mapping.default_branch.clone())
}

async fn workflows(vendors: &Vendors, repo: &Repo, branch: &str) -> FileHashes {
    let Some(github) = &vendors.github else {
        return Err("the repository host is not configured".to_owned());
    };
    let message = |error: VendorError| error.to_string();
    if let Some(entries) = github
        .folder(repo, WORKFLOWS_DIR, branch)
        .await
        .map_err(message)?
    {
        let entries = entries.into_iter();
        return Ok(entries.map(|entry| (entry.path, entry.sha)).collect());
    }
    // The response does not distinguish a missing folder, branch and repository.
    match github.branch_sha(repo, branch).await.map_err(message)? {
        Some(_) => Ok(BTreeMap::new()),
        None => Err(missing_branch_message(repo, branch)),
    }
}

/// Compares the files with those that the project needs. Files that only other projects of the
/// repository need are part of the status of those projects.
fn compare(
    app: &App,
    all: &[Mapping],
    mapping: &Mapping,
    found: FileHashes,
) -> ProjectTemplateStatus {
    let repo = mapping.target_repo();
    let sharing: Vec<Mapping> = mappings_of_repo(all, &repo)
        .filter(|other| other.default_branch == mapping.default_branch)
        .cloned()
        .collect();
    let wanted =
        templates::desired_templates(&repo, &sharing, app.core.config.session_image.as_deref())
            .map_err(|conflict| conflict.to_string());
    let path = |file: &str| format!("{WORKFLOWS_DIR}/{file}");
    let implementation = path(&mapping.workflow_file);
    let planning = path(templates::planning_workflow_file(mapping));
    let is_own = |path: &str| {
        path == implementation
            || path == format!("{WORKFLOWS_DIR}/comment-trigger.yml")
            || mapping.planning_enabled && path == planning
    };
    let (files, error) = match wanted.and_then(|wanted| Ok((wanted, found?))) {
        Ok((wanted, found)) => {
            let own = wanted
                .into_iter()
                .filter(|one| one.sync_policy == SyncPolicy::Managed && is_own(&one.path));
            let statuses = own.map(|one| {
                let status = one.status(found.get(&one.path).map(String::as_str));
                (one.path, status)
            });
            (statuses.collect(), None)
        }
        Err(why) => (Vec::new(), Some(app.secrets.redactor.redact(&why))),
    };
    let of = |path: &str| {
        let found = files.iter().find(|(file, _)| file == path);
        found.map_or(TemplateFileStatus::Error, |(_, status)| *status)
    };
    ProjectTemplateStatus {
        planning: match mapping.planning_enabled {
            true => of(&planning),
            // The project needs no planning workflow, so it cannot be missing.
            false if error.is_none() => TemplateFileStatus::Current,
            false => TemplateFileStatus::Error,
        },
        implementation: of(&implementation),
        mapping: mapping.clone(),
        files,
        error,
    }
}
