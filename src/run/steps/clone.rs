//! Clone step: fetches the repository and determines the commit to start from.
//!
//! - No branch on the remote: start at the base.
//! - Our branch, from an earlier dispatch or of an open pull request: continue from its head.
//! - The commit of this dispatch, because the machine died after the push: skip the work.
//!
//! Pushed work whose pull request was rejected gets a pull request even without a new change.
//! Planning always starts at the base. A run for a conflict merges the base into the branch.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;

use super::{base_merge, earlier_work, ticket_material};
use crate::agent::AgentCli;
use crate::context::{Checkout, Dispatch, RunContext, StepOutcome};
use crate::failure::{RunFailure, clone_failed};
use crate::git::Git;
use crate::orchestrator_client::RepoAccess;
use crate::pull_request;
use crate::repo_config::{RepoConfig, RepoConfigError, guidance_file};
use crate::retry::{RETRY_TIMEOUT, retry};
use crate::stopwatch::Stopwatch;
use domain::git_mirror;
use domain::mapping::ModelProvider;
use domain::report::{FailureCode, RunPhase};
use domain::secret::Secret;
use vendors::scm::PullRequestState;

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    let branch = run.dispatch.branch();
    if !is_valid_branch(branch) {
        let reason = format!("invalid branch name {branch:?}");
        return Err(RunFailure::new(FailureCode::CloneFailed, reason));
    }
    let home = run.workspace.fill_home();
    let mut watch = Stopwatch::start();
    let mut mirror_use = None;
    let (mirror, configured_cli) = (run.workspace.mirror.clone(), run.agent.cli);
    let checkout = match check_out(run, &mut watch, mirror.as_deref(), &mut mirror_use).await {
        Err(failure) if mirror_use.is_some() => {
            // Whatever went wrong: a damaged mirror must not fail a run.
            run.reporting.log(&format!(
                "Cloning again without the mirror of the repository: {}",
                failure.reason
            ));
            mirror_use = Some(git_mirror::UNUSABLE);
            run.workspace.git.remove().map_err(clone_failed)?;
            // The first attempt may have replaced it by the agent of the dispatch.
            run.agent.cli = configured_cli;
            check_out(run, &mut watch, None, &mut None).await?
        }
        checkout => checkout?,
    };
    let continued = checkout.remote_head.is_some();
    let (base, start) = (checkout.base_commit.clone(), checkout.head_commit.clone());
    run.checkout = Some(checkout);
    ticket_material::fetch(run).await;
    watch.lap("access");
    earlier_work::apply(run).await?;
    watch.lap("checkout");
    let copied = run.workspace.git.copy_for_agent().await;
    copied.map_err(clone_failed)?;
    watch.lap("copy");
    home.end().await?;
    watch.lap("home");
    let outputs = json!({
        "branch": run.dispatch.branch(),
        "base": base,
        "start": start,
        "continued": continued,
        "settingsWithoutEffect": run.repo_config.unknown_settings,
        (git_mirror::OUTPUT): mirror_use,
        "milliseconds": watch.milliseconds(),
    });
    Ok(StepOutcome::Passed(outputs))
}

/// Fetches the repository, of which a mirror may have a part, and checks it out. `mirror_use` is set as soon as the
/// mirror is used.
async fn check_out(
    run: &mut RunContext,
    watch: &mut Stopwatch,
    mirror: Option<&Path>,
    mirror_use: &mut Option<&'static str>,
) -> Result<Checkout, RunFailure> {
    run.workspace.git.init().await.map_err(clone_failed)?;
    let git = &run.workspace.git;
    // Neither starts a process: access is fetched only when none is left.
    let (copied, access) = tokio::join!(
        async {
            match mirror {
                Some(mirror) => git.copy_mirror(mirror, &run.dispatch.base_branch).await,
                None => Ok(None),
            }
        },
        run.connections.fetch_repo_access(&run.workspace),
    );
    let access = access?;
    *mirror_use = mirror.map(|_| git_mirror::USED);
    let known_base = copied.map_err(clone_failed)?;
    match &known_base {
        Some(commit) => {
            let known = git.set_known_head(&run.dispatch.base_branch, commit);
            known.await.map_err(clone_failed)?;
        }
        None => *mirror_use = None,
    }
    watch.lap("access");
    if let Some(number) = run.dispatch.config.pr_number {
        check_pull(run, &access, number).await?;
    }
    let git = &run.workspace.git;
    let mut checkout = fetch(&run.dispatch, git, access.token.as_ref(), known_base).await?;
    if checkout.already_pushed || continues_own_work(&run.dispatch, &checkout) {
        match run
            .connections
            .find_open_pull(&access, &run.dispatch)
            .await?
        {
            Some(pull) if checkout.already_pushed => {
                run.reporting
                    .log("An earlier attempt of this dispatch opened the pull request");
                run.publication.pull = Some(pull);
            }
            Some(_) => {}
            None => checkout.has_unpublished_work = true,
        }
    }
    if run.dispatch.merges_base_branch() {
        let git = &run.workspace.git;
        base_merge::merge(&run.dispatch, git, access.token.as_ref(), &mut checkout).await?;
    }
    drop(access);
    watch.lap("fetch");
    read_config(run, &checkout.base_commit).await?;
    let (git, branch) = (&run.workspace.git, run.dispatch.branch());
    let checked_out = git.checkout(branch, &checkout.head_commit).await;
    checked_out.map_err(clone_failed)?;
    if let Some(merge) = &checkout.merge {
        let restored = git.restore(&merge.merged.tree).await;
        restored.map_err(clone_failed)?;
    }
    watch.lap("checkout");
    Ok(checkout)
}

/// Whether an earlier dispatch of the ticket left commits on its branch.
fn continues_own_work(dispatch: &Dispatch, checkout: &Checkout) -> bool {
    let config = &dispatch.config;
    let is_own_branch = config.phase == RunPhase::Implementation && config.pr_number.is_none();
    is_own_branch && checkout.head_commit != checkout.fork_point
}

/// Fetches base and branch, and determines the commit to start from. `known_base` is a head of the base that the
/// repository already has.
async fn fetch(
    dispatch: &Dispatch,
    git: &Git,
    token: Option<&Secret>,
    known_base: Option<String>,
) -> Result<Checkout, RunFailure> {
    let (branch, base_branch) = (dispatch.branch(), dispatch.base_branch.as_str());
    if branch == base_branch {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} is the base branch; runs never work on it"),
        ));
    }
    let needs_branch = match dispatch.config.phase {
        RunPhase::Planning => false,
        RunPhase::Implementation | RunPhase::GapAnalysis => true,
    };
    let mut branches = Vec::new();
    branches.extend(known_base.is_some().then_some(base_branch));
    branches.extend(needs_branch.then_some(branch));
    let heads = match branches.is_empty() {
        true => HashMap::new(),
        false => git
            .remote_heads(token, &branches)
            .await
            .map_err(clone_failed)?,
    };
    let remote_head = heads.get(branch);
    if remote_head.is_none()
        && let Some(number) = dispatch.config.pr_number
    {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} of pull request #{number} does not exist"),
        ));
    }
    if remote_head.is_some()
        || known_base.is_none()
        || heads.get(base_branch) != known_base.as_ref()
    {
        let mut branches = vec![base_branch];
        branches.extend(remote_head.is_some().then_some(branch));
        git.fetch(token, &branches).await.map_err(clone_failed)?;
    }
    let base = git
        .resolve(&format!("refs/remotes/origin/{}", dispatch.base_branch))
        .await
        .map_err(clone_failed)?;
    if remote_head.is_some() {
        return continue_branch(dispatch, git, token, base).await;
    }
    Ok(Checkout {
        fork_point: base.clone(),
        head_commit: base.clone(),
        base_commit: base,
        remote_head: None,
        already_pushed: false,
        has_unpublished_work: false,
        merge: None,
        is_up_to_date: false,
    })
}

/// Determines where the work on a fetched branch continues.
async fn continue_branch(
    dispatch: &Dispatch,
    git: &Git,
    token: Option<&Secret>,
    base: String,
) -> Result<Checkout, RunFailure> {
    let branch = dispatch.branch();
    // The branch may have moved since it was read; the fetched commit counts.
    let tip = git
        .resolve(&format!("refs/remotes/origin/{branch}"))
        .await
        .map_err(clone_failed)?;
    let mut fork_point = git.merge_base(&base, &tip).await.map_err(clone_failed)?;
    if fork_point.is_none() {
        let branches = [dispatch.base_branch.as_str(), branch];
        git.deepen(token, &branches).await.map_err(clone_failed)?;
        fork_point = git.merge_base(&base, &tip).await.map_err(clone_failed)?;
    }
    let fork_point = fork_point.unwrap_or_else(|| base.clone());
    let messages = git
        .commit_messages(&fork_point, &tip)
        .await
        .map_err(clone_failed)?;
    let ours = messages.contains(pull_request::TRAILER);
    if dispatch.config.pr_number.is_none() && tip != fork_point && !ours {
        return Err(RunFailure::new(
            FailureCode::CloneFailed,
            format!("branch {branch} already exists with commits by somebody else"),
        ));
    }
    let trailer = pull_request::trailer(dispatch);
    Ok(Checkout {
        base_commit: base,
        fork_point,
        remote_head: Some(tip.clone()),
        head_commit: tip,
        already_pushed: messages.lines().any(|line| line.trim() == trailer),
        has_unpublished_work: false,
        merge: None,
        is_up_to_date: false,
    })
}

/// Checks that the pull request is open and belongs to the run's branch.
async fn check_pull(run: &RunContext, access: &RepoAccess, number: u64) -> Result<(), RunFailure> {
    let github = run.connections.github_client(access)?;
    let log = |line: &str| run.reporting.log(line);
    let pull = retry(&log, RETRY_TIMEOUT, async || {
        github.pull(&run.dispatch.repo, number).await
    })
    .await;
    let pull = pull.map_err(RunFailure::other)?;
    if pull.state != PullRequestState::Open {
        return Err(RunFailure::other(format!(
            "pull request #{number} is no longer open"
        )));
    }
    let branch = run.dispatch.branch();
    if pull.head_branch != branch {
        return Err(RunFailure::other(format!(
            "pull request #{number} does not belong to branch {branch}"
        )));
    }
    let (base, ours) = (&pull.base_branch, &run.dispatch.base_branch);
    if run.dispatch.merges_base_branch() && base != ours {
        return Err(RunFailure::other(format!(
            "pull request #{number} goes to {base}, not to {ours}: conflicts are only resolved with the branch of the project"
        )));
    }
    Ok(())
}

/// Reads the configuration of the repository and applies it to the agent.
async fn read_config(run: &mut RunContext, base_commit: &str) -> Result<(), RunFailure> {
    let dispatch = &run.dispatch.config;
    let mut config = RepoConfig::read(&run.workspace.git, base_commit, dispatch.phase)
        .await
        .map_err(|error| match error {
            RepoConfigError::Git(error) => clone_failed(error),
            RepoConfigError::Unreadable(..) => RunFailure::new(FailureCode::SetupFailed, error),
        })?;
    let setup_failed = |cause: String| RunFailure::new(FailureCode::SetupFailed, cause);
    let of_repo = match &config.settings.agent {
        Some(name) => AgentCli::from_name(name)
            .map_err(|cause| setup_failed(format!(".agent-implement/config.yml: {cause}")))?,
        None => run.agent.cli,
    };
    let options = &dispatch.options;
    run.agent.cli = match &options.agent {
        Some(name) => AgentCli::from_name(name)
            .map_err(|cause| setup_failed(format!("the dispatch names an {cause}")))?,
        None => of_repo,
    };
    let has_other_agent = run.agent.cli != of_repo;
    run.agent.validate().map_err(setup_failed)?;
    let log = |line: &str| run.reporting.log(line);
    let installed = run.agent.install_if_missing(&run.workspace.folders, log);
    installed.await.map_err(setup_failed)?;
    run.agent.pin_program();
    if matches!(dispatch.provider, ModelProvider::Cloud { .. })
        && config.model.is_none()
        && options.model.is_none()
    {
        return Err(RunFailure::new(
            FailureCode::SetupFailed,
            format!(
                "{} sets no model, and the provider cloud has no default. Set model: in its front matter.",
                guidance_file(dispatch.phase)
            ),
        ));
    }
    for message in &config.unknown_settings {
        run.reporting.log(&format!("{message} (ignored)"));
    }
    if has_other_agent {
        // The repository names models of its own agent.
        config.clear_models();
    }
    run.repo_config = config;
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
