//! Preparation of a run: folders, git, agent and pipeline.

use std::path::Path;
use std::time::Duration;

use serde_json::Map;
use tokio::time::Instant;

use crate::agent::{self, Agent, AgentCli};
use crate::clock;
use crate::context::{
    Change, Connections, Dispatch, Publication, Reporting, Review, RunContext, TicketMaterial,
    TimeLimits, Workspace,
};
use crate::environment::Environment;
use crate::failure::RunFailure;
use crate::folders::Folders;
use crate::git::program::GitProgram;
use crate::git::{Git, Transport};
use crate::orchestrator_client::OrchestratorClient;
use crate::programs::trust::PathTrust;
use crate::repo_config::RepoConfig;
use crate::stop_signal::StopSignal;
use domain::limits;
use domain::mapping::ModelProvider;
use domain::report::FailureCode;
use domain::run_config::RunConfig;
use domain::secret::Secret;
use domain::time::Timestamp;
use pipeline::{PipelineDefinition, pipeline_for_phase};
use vendors::http::{Client, RelayClient};

/// Maximum time before the CI job timeout at which a run stops itself to report its result. The CI
/// timer starts earlier, before the image is fetched.
const REPORT_RESERVE: Duration = Duration::from_secs(3 * 60);

/// Least time of a run that started late, or whose machine has a clock that is ahead.
const MIN_TIME: Duration = Duration::from_secs(5 * 60);

/// Services that a run uses to communicate.
pub(crate) struct RunServices {
    /// HTTP client of the orchestrator.
    pub client: Client,
    /// HTTP client for other hosts.
    pub web_client: Client,
    /// Log, progress and session events.
    pub reporting: Reporting,
    /// Values to redact.
    pub secrets: Vec<Secret>,
    /// Cancellation of the run.
    pub stop_signal: StopSignal,
}

/// Prepares the run context before any file of the repository is fetched.
///
/// # Errors
/// If the environment or the image is not usable.
pub(crate) fn prepare(
    environment: Environment,
    config: RunConfig,
    services: RunServices,
) -> Result<(RunContext, PipelineDefinition), RunFailure> {
    let custom_root = custom_root(&environment)?;
    let definition = pipeline::load_pipeline(pipeline_for_phase(config.phase), custom_root)
        .map_err(RunFailure::other)?;
    let folders = Folders::new(&environment.temp_root)
        .map_err(|error| RunFailure::other(format!("cannot create the work folder: {error}")))?;
    let git = git_program(&environment)?;
    // Certificates are read now, before repository code runs.
    let relay_client = match environment.transport {
        Transport::Web => Some(RelayClient::new(&environment.proxies).map_err(RunFailure::other)?),
        Transport::LocalFiles => None,
    };
    let agent = configured_agent(&environment, &config.provider)?;
    let workspace = Workspace {
        git: Git {
            relay_client,
            env: git.environment(),
            program: Some(git),
            git_dir: folders.git_dir(),
            work_tree: folders.work_tree(),
            url: environment.git_url(),
            transport: environment.transport,
        },
        folders,
        mirror: environment.mirror,
        home_template: environment.home_template,
        child_env: environment.child_env,
        orphan_processes: environment.orphan_processes,
    };
    let orchestrator = OrchestratorClient {
        client: services.client,
        callback: config.callback.clone(),
        owner: environment.repo.owner.clone(),
        nonce: environment.nonce,
        workflow_token: environment.workflow_token,
    };
    let run = RunContext {
        limits: time_limits(&config, environment.ends_at, services.stop_signal),
        reporting: services.reporting,
        connections: Connections::new(
            orchestrator,
            services.web_client,
            environment.api_url,
            services.secrets,
        ),
        workspace,
        agent,
        dispatch: Dispatch {
            config,
            repo: environment.repo,
            base_branch: environment.base_branch,
            run_url: environment.run_url,
        },
        repo_config: RepoConfig::default(),
        outputs: Map::new(),
        ticket: TicketMaterial::default(),
        checkout: None,
        change: Change::default(),
        review: Review::default(),
        publication: Publication::default(),
    };
    Ok((run, definition))
}

/// Returns the time limits. The budget counts from now, and ends at `ends_at` at the latest.
fn time_limits(
    config: &RunConfig,
    ends_at: Option<Timestamp>,
    stop_signal: StopSignal,
) -> TimeLimits {
    let minutes = config
        .job_timeout_minutes
        .unwrap_or(limits::DEFAULT_JOB_MINUTES);
    let budget = Duration::from_secs(u64::from(minutes) * 60);
    let host_deadline = Instant::now() + time_left(budget, ends_at, clock::now());
    TimeLimits {
        stop_signal,
        deadline: host_deadline - REPORT_RESERVE.min(budget / 10),
        host_deadline,
    }
}

/// Returns the time until the host may stop the run.
fn time_left(budget: Duration, ends_at: Option<Timestamp>, now: Timestamp) -> Duration {
    // No run starts after its end. If it seems so, the clock of this machine is ahead.
    match ends_at.filter(|end| *end > now) {
        Some(end) => end.since(now).max(MIN_TIME).min(budget),
        None => budget,
    }
}

/// Returns the folder of custom pipelines and steps. A missing folder is an error: ignoring it would
/// silently drop custom steps, guards included.
fn custom_root(environment: &Environment) -> Result<Option<&Path>, RunFailure> {
    match environment.custom_root.as_deref() {
        Some(root) if !root.is_dir() => {
            let reason = format!(
                "AGENT_IMPLEMENT_CUSTOM_ROOT is {}, which is not a folder in this image. \
                 Correct it, or unset it to run the built-in pipelines.",
                root.display()
            );
            Err(RunFailure::new(FailureCode::SetupFailed, reason))
        }
        root => Ok(root),
    }
}

/// Finds git before repository code runs, which could otherwise replace the program.
fn git_program(environment: &Environment) -> Result<GitProgram, RunFailure> {
    let folders = [
        Some(environment.temp_root.clone()),
        environment.home.clone(),
    ];
    let trust = PathTrust::for_current_user(folders.into_iter().flatten());
    GitProgram::find(&environment.child_env, &trust)
        .map_err(|error| RunFailure::new(FailureCode::SetupFailed, error))
}

/// Creates the agent configured by the environment. Repository settings may replace it later.
fn configured_agent(
    environment: &Environment,
    provider: &ModelProvider,
) -> Result<Agent, RunFailure> {
    let (keys, cloud_region) = match provider {
        ModelProvider::Direct => (&environment.direct_keys, None),
        ModelProvider::Cloud { region } => (&environment.cloud_keys, Some(region.clone())),
    };
    let cli = match environment.agent.as_deref() {
        Some("command") => AgentCli::Command,
        Some(name) => AgentCli::from_name(name).map_err(|unknown| {
            let reason = format!("AGENT_IMPLEMENT_AGENT: {unknown}, command");
            RunFailure::new(FailureCode::SetupFailed, reason)
        })?,
        None if environment.agent_command.is_empty() => AgentCli::Claude,
        None => AgentCli::Command,
    };
    Ok(Agent {
        cli,
        command: environment.agent_command.clone(),
        env: environment.child_env.clone(),
        keys: keys.clone(),
        program: None,
        may_install: environment.may_install_agent,
        installation: None,
        cloud_region,
        model: None,
        retries: agent::RETRIES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_starts_late_has_the_rest_of_its_budget() {
        const MINUTE: Duration = Duration::from_secs(60);
        let now = Timestamp::from_millis(1_800_000_000_000);
        let budget = MINUTE * 60;
        for (ends_at, expected) in [
            (None, 60),
            (Some(now + MINUTE * 60), 60),
            (Some(now + MINUTE * 48), 48),
            (Some(now + MINUTE * 2), 5),
            (Some(now + MINUTE * 90), 60),
            (Some(now), 60),
            (Some(now - MINUTE * 30), 60),
        ] {
            let left = time_left(budget, ends_at, now);
            assert_eq!(left, MINUTE * expected, "{ends_at:?}");
        }
        let left = time_left(MINUTE, Some(now + MINUTE / 2), now);
        assert_eq!(left, MINUTE, "never more than the budget");
    }
}
