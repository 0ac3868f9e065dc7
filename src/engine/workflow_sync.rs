//! Sync of workflow files with a target repository, in one pull request.
//!
//! An operator requests a sync and waits for the result. The sync itself is an effect: stored
//! before any request to GitHub, performed by the outbox worker, and retried. All syncs of a
//! repository share one queue key, so two of them cannot open two pull requests. A sync reads the
//! current state first, so a repetition writes nothing.
//!
//! The sync branch is recreated on the head of its base whenever a file must be written or the base
//! has changed, so it never conflicts. Changes that the team made on it to starter files are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::timeout;

use crate::app::{App, Core};
use domain::audit::{Action, Actor};
use domain::effect::Effect;
use domain::ids::{Repo, TeamKey};
use domain::mapping::Mapping;
use domain::templates::{
    self, SYNC_BRANCH, SYNC_MESSAGE, SyncPolicy, SyncReport, SyncStatus, Template,
    TemplateFileStatus,
};
use store::{StoreError, StoreResult, audit, mappings, outbox, template_syncs};
use vendors::http::VendorError;
use vendors::scm::{FolderEntry, GitHub, PullRequest, TreeContent, TreeFile};

/// Maximum wait for the result of a sync.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Permissions that a sync needs.
const SYNC_PERMISSIONS: [(&str, &str); 3] = [
    ("contents", "write"),
    ("pull_requests", "write"),
    ("workflows", "write"),
];

/// Reason why a sync has no result.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The project does not exist.
    #[error("no such team")]
    NoTeam,
    /// The sync failed, or has not succeeded yet.
    #[error("{0}")]
    Failed(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests a sync of a project's repository and waits for the result.
///
/// A sync that fails for now stays in the outbox and is retried; another request joins it.
///
/// # Errors
/// Fails if the project does not exist, or if the repository has not been synced in time.
pub async fn request(app: &App, actor: Actor, team: TeamKey) -> Result<SyncReport, SyncError> {
    if app.vendors.github.is_none() {
        let remedy = "set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY, or GITHUB_TOKEN";
        let why = format!("the repository host is not configured: {remedy}");
        return match app.core.store.read(|tx| mappings::get(tx, &team))? {
            None => Err(SyncError::NoTeam),
            Some(_) => Err(SyncError::Failed(why)),
        };
    }
    let (now, team_key) = (app.core.now(), team.clone());
    let enqueued = app.core.store.write(move |tx| {
        let Some(mapping) = mappings::get(tx, &team_key)? else {
            return Ok(None);
        };
        let effect = Effect::SyncWorkflows {
            team: team_key.clone(),
            repo: mapping.target_repo(),
        };
        let queue_key = effect.queue_key();
        // An entry in progress may have read the mapping before its latest change.
        let waiting = outbox::of_queue_key(tx, &queue_key)?
            .into_iter()
            .find(|entry| entry.effect == effect && entry.claimed_at.is_none());
        let idempotency_key = match waiting {
            Some(entry) => {
                outbox::retry_now(tx, &entry, now)?;
                entry.idempotency_key()
            }
            None => outbox::push(tx, &effect, now)?,
        };
        let event = actor
            .audit_event(Action::SyncRequested, &team_key)
            .with_detail(mapping.target_repo());
        audit::append(tx, &event, now)?;
        Ok(Some((queue_key, idempotency_key)))
    });
    let (queue_key, idempotency_key) = enqueued.await?.ok_or(SyncError::NoTeam)?;
    let result = timeout(
        MAX_WAIT,
        wait_for_result(app, &team, &queue_key, &idempotency_key),
    )
    .await;
    result.unwrap_or_else(|_| {
        Err(SyncError::Failed(pending_message(
            &app.core,
            &queue_key,
            &idempotency_key,
        )?))
    })
}

/// Waits until the entry is settled, or is rescheduled beyond `MAX_WAIT`.
async fn wait_for_result(
    app: &App,
    team: &TeamKey,
    queue_key: &str,
    idempotency_key: &str,
) -> Result<SyncReport, SyncError> {
    let latest = app.core.now() + MAX_WAIT;
    let settled = app.live.notifiers.await_effects(|| {
        let (last_sync, entries) = app.core.store.read(|tx| {
            let entries = outbox::of_queue_key(tx, queue_key)?;
            Ok((template_syncs::last(tx, team)?, entries))
        })?;
        match entries
            .iter()
            .find(|entry| entry.idempotency_key() == idempotency_key)
        {
            Some(entry) if entry.due_at > latest => {
                let message = pending_message(&app.core, queue_key, idempotency_key)?;
                Err(SyncError::Failed(message))
            }
            Some(_) => Ok(None),
            // The entry is settled; the stored result is its own, or that of a later sync.
            None => last_sync
                .map_or_else(dropped, |synced| synced.outcome.map_err(SyncError::Failed))
                .map(Some),
        }
    });
    settled.await
}

fn dropped() -> Result<SyncReport, SyncError> {
    Err(SyncError::Failed("the sync was dropped".to_owned()))
}

/// Message about a sync without a result.
fn pending_message(core: &Core, queue_key: &str, idempotency_key: &str) -> StoreResult<String> {
    let entries = core.store.read(|tx| outbox::of_queue_key(tx, queue_key))?;
    let entry = entries
        .into_iter()
        .find(|entry| entry.idempotency_key() == idempotency_key);
    let why = entry
        .and_then(|entry| entry.last_error)
        .unwrap_or_else(|| "the repository host has not responded yet".to_owned());
    Ok(format!("{why}; the sync is retried automatically"))
}

/// Changes needed in a repository.
pub(super) struct SyncPlan {
    /// Base branch of the pull request.
    pub base_branch: String,
    /// Head of the base branch; parent of the commit.
    pub base_sha: String,
    /// Head of the sync branch, if it exists.
    pub sync_branch_sha: Option<String>,
    /// Files that the sync branch must change; empty if the repository is current.
    pub files: Vec<TreeFile>,
    /// Whether the sync branch already has these changes.
    pub is_branch_current: bool,
    /// Open pull request of the sync branch.
    pub pull: Option<PullRequest>,
}

impl SyncPlan {
    /// Paths of all changed files.
    pub(crate) fn changed_paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Creates the report for the operator.
    pub(crate) fn report(
        &self,
        repo: &Repo,
        status: SyncStatus,
        pull: Option<&PullRequest>,
    ) -> SyncReport {
        SyncReport {
            status,
            repo: repo.clone(),
            base_branch: self.base_branch.clone(),
            changed_files: self.changed_paths(),
            pull: pull.map(|pull| templates::SyncPullRequest {
                number: pull.number,
                url: pull.url.clone(),
            }),
        }
    }
}

/// Reason why no plan can be made, or why it cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncPlanError {
    /// A condition that an operator must fix.
    #[error("{0}")]
    Precondition(String),
    /// GitHub failed or rejected a request.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Determines the changes that the repository needs, and those that the sync branch already has.
pub(super) async fn plan(
    core: &Core,
    github: &GitHub,
    team: &TeamKey,
    repo: &Repo,
) -> Result<SyncPlan, SyncPlanError> {
    let (base_branch, wanted) = wanted(core, team, repo)?;
    let Some(base) = github.branch_sha(repo, &base_branch).await? else {
        return Err(SyncPlanError::Precondition(missing_branch_message(
            repo,
            &base_branch,
        )));
    };
    let current = blobs(github, repo, &wanted, &base).await?;
    let outdated: Vec<Template> = wanted
        .into_iter()
        .filter(|one| one.status(current.get(&one.path)) != TemplateFileStatus::Current)
        .collect();
    let mut plan = SyncPlan {
        base_branch,
        base_sha: base,
        sync_branch_sha: None,
        files: Vec::new(),
        is_branch_current: false,
        pull: None,
    };
    if outdated.is_empty() {
        return Ok(plan);
    }
    plan.pull = github.find_open_pull(repo, SYNC_BRANCH).await?;
    if let Some(pull) = plan
        .pull
        .as_ref()
        .filter(|pull| pull.base_branch != plan.base_branch)
    {
        return Err(SyncPlanError::Precondition(format!(
            "the branch {SYNC_BRANCH} has the open pull request {} to {}; merge or close it, then \
             sync again",
            pull.url, pull.base_branch
        )));
    }
    plan.sync_branch_sha = github.branch_sha(repo, SYNC_BRANCH).await?;
    match plan.sync_branch_sha.clone() {
        Some(head) => compare(github, repo, outdated, &head, &mut plan).await?,
        None => plan.files = outdated.into_iter().map(to_tree_file).collect(),
    }
    Ok(plan)
}

/// Error for a branch that does not exist, or that the App may not see.
pub(super) fn missing_branch_message(repo: &Repo, branch: &str) -> String {
    format!(
        "{repo} has no branch {branch}, or the App may not read it. Check the project's mapping, and \
         that the App is installed on the repository"
    )
}

/// Base branch and desired files of a repository. Projects that share a repository share its files.
fn wanted(
    core: &Core,
    team: &TeamKey,
    repo: &Repo,
) -> Result<(String, Vec<Template>), SyncPlanError> {
    let all = core.store.read(mappings::all)?;
    let Some(requesting) = mappings_of_repo(&all, repo).find(|mapping| mapping.team_key == *team)
    else {
        return Err(SyncPlanError::Precondition(format!(
            "{team} is no longer mapped to {repo}"
        )));
    };
    let branch = requesting.default_branch.clone();
    let sharing: Vec<Mapping> = mappings_of_repo(&all, repo)
        .filter(|mapping| mapping.default_branch == branch)
        .cloned()
        .collect();
    let image = core.config.session_image.as_deref();
    let wanted = templates::desired_templates(repo, &sharing, image);
    let wanted = wanted.map_err(|conflict| SyncPlanError::Precondition(conflict.to_string()))?;
    Ok((branch, wanted))
}

/// Mappings to one repository. GitHub ignores case.
pub(super) fn mappings_of_repo<'a>(
    all: &'a [Mapping],
    repo: &'a Repo,
) -> impl Iterator<Item = &'a Mapping> {
    all.iter().filter(|mapping| {
        mapping.owner.eq_ignore_ascii_case(&repo.owner)
            && mapping.repo.eq_ignore_ascii_case(&repo.name)
    })
}

/// Entries at the paths of these files, by path.
struct Blobs(BTreeMap<String, FolderEntry>);

impl Blobs {
    /// Git object ID of the content.
    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(|entry| entry.sha.as_str())
    }

    fn is_file(&self, path: &str) -> bool {
        self.0.get(path).is_some_and(|entry| entry.is_file)
    }
}

async fn blobs(
    github: &GitHub,
    repo: &Repo,
    files: &[Template],
    commit: &str,
) -> Result<Blobs, VendorError> {
    let folders: BTreeSet<&str> = files.iter().map(Template::folder).collect();
    let mut found = BTreeMap::new();
    for folder in folders {
        let entries = github.folder(repo, folder, commit).await?;
        let entries = entries.unwrap_or_default().into_iter();
        found.extend(entries.map(|entry| (entry.path.clone(), entry)));
    }
    Ok(Blobs(found))
}

/// Determines the changes that the sync branch needs, from its current files.
async fn compare(
    github: &GitHub,
    repo: &Repo,
    outdated: Vec<Template>,
    head: &str,
    plan: &mut SyncPlan,
) -> Result<(), VendorError> {
    let current = blobs(github, repo, &outdated, head).await?;
    let (managed, starters): (Vec<_>, Vec<_>) = outdated
        .into_iter()
        .partition(|one| one.sync_policy == SyncPolicy::Managed);
    plan.is_branch_current = managed
        .iter()
        .all(|one| one.status(current.get(&one.path)) == TemplateFileStatus::Current)
        && github.contains_commit(repo, head, &plan.base_sha).await?;
    plan.files = managed.into_iter().map(to_tree_file).collect();
    let is_missing = |one: &Template| current.get(&one.path).is_none();
    // A starter that is missing on a branch with commits of others was removed by them.
    let has_only_own_commit = !starters.iter().any(is_missing)
        || github.commit_message(repo, head).await?.trim() == SYNC_MESSAGE;
    for starter in starters {
        match current.get(&starter.path) {
            Some(blob) if current.is_file(&starter.path) => plan.files.push(TreeFile {
                content: TreeContent::Blob(blob.to_owned()),
                path: starter.path,
            }),
            None if has_only_own_commit => {
                plan.is_branch_current = false;
                plan.files.push(to_tree_file(starter));
            }
            // Removed, or replaced by a folder or link, which our commit cannot carry over.
            _ => {}
        }
    }
    plan.files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(())
}

fn to_tree_file(template: Template) -> TreeFile {
    TreeFile {
        path: template.path,
        content: TreeContent::Text(template.text),
    }
}

/// Remedy for a rejected request that may lack a permission.
pub(super) async fn remedy(github: &GitHub, repo: &Repo, error: &VendorError) -> Option<String> {
    if !matches!(error.status(), Some(403 | 404)) {
        return None;
    }
    let missing = match github.missing_permissions(repo, &SYNC_PERMISSIONS).await {
        Err(error) if error.is_not_found() => {
            return Some(format!(
                "The App is not installed on {repo}. Install it there, or correct the repository of the project, then \
                 sync again."
            ));
        }
        Err(_) => return None,
        Ok(None) => {
            return Some(
                "The token needs contents: write, pull_requests: write and workflows: write; a \
                 classic token needs the scopes repo and workflow."
                    .to_owned(),
            );
        }
        Ok(Some(missing)) => missing,
    };
    (!missing.is_empty()).then(|| {
        format!(
            "The App lacks the permission {} on {repo}. Add it to the App, accept it for the \
             installation, then sync again.",
            missing.join(", ")
        )
    })
}
