//! Offering our files to a target repository, in one pull request.
//!
//! An operator asks and waits for the answer, yet it is an errand like any other: stored before
//! anything leaves, performed by the one who delivers, tried again when the host is out of order.
//! All syncs of a repository stand in one lane, so two at once cannot open two pull requests; and
//! each looks first what is there, so that doing it again writes nothing.
//!
//! The branch is made anew on the head of its base whenever something must be written, or the base
//! has moved on: it never conflicts. What the team made of our starters on it is carried over.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
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

/// How long is an answer waited for?
const WAIT: Duration = Duration::from_secs(20);

/// What a sync needs to be allowed.
const RIGHTS: [(&str, &str); 3] = [
    ("contents", "write"),
    ("pull_requests", "write"),
    ("workflows", "write"),
];

/// Why a sync has no result.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("no such team")]
    NoTeam,
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Syncs a project's repository and waits for what comes of it.
///
/// What the host could not do now stays owed and is tried again; asking again joins it.
///
/// # Errors
/// When there is no such project, or the repository could not be synced so far.
pub async fn request(app: &App, by: Actor, team: TeamKey) -> Result<SyncReport, SyncError> {
    if app.github.is_none() {
        let how = "set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY, or GITHUB_TOKEN";
        let why = format!("the repository host is not configured: {how}");
        return match app.store.read(|tx| mappings::get(tx, &team))? {
            None => Err(SyncError::NoTeam),
            Some(_) => Err(SyncError::Failed(why)),
        };
    }
    let (now, asking) = (app.now(), team.clone());
    let owed = app.store.write(move |tx| {
        let Some(mapping) = mappings::get(tx, &asking)? else {
            return Ok(None);
        };
        let effect = Effect::SyncWorkflows {
            team: asking.clone(),
            repo: mapping.target_repo(),
        };
        let lane = effect.queue_key();
        // One that has begun may have read the mapping before it was changed to what it is now.
        let waiting = outbox::of_queue_key(tx, &lane)?
            .into_iter()
            .find(|errand| errand.effect == effect && errand.claimed_at.is_none());
        let stamp = match waiting {
            Some(errand) => {
                outbox::retry_now(tx, &errand, now)?;
                errand.idempotency_key()
            }
            None => outbox::push(tx, &effect, now)?,
        };
        let deed = by
            .audit_event(Action::SyncRequested, &asking)
            .with_detail(mapping.target_repo());
        audit::append(tx, &deed, now)?;
        Ok(Some((lane, stamp)))
    });
    let (lane, stamp) = owed.await?.ok_or(SyncError::NoTeam)?;
    let answer = timeout(WAIT, outcome(app, &team, &lane, &stamp)).await;
    answer.unwrap_or_else(|_| Err(SyncError::Failed(unfinished(app, &lane, &stamp)?)))
}

/// Waits until the errand has ended, or is put off for longer than anybody would wait.
async fn outcome(
    app: &App,
    team: &TeamKey,
    lane: &str,
    stamp: &str,
) -> Result<SyncReport, SyncError> {
    let latest = app.now() + WAIT;
    loop {
        let mut settled = pin!(app.notifiers.effect_settled.notified());
        // From here on no bell is missed.
        settled.as_mut().enable();
        let (ended, owed) = app.store.read(|tx| {
            let errands = outbox::of_queue_key(tx, lane)?;
            Ok((template_syncs::last(tx, team)?, errands))
        })?;
        match owed.iter().find(|errand| errand.idempotency_key() == stamp) {
            Some(errand) if errand.due_at > latest => {
                return Err(SyncError::Failed(unfinished(app, lane, stamp)?));
            }
            Some(_) => settled.await,
            // It has ended, or a later one of the project has since, which knows as much.
            None => {
                return ended
                    .map_or_else(dropped, |synced| synced.outcome.map_err(SyncError::Failed));
            }
        }
    }
}

fn dropped() -> Result<SyncReport, SyncError> {
    Err(SyncError::Failed("the sync was dropped".to_owned()))
}

/// Why there is no answer yet.
fn unfinished(app: &App, lane: &str, stamp: &str) -> StoreResult<String> {
    let owed = app.store.read(|tx| outbox::of_queue_key(tx, lane))?;
    let owed = owed
        .into_iter()
        .find(|errand| errand.idempotency_key() == stamp);
    let why = owed
        .and_then(|errand| errand.last_error)
        .unwrap_or_else(|| "the repository host has not answered yet".to_owned());
    Ok(format!("{why}; the sync is tried again by itself"))
}

/// What is to be done in a repository.
pub(super) struct SyncPlan {
    pub base_branch: String,
    /// The head of the base; the commit is made on it.
    pub base_sha: String,
    /// Where the sync branch ends, if there is one.
    pub sync_branch_sha: Option<String>,
    /// All that the branch must change; nothing when the repository has everything.
    pub files: Vec<TreeFile>,
    /// Whether the branch does so already.
    pub is_branch_current: bool,
    /// The open pull request of the branch.
    pub pull: Option<PullRequest>,
}

impl SyncPlan {
    pub fn changed_paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    pub fn report(
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

/// Why nothing can be offered.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncPlanError {
    #[error("{0}")]
    Precondition(String),
    #[error(transparent)]
    Vendor(#[from] VendorError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Looks what the repository of a project lacks, and what the sync branch offers of it already.
pub(super) async fn plan(
    app: &App,
    github: &GitHub,
    team: &TeamKey,
    repo: &Repo,
) -> Result<SyncPlan, SyncPlanError> {
    let (base_branch, wanted) = wanted(app, team, repo)?;
    let Some(base) = github.branch_sha(repo, &base_branch).await? else {
        return Err(SyncPlanError::Precondition(missing_branch_message(
            repo,
            &base_branch,
        )));
    };
    let there = blobs(github, repo, &wanted, &base).await?;
    let lacking: Vec<Template> = wanted
        .into_iter()
        .filter(|one| one.status(there.get(&one.path)) != TemplateFileStatus::Current)
        .collect();
    let mut offer = SyncPlan {
        base_branch,
        base_sha: base,
        sync_branch_sha: None,
        files: Vec::new(),
        is_branch_current: false,
        pull: None,
    };
    if lacking.is_empty() {
        return Ok(offer);
    }
    offer.pull = github.find_open_pull(repo, SYNC_BRANCH).await?;
    if let Some(pull) = offer
        .pull
        .as_ref()
        .filter(|pull| pull.base_branch != offer.base_branch)
    {
        return Err(SyncPlanError::Precondition(format!(
            "the branch {SYNC_BRANCH} has the open pull request {} to {}; merge or close it, then \
             sync again",
            pull.url, pull.base_branch
        )));
    }
    offer.sync_branch_sha = github.branch_sha(repo, SYNC_BRANCH).await?;
    match offer.sync_branch_sha.clone() {
        Some(tip) => compare(github, repo, lacking, &tip, &mut offer).await?,
        None => offer.files = lacking.into_iter().map(as_it_is).collect(),
    }
    Ok(offer)
}

pub(super) fn missing_branch_message(repo: &Repo, branch: &str) -> String {
    format!(
        "{repo} has no branch {branch}, or it is hidden: see that the project's mapping is right, \
         and the App installed on the repository"
    )
}

/// The files that the repository is to have, and on which branch. Projects that share a repository
/// share its files.
fn wanted(
    app: &App,
    team: &TeamKey,
    repo: &Repo,
) -> Result<(String, Vec<Template>), SyncPlanError> {
    let all = app.store.read(mappings::all)?;
    let Some(asking) = mappings_of_repo(&all, repo).find(|mapping| mapping.team_key == *team)
    else {
        return Err(SyncPlanError::Precondition(format!(
            "{team} is no longer mapped to {repo}"
        )));
    };
    let branch = asking.default_branch.clone();
    let sharing: Vec<Mapping> = mappings_of_repo(&all, repo)
        .filter(|mapping| mapping.default_branch == branch)
        .cloned()
        .collect();
    let image = app.config.session_image.as_deref();
    let wanted = templates::desired_templates(repo, &sharing, image);
    let wanted = wanted.map_err(|contested| SyncPlanError::Precondition(contested.to_string()))?;
    Ok((branch, wanted))
}

/// The mappings to one repository; the host does not tell the cases of letters apart.
pub(super) fn mappings_of_repo<'a>(
    all: &'a [Mapping],
    repo: &'a Repo,
) -> impl Iterator<Item = &'a Mapping> {
    all.iter().filter(|mapping| {
        mapping.owner.eq_ignore_ascii_case(&repo.owner)
            && mapping.repo.eq_ignore_ascii_case(&repo.name)
    })
}

/// What stands at the paths of these files, by path.
struct Blobs(BTreeMap<String, FolderEntry>);

impl Blobs {
    /// Git's name of its content.
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

/// Decides what the branch must change, given what stands on it.
async fn compare(
    github: &GitHub,
    repo: &Repo,
    lacking: Vec<Template>,
    tip: &str,
    offer: &mut SyncPlan,
) -> Result<(), VendorError> {
    let there = blobs(github, repo, &lacking, tip).await?;
    let (kept, seeds): (Vec<_>, Vec<_>) = lacking
        .into_iter()
        .partition(|one| one.sync_policy == SyncPolicy::Managed);
    offer.is_branch_current = kept
        .iter()
        .all(|one| one.status(there.get(&one.path)) == TemplateFileStatus::Current)
        && github.contains_commit(repo, tip, &offer.base_sha).await?;
    offer.files = kept.into_iter().map(as_it_is).collect();
    let is_missing = |one: &Template| there.get(&one.path).is_none();
    // A starter that is gone from a branch on which others have worked was taken off by them.
    let is_ours = !seeds.iter().any(is_missing)
        || github.commit_message(repo, tip).await?.trim() == SYNC_MESSAGE;
    for seed in seeds {
        match there.get(&seed.path) {
            Some(blob) if there.is_file(&seed.path) => offer.files.push(TreeFile {
                content: TreeContent::Blob(blob.to_owned()),
                path: seed.path,
            }),
            None if is_ours => {
                offer.is_branch_current = false;
                offer.files.push(as_it_is(seed));
            }
            // Taken off; or made a folder or a link, which no commit of ours can carry over.
            _ => {}
        }
    }
    offer.files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(())
}

fn as_it_is(template: Template) -> TreeFile {
    TreeFile {
        path: template.path,
        content: TreeContent::Text(template.text),
    }
}

/// Which right a refusal may be for want of, in words for the operator.
pub(super) async fn remedy(github: &GitHub, repo: &Repo, error: &VendorError) -> Option<String> {
    if !matches!(error.status(), Some(403 | 404)) {
        return None;
    }
    let lacking = match github.missing_permissions(repo, &RIGHTS).await.ok()? {
        None => {
            return Some(
                "The token needs contents: write, pull_requests: write and workflows: write; a \
                 classic one the scopes repo and workflow."
                    .to_owned(),
            );
        }
        Some(lacking) => lacking,
    };
    (!lacking.is_empty()).then(|| {
        format!(
            "The App lacks the permission {} on {repo}: add it to the App, accept it for the \
             installation, then sync again.",
            lacking.join(", ")
        )
    })
}
