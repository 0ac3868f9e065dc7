//! Fetches the repository and finds out where to begin.
//!
//! Three things may be found on the host: no branch, then it begins at the base; a branch of ours,
//! from an earlier dispatch or for an open pull request, then it continues there; or the very commit
//! of this dispatch, because the machine died after the push, then no work is done twice. Work that
//! was pushed and has no pull request, because the host refused it, is worth one without a change. A plan is
//! made of the base alone, whatever stands on the branch.

use serde_json::json;

use crate::agent::Cli;
use crate::callback::RepoAccess;
use crate::git::GitError;
use crate::patience::{PATIENCE, persist};
use crate::pull_request;
use crate::repo_config::{RepoConfig, RepoConfigError, settings_file};
use crate::run::{Failure, PullRef, Run, StepOutcome};
use domain::mapping::Provider;
use domain::report::{FailureCode, RunPhase};
use domain::secret::Secret;
use vendors::scm::PullState;

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    if !is_plain(&run.config.branch) {
        let reason = format!("the branch name {:?} is not usable", run.config.branch);
        return Err(Failure::new(FailureCode::CloneFailed, reason));
    }
    run.git.init().await.map_err(failed)?;
    let access = run.open_access().await?;
    if let Some(number) = run.config.pr_number {
        check_pull(run, &access, number).await?;
    }
    fetch(run, access.token.as_ref()).await?;
    if run.found.already_pushed || continues_own_work(run) {
        match open_pull(run, &access).await? {
            Some(pull) if run.found.already_pushed => {
                run.console
                    .say("an earlier attempt of this dispatch had opened the pull request");
                run.found.pull = Some(pull);
            }
            Some(_) => {}
            None => run.found.unpublished = true,
        }
    }
    drop(access);
    read_config(run).await?;
    run.git
        .checkout(&run.config.branch, &run.found.start)
        .await
        .map_err(failed)?;
    run.git.copy_for_agent().await.map_err(failed)?;
    Ok(StepOutcome::Passed(json!({
        "branch": run.config.branch,
        "base": run.found.base,
        "start": run.found.start,
        "continued": run.found.seen.is_some(),
        "settingsWithoutEffect": run.found.repo_config.unknown,
    })))
}

/// Whether an earlier dispatch of the ticket left commits on its branch.
fn continues_own_work(run: &Run) -> bool {
    let is_tickets = run.config.phase == RunPhase::Implementation && run.config.pr_number.is_none();
    is_tickets && run.found.start != run.found.fork_point
}

/// Fetches base and branch, and decides where the work begins.
async fn fetch(run: &mut Run, token: Option<&Secret>) -> Result<(), Failure> {
    let (git, branch) = (&run.git, run.config.branch.as_str());
    if branch == run.base_branch {
        return Err(Failure::new(
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
        return Err(Failure::new(
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
        run.found.start.clone_from(&base);
        run.found.fork_point.clone_from(&base);
        run.found.base = base;
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
    let messages = git.messages(&fork_point, &tip).await.map_err(failed)?;
    let ours = messages.contains(pull_request::TRAILER);
    if run.config.pr_number.is_none() && tip != fork_point && !ours {
        return Err(Failure::new(
            FailureCode::CloneFailed,
            format!("the branch {branch} exists and holds commits of somebody else"),
        ));
    }
    run.found.already_pushed = messages
        .lines()
        .any(|line| line.trim() == pull_request::trailer(run));
    run.found.seen = Some(if tip.is_empty() { seen } else { tip.clone() });
    run.found.start = tip;
    run.found.fork_point = fork_point;
    run.found.base = base;
    Ok(())
}

/// Work on a pull request that is over, or of another branch, would be for nobody: it is not begun.
async fn check_pull(run: &Run, access: &RepoAccess, number: u64) -> Result<(), Failure> {
    let host = run.host(access)?;
    let say = |line: &str| run.console.say(line);
    let read = persist(&say, PATIENCE, async || host.pull(&run.repo, number).await).await;
    let pull = read.map_err(Failure::other)?;
    if pull.state != PullState::Open {
        return Err(Failure::other(format!(
            "pull request #{number} is not open any more"
        )));
    }
    if pull.head_branch != run.config.branch {
        let branch = &run.config.branch;
        return Err(Failure::other(format!(
            "pull request #{number} is not of the branch {branch}"
        )));
    }
    Ok(())
}

async fn open_pull(run: &Run, access: &RepoAccess) -> Result<Option<PullRef>, Failure> {
    let pull = run
        .host(access)?
        .open_pull(&run.repo, &run.config.branch)
        .await
        .map_err(Failure::other)?;
    Ok(pull.map(|pull| PullRef {
        number: pull.number,
        url: pull.url,
    }))
}

async fn read_config(run: &mut Run) -> Result<(), Failure> {
    let config = RepoConfig::read(&run.git, &run.found.base, run.config.phase)
        .await
        .map_err(|error| match error {
            RepoConfigError::Git(error) => failed(error),
            RepoConfigError::Unreadable(..) => Failure::new(FailureCode::SetupFailed, error),
        })?;
    let unfit = |cause: String| Failure::new(FailureCode::SetupFailed, cause);
    if let Some(name) = &config.settings.agent {
        run.agent.cli = Cli::named(name)
            .map_err(|cause| unfit(format!(".agent-implement/config.yml: {cause}")))?;
    }
    run.agent.check().map_err(unfit)?;
    run.agent.pin();
    if matches!(run.config.provider, Provider::Cloud { .. }) && config.model.is_none() {
        return Err(Failure::new(
            FailureCode::SetupFailed,
            format!(
                "{} names no model: the provider cloud has no default; set model: in its front matter",
                settings_file(run.config.phase)
            ),
        ));
    }
    for sentence in &config.unknown {
        run.console.say(&format!("{sentence} (it has no effect)"));
    }
    run.found.repo_config = config;
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
fn failed(error: GitError) -> Failure {
    let reason = match &error {
        GitError::Failed { code, said, .. } => format!("git clone failed (exit {code}): {said}"),
        other => format!("git clone failed: {other}"),
    };
    Failure::new(FailureCode::CloneFailed, reason)
}
