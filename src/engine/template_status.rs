//! Which repositories have our files as they are here, and which need a sync.
//!
//! One request a repository, which costs nothing of the allowance while nothing has changed there;
//! repositories are asked side by side.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use domain::ids::Repo;
use domain::mapping::Mapping;
use domain::templates::{self, SyncPolicy, TemplateFileStatus, WORKFLOWS_DIR};
use store::{StoreResult, mappings};
use vendors::http::VendorError;

use super::workflow_sync::{mappings_of_repo, missing_branch_message};

/// How many repositories are asked at once?
const AT_ONCE: usize = 8;

/// How long may one take, and all together?
const EACH: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(30);

/// How the files of a project's repository are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectTemplateStatus {
    pub mapping: Mapping,
    pub planning: TemplateFileStatus,
    pub implementation: TemplateFileStatus,
    /// The workflows that the project needs, by path.
    pub files: Vec<(String, TemplateFileStatus)>,
    /// Why they could not be looked at.
    pub error: Option<String>,
}

/// Git's names of the workflows of a branch, by path.
type Found = Result<BTreeMap<String, String>, String>;

/// How the files of every project's repository are, in the order of their keys.
pub async fn all(app: &App) -> StoreResult<Vec<ProjectTemplateStatus>> {
    let all = app.store.read(mappings::all)?;
    let places: BTreeMap<(Repo, String), ()> =
        all.iter().map(|mapping| (place(mapping), ())).collect();
    let latest = Instant::now() + ALL;
    let looks = places.into_keys().map(|(repo, branch)| async move {
        let by = latest.min(Instant::now() + EACH);
        let look = timeout_at(by, workflows(app, &repo, &branch));
        let late = |_| Err("the repository host did not answer in time".to_owned());
        let found = look.await.unwrap_or_else(late);
        ((repo, branch), found)
    });
    let found: BTreeMap<(Repo, String), Found> =
        stream::iter(looks).buffered(AT_ONCE).collect().await;
    let status = |mapping: &Mapping| {
        let nowhere = || Err("it was not looked at".to_owned());
        let found = found.get(&place(mapping)).cloned();
        judge(app, &all, mapping, found.unwrap_or_else(nowhere))
    };
    Ok(all.iter().map(status).collect())
}

fn place(mapping: &Mapping) -> (Repo, String) {
    (mapping.target_repo(), mapping.default_branch.clone())
}

async fn workflows(app: &App, repo: &Repo, branch: &str) -> Found {
    let Some(github) = &app.github else {
        return Err("the repository host is not configured".to_owned());
    };
    let told = |error: VendorError| error.to_string();
    if let Some(entries) = github
        .folder(repo, WORKFLOWS_DIR, branch)
        .await
        .map_err(told)?
    {
        let entries = entries.into_iter();
        return Ok(entries.map(|entry| (entry.path, entry.sha)).collect());
    }
    // No folder, no branch and no repository are the same answer.
    match github.branch_sha(repo, branch).await.map_err(told)? {
        Some(_) => Ok(BTreeMap::new()),
        None => Err(missing_branch_message(repo, branch)),
    }
}

/// Compares what was found with what the project needs. What others need who share its repository is
/// theirs to tell.
fn judge(app: &App, all: &[Mapping], mapping: &Mapping, found: Found) -> ProjectTemplateStatus {
    let repo = mapping.target_repo();
    let sharing: Vec<Mapping> = mappings_of_repo(all, &repo)
        .filter(|other| other.default_branch == mapping.default_branch)
        .cloned()
        .collect();
    let wanted = templates::desired_templates(&repo, &sharing, app.config.session_image.as_deref())
        .map_err(|contested| contested.to_string());
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
            let judged = own.map(|one| {
                let status = one.status(found.get(&one.path).map(String::as_str));
                (one.path, status)
            });
            (judged.collect(), None)
        }
        Err(why) => (Vec::new(), Some(app.redactor.redact(&why))),
    };
    let of = |path: &str| {
        let found = files.iter().find(|(file, _)| file == path);
        found.map_or(TemplateFileStatus::Error, |(_, status)| *status)
    };
    ProjectTemplateStatus {
        planning: match mapping.planning_enabled {
            true => of(&planning),
            // None is wanted, so none can be missing.
            false if error.is_none() => TemplateFileStatus::Current,
            false => TemplateFileStatus::Error,
        },
        implementation: of(&implementation),
        mapping: mapping.clone(),
        files,
        error,
    }
}
