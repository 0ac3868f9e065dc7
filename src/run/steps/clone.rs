//! Clone step: fetches the repository and determines the commit to start from.
//!
//! - No branch on the remote: start at the base.
//! - Our branch, from an earlier dispatch or of an open pull request: continue from its head.
//! - The commit of this dispatch, because the machine died after the push: skip the work.
//!
//! Pushed work whose pull request was rejected gets a pull request even without a new change.
//! Planning always starts at the base.

use serde_json::json;

use crate::agent::AgentCli;
use crate::context::{OpenedPullRequest, RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::git::GitError;
use crate::orchestrator_client::RepoAccess;
use crate::pull_request;
use crate::repo_config::{RepoConfig, RepoConfigError, guidance_file};
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::mapping::ModelProvider;
use domain::report::{FailureCode, RunPhase};
use domain::secret::Secret;
use vendors::scm::PullRequestState;

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    if !is_valid_branch(&run.config.branch) {
        let reason = format!("invalid branch name {:?}", run.config.branch);
        return Err(RunFailure::new(FailureCode::CloneFailed, reason));
    }
    run.git.init().await.map_err(clone_failed)?;
    let access = run.fetch_repo_access().await?;
    if let Some(number) = run.config.pr_number {
        check_pull(run, &access, number).await?;
    }
    fetch(run, access.token.as_ref()).await?;
    if run.state.already_pushed || continues_own_work(run) {
        match find_pull(run, &access).await? {
            Some(pull) if run.state.already_pushed => {
                run.console
                    .log("An earlier attempt of this dispatch opened the pull request");
                run.state.pull = Some(pull);
            }
            Some(_) => {}
            None => run.state.has_unpublished_work = true,
        }
    }
    drop(access);
    read_config(run).await?;
    run.git
        .checkout(&run.config.branch, &run.state.head_commit)
        .await
        .map_err(clone_failed)?;
    run.git.copy_for_agent().await.map_err(clone_failed)?;
    Ok(StepOutcome::Passed(json!({
        "branch": run.config.branch,
        "base": run.state.base_commit,
        "start": run.state.head_commit,
        "continued": run.state.remote_head.is_some(),
        "settingsWithoutEffect": run.state.repo_config.unknown_settings,
    })))
}

/// Whether an earlier dispatch of the ticket left commits on its branch.
fn continues_own_work(run: &RunContext) -> bool {
    let is_own_branch =
        run.config.phase == RunPhase::Implementation && run.config.pr_number.is_none();
    is_own_branch && run.state.head_commit != run.state.fork_point
}

/// Fetches base and branch, and determines the commit to start from.
async fn fetch(run: &mut RunContext, token: Option<&Secret>) -> Result<(), RunFailure> {
    let (git, branch) = (&run.git, run.config.branch.as_str());
    if branch == run.base_branch {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} is the base branch; runs never work on it"),
        ));
    }
    let remote_head = match run.config.phase {
        RunPhase::Planning => None,
        RunPhase::Implementation | RunPhase::GapAnalysis => {
            git.remote_head(token, branch).await.map_err(clone_failed)?
        }
    };
    if remote_head.is_none()
        && let Some(number) = run.config.pr_number
    {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} of pull request #{number} does not exist"),
        ));
    }
    let mut branches = vec![run.base_branch.as_str()];
    branches.extend(remote_head.is_some().then_some(branch));
    git.fetch(token, &branches).await.map_err(clone_failed)?;
    let base = git
        .resolve(&format!("refs/remotes/origin/{}", run.base_branch))
        .await
        .map_err(clone_failed)?;
    let Some(remote_head) = remote_head else {
        run.state.head_commit.clone_from(&base);
        run.state.fork_point.clone_from(&base);
        run.state.base_commit = base;
        return Ok(());
    };
    // The branch may have moved since it was read; the fetched commit counts.
    let tip = git
        .resolve(&format!("refs/remotes/origin/{branch}"))
        .await
        .map_err(clone_failed)?;
    let mut fork_point = git.merge_base(&base, &tip).await.map_err(clone_failed)?;
    if fork_point.is_none() {
        git.deepen(token, &branches).await.map_err(clone_failed)?;
        fork_point = git.merge_base(&base, &tip).await.map_err(clone_failed)?;
    }
    let fork_point = fork_point.unwrap_or_else(|| base.clone());
    let messages = git
        .commit_messages(&fork_point, &tip)
        .await
        .map_err(clone_failed)?;
    let ours = messages.contains(pull_request::TRAILER);
    if run.config.pr_number.is_none() && tip != fork_point && !ours {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} already exists with commits by somebody else"),
        ));
    }
    run.state.already_pushed = messages
        .lines()
        .any(|line| line.trim() == pull_request::trailer(run));
    run.state.remote_head = Some(if tip.is_empty() {
        remote_head
    } else {
        tip.clone()
    });
    run.state.head_commit = tip;
    run.state.fork_point = fork_point;
    run.state.base_commit = base;
    Ok(())
}

/// Checks that the pull request is open and belongs to the run's branch.
async fn check_pull(run: &RunContext, access: &RepoAccess, number: u64) -> Result<(), RunFailure> {
    let github = run.github_client(access)?;
    let log = |line: &str| run.console.log(line);
    let pull = retry(&log, RETRY_TIMEOUT, async || {
        github.pull(&run.repo, number).await
    })
    .await;
    let pull = pull.map_err(RunFailure::other)?;
    if pull.state != PullRequestState::Open {
        return Err(RunFailure::other(format!(
            "pull request #{number} is no longer open"
        )));
    }
    if pull.head_branch != run.config.branch {
        let branch = &run.config.branch;
        return Err(RunFailure::other(format!(
            "pull request #{number} does not belong to branch {branch}"
        )));
    }
    Ok(())
}

async fn find_pull(
    run: &RunContext,
    access: &RepoAccess,
) -> Result<Option<OpenedPullRequest>, RunFailure> {
    let pull = run
        .github_client(access)?
        .find_open_pull(&run.repo, &run.config.branch)
        .await
        .map_err(RunFailure::other)?;
    Ok(pull.map(|pull| OpenedPullRequest {
        number: pull.number,
        url: pull.url,
    }))
}

async fn read_config(run: &mut RunContext) -> Result<(), RunFailure> {
    let config = RepoConfig::read(&run.git, &run.state.base_commit, run.config.phase)
        .await
        .map_err(|error| match error {
            RepoConfigError::Git(error) => clone_failed(error),
            RepoConfigError::Unreadable(..) => RunFailure::new(FailureCode::SetupFailed, error),
        })?;
    let setup_failed = |cause: String| RunFailure::new(FailureCode::SetupFailed, cause);
    if let Some(name) = &config.settings.agent {
        run.agent.cli = AgentCli::from_name(name)
            .map_err(|cause| setup_failed(format!(".agent-implement/config.yml: {cause}")))?;
    }
    run.agent.validate().map_err(setup_failed)?;
    run.agent.pin_program();
    if matches!(run.config.provider, ModelProvider::Cloud { .. }) && config.model.is_none() {
        return Err(RunFailure::new(
            FailureCode::SetupFailed,
            format!(
                "{} sets no model, and the provider cloud has no default. Set model: in its front matter.",
                guidance_file(run.config.phase)
            ),
        ));
    }
    for message in &config.unknown_settings {
        run.console.log(&format!("{message} (ignored)"));
    }
    run.state.repo_config = config;
    Ok(())
}

/// Whether a branch name consists of the characters that generated names use; others could have a
/// meaning to git.
fn is_valid_branch(branch: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    branch.starts_with(|c: char| c.is_ascii_alphanumeric())
        && branch.chars().all(is_allowed)
        && !branch.contains("..")
}

/// Formats the failure. See docs/behaviour.md#run-failures.
fn clone_failed(error: GitError) -> RunFailure {
    let reason = match &error {
        GitError::Failed { code, stderr, .. } => {
            format!("git clone failed (exit {code}): {stderr}")
        }
        other => format!("git clone failed: {other}"),
    };
    RunFailure::new(FailureCode::CloneFailed, reason)
}
