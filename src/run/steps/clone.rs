//! Fetches the repository and finds out where to begin.
//!
//! Three things may be found on the host: no branch, then it begins at the base; a branch of ours,
//! from an earlier dispatch or for an open pull request, then it continues there; or the very commit
//! of this dispatch, because the machine died after the push, then no work is done twice. Work that
//! was pushed and has no pull request, because the host refused it, is worth one without a change. A plan is
//! made of the base alone, whatever stands on the branch.

use serde_json::json;

use crate::agent::AgentCli;
use crate::context::{OpenedPullRequest, RunContext, RunFailure, StepOutcome};
use crate::git::GitError;
use crate::orchestrator_client::RepoAccess;
use crate::pull_request;
use crate::repo_config::{RepoConfig, RepoConfigError, guidance_file};
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::mapping::ModelProvider;
use domain::report::{FailureCode, RunPhase};
use domain::secret::Secret;
use vendors::scm::PullRequestState;

pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    if !is_plain(&run.config.branch) {
        let reason = format!("the branch name {:?} is not usable", run.config.branch);
        return Err(RunFailure::new(FailureCode::CloneFailed, reason));
    }
    run.git.init().await.map_err(failed)?;
    let access = run.fetch_repo_access().await?;
    if let Some(number) = run.config.pr_number {
        check_pull(run, &access, number).await?;
    }
    fetch(run, access.token.as_ref()).await?;
    if run.state.already_pushed || continues_own_work(run) {
        match open_pull(run, &access).await? {
            Some(pull) if run.state.already_pushed => {
                run.console
                    .log("an earlier attempt of this dispatch had opened the pull request");
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
        .map_err(failed)?;
    run.git.copy_for_agent().await.map_err(failed)?;
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
    let is_tickets = run.config.phase == RunPhase::Implementation && run.config.pr_number.is_none();
    is_tickets && run.state.head_commit != run.state.fork_point
}

/// Fetches base and branch, and decides where the work begins.
async fn fetch(run: &mut RunContext, token: Option<&Secret>) -> Result<(), RunFailure> {
    let (git, branch) = (&run.git, run.config.branch.as_str());
    if branch == run.base_branch {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("the branch to work on, {branch}, is the base branch itself"),
        ));
    }
    let seen = match run.config.phase {
        RunPhase::Planning => None,
        RunPhase::Implementation | RunPhase::GapAnalysis => {
            git.remote_head(token, branch).await.map_err(failed)?
        }
    };
    if seen.is_none()
        && let Some(number) = run.config.pr_number
    {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("the branch {branch} of pull request #{number} is gone"),
        ));
    }
    let mut branches = vec![run.base_branch.as_str()];
    branches.extend(seen.is_some().then_some(branch));
    git.fetch(token, &branches).await.map_err(failed)?;
    let base = git
        .resolve(&format!("refs/remotes/origin/{}", run.base_branch))
        .await
        .map_err(failed)?;
    let Some(seen) = seen else {
        run.state.head_commit.clone_from(&base);
        run.state.fork_point.clone_from(&base);
        run.state.base_commit = base;
        return Ok(());
    };
    // The branch may have moved between the two questions; what was fetched counts.
    let tip = git
        .resolve(&format!("refs/remotes/origin/{branch}"))
        .await
        .map_err(failed)?;
    let mut fork_point = git.merge_base(&base, &tip).await.map_err(failed)?;
    if fork_point.is_none() {
        git.deepen(token, &branches).await.map_err(failed)?;
        fork_point = git.merge_base(&base, &tip).await.map_err(failed)?;
    }
    let fork_point = fork_point.unwrap_or_else(|| base.clone());
    let messages = git
        .commit_messages(&fork_point, &tip)
        .await
        .map_err(failed)?;
    let ours = messages.contains(pull_request::TRAILER);
    if run.config.pr_number.is_none() && tip != fork_point && !ours {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("the branch {branch} exists and holds commits of somebody else"),
        ));
    }
    run.state.already_pushed = messages
        .lines()
        .any(|line| line.trim() == pull_request::trailer(run));
    run.state.remote_head = Some(if tip.is_empty() { seen } else { tip.clone() });
    run.state.head_commit = tip;
    run.state.fork_point = fork_point;
    run.state.base_commit = base;
    Ok(())
}

/// Work on a pull request that is over, or of another branch, would be for nobody: it is not begun.
async fn check_pull(run: &RunContext, access: &RepoAccess, number: u64) -> Result<(), RunFailure> {
    let host = run.github_client(access)?;
    let say = |line: &str| run.console.log(line);
    let read = retry(&say, RETRY_TIMEOUT, async || {
        host.pull(&run.repo, number).await
    })
    .await;
    let pull = read.map_err(RunFailure::other)?;
    if pull.state != PullRequestState::Open {
        return Err(RunFailure::other(format!(
            "pull request #{number} is not open any more"
        )));
    }
    if pull.head_branch != run.config.branch {
        let branch = &run.config.branch;
        return Err(RunFailure::other(format!(
            "pull request #{number} is not of the branch {branch}"
        )));
    }
    Ok(())
}

async fn open_pull(
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
            RepoConfigError::Git(error) => failed(error),
            RepoConfigError::Unreadable(..) => RunFailure::new(FailureCode::SetupFailed, error),
        })?;
    let unfit = |cause: String| RunFailure::new(FailureCode::SetupFailed, cause);
    if let Some(name) = &config.settings.agent {
        run.agent.cli = AgentCli::from_name(name)
            .map_err(|cause| unfit(format!(".agent-implement/config.yml: {cause}")))?;
    }
    run.agent.validate().map_err(unfit)?;
    run.agent.pin_program();
    if matches!(run.config.provider, ModelProvider::Cloud { .. }) && config.model.is_none() {
        return Err(RunFailure::new(
            FailureCode::SetupFailed,
            format!(
                "{} names no model: the provider cloud has no default; set model: in its front matter",
                guidance_file(run.config.phase)
            ),
        ));
    }
    for sentence in &config.unknown_settings {
        run.console.log(&format!("{sentence} (it has no effect)"));
    }
    run.state.repo_config = config;
    Ok(())
}

/// Names that our own rules make; anything else could mean something to git.
fn is_plain(branch: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    branch.starts_with(|c: char| c.is_ascii_alphanumeric())
        && branch.chars().all(known)
        && !branch.contains("..")
}

/// The spec's words for whatever went wrong here.
fn failed(error: GitError) -> RunFailure {
    let reason = match &error {
        GitError::Failed {
            code, stderr: said, ..
        } => format!("git clone failed (exit {code}): {said}"),
        other => format!("git clone failed: {other}"),
    };
    RunFailure::new(FailureCode::CloneFailed, reason)
}
