//! Effect "sync workflows": the commit and the pull request with the workflow files.

use domain::ids::Repo;
use domain::ids::TeamKey;
use domain::templates::SYNC_BRANCH;
use domain::templates::SYNC_MESSAGE;
use domain::templates::SyncPullRequestBody;
use domain::templates::SyncReport;
use domain::templates::SyncStatus;
use vendors::scm::GitHub;
use vendors::scm::NewCommit;
use vendors::scm::NewPullRequest;

use super::super::workflow_sync;
use super::super::workflow_sync::SyncPlanError;
use super::EffectFailure;
use super::EffectOutcome;
use super::github;
use crate::app::{App, Core};

pub(super) async fn sync_workflows(
    app: &App,
    team: &TeamKey,
    repo: &Repo,
) -> Result<EffectOutcome, EffectFailure> {
    let github = github(&app.vendors)?;
    let refused = match sync_files(&app.core, github, team, repo).await {
        Ok(report) => return Ok(EffectOutcome::Synced(team.clone(), report)),
        Err(SyncPlanError::Precondition(reason)) => return Err(EffectFailure::permanent(&reason)),
        Err(SyncPlanError::Store(error)) => {
            return Err(EffectFailure::transient(&error.to_string()));
        }
        Err(SyncPlanError::Vendor(error)) => error,
    };
    let remedy = workflow_sync::remedy(github, repo, &refused).await;
    let failure = EffectFailure::from(refused);
    Err(match remedy {
        Some(remedy) => EffectFailure {
            error: format!("{}. {remedy}", failure.error),
            ..failure
        },
        None => failure,
    })
}

/// Commits the changed workflow files, then opens or updates the pull request.
async fn sync_files(
    core: &Core,
    github: &GitHub,
    team: &TeamKey,
    repo: &Repo,
) -> Result<SyncReport, SyncPlanError> {
    let sync = workflow_sync::plan(core, github, team, repo).await?;
    if sync.files.is_empty() {
        return Ok(sync.report(repo, SyncStatus::UpToDate, None));
    }
    let (changed, pull) = (sync.changed_paths(), sync.pull.as_ref());
    if !sync.is_branch_current {
        let new = NewCommit {
            parent: &sync.base_sha,
            message: SYNC_MESSAGE,
            files: &sync.files,
        };
        let written = github.commit_files(repo, SYNC_BRANCH, sync.sync_branch_sha.as_deref(), &new);
        if written.await?.is_none() {
            let reason =
                format!("{SYNC_BRANCH} was changed by somebody else meanwhile; sync again");
            return Err(SyncPlanError::Precondition(reason));
        }
    }
    let body = SyncPullRequestBody(&changed).to_string();
    match pull {
        Some(pull) if sync.is_branch_current => {
            Ok(sync.report(repo, SyncStatus::PrExisting, Some(pull)))
        }
        Some(pull) => {
            let update = github.update_pull(repo, pull.number, SYNC_MESSAGE, &body);
            let pull = update.await?;
            Ok(sync.report(repo, SyncStatus::PrUpdated, Some(&pull)))
        }
        None => {
            let new = NewPullRequest {
                title: SYNC_MESSAGE.to_owned(),
                body,
                head: SYNC_BRANCH.to_owned(),
                base: sync.base_branch.clone(),
                draft: false,
            };
            let pull = github.create_pull(repo, &new).await?;
            Ok(sync.report(repo, SyncStatus::PrOpened, Some(&pull)))
        }
    }
}
