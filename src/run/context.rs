//! Run context: configuration, services and state of one run.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::agent::{Agent, AgentRole};
use super::child::running::{OutputStream, RunningChild};
use super::child::{ChildEnv, ChildError, ChildExit, ChildSpec};
use super::console::Console;
use super::failure::RunFailure;
use super::folders::Folders;
use super::git::Git;
use super::git::staging::StagedTree;
use super::orchestrator_client::{OrchestratorClient, RepoAccess, TokenSource};
use super::orphan_processes::{self, OrphanProcesses};
use super::progress::ProgressReporter;
use super::repo_config::RepoConfig;
use super::status_reporter::StatusReporter;
use super::steps::BlockingFinding;
use super::stop_signal::StopSignal;
use super::text;
use domain::ids::Repo;
use domain::limits;
use domain::report::StepRecord;
use domain::run_config::RunConfig;
use domain::secret::Secret;
use domain::sensitive_files::SensitiveFile;
use vendors::http::Redactor;
use vendors::scm::{GitHub, ScmCredentials};

/// Configuration, services and state that steps use.
pub(crate) struct RunContext {
    /// Configuration of the dispatch.
    pub config: RunConfig,
    /// Repository of the run.
    pub repo: Repo,
    /// Base URL of the GitHub API.
    pub api_url: String,
    /// Branch that the pull request is merged into.
    pub base_branch: String,
    /// URL of the CI run, if any.
    pub run_url: Option<String>,
    /// Folders of the run.
    pub folders: Folders,
    /// Git repository of the run.
    pub git: Git,
    /// Agent of the run.
    pub agent: Agent,
    /// Log of the run.
    pub console: Console,
    /// Progress reporter.
    pub progress: ProgressReporter,
    /// Reporter of session events.
    pub status_reporter: StatusReporter,
    /// Client of the orchestrator.
    pub orchestrator: OrchestratorClient,
    /// Values to redact, except the current repository token.
    pub secrets: Vec<Secret>,
    /// Variables passed to every child.
    pub child_env: ChildEnv,
    /// Handling of orphan processes.
    pub orphan_processes: OrphanProcesses,
    /// Cancellation of the run.
    pub stop_signal: StopSignal,
    /// Time at which the run stops itself, early enough to report.
    pub deadline: Instant,
    /// Time at which the host may stop the run.
    pub host_deadline: Instant,
    /// Steps that started and did not end, outermost first.
    pub open_steps: Vec<StepRecord>,
    /// Results of earlier steps.
    pub state: RunState,
}

/// Results that earlier steps leave for later ones.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// Commit of the base branch.
    pub base_commit: String,
    /// Merge base of branch and base; all later commits are ours.
    pub fork_point: String,
    /// Commit that the work starts from.
    pub head_commit: String,
    /// Head of the branch on the remote; `None` if the branch does not exist.
    pub remote_head: Option<String>,
    /// Whether an earlier attempt pushed this dispatch's commit.
    pub already_pushed: bool,
    /// Whether the branch holds our commits without a pull request.
    pub has_unpublished_work: bool,
    /// Configuration of the repository.
    pub repo_config: RepoConfig,
    /// Outputs by step id.
    pub outputs: Map<String, Value>,
    /// Work tree after the feedback loop.
    pub staged: Option<StagedTree>,
    /// Guard findings that do not block and that a person should check.
    pub guard_warnings: Vec<SensitiveFile>,
    /// Plan made before, already fenced by the orchestrator.
    pub plan: String,
    /// Comments of a planning run for the ticket.
    pub ticket_comments: Vec<String>,
    /// Summary written by the agent.
    pub summary: String,
    /// Last review by the run itself.
    pub last_review: Option<TreeReview>,
    /// Findings that are still open.
    pub unresolved: Vec<String>,
    /// Number of implement passes in the feedback loop.
    pub iterations: u32,
    /// Results of the project's own checks.
    pub preflight_checks: Vec<PreflightCheck>,
    /// Pull request, once it is open.
    pub pull: Option<OpenedPullRequest>,
    /// URL of a shadow run's branch, which has no pull request.
    pub shadow_url: Option<String>,
    /// Patch of work that could not be pushed.
    pub patch: Option<String>,
    /// Whether the workflow token was used, because the orchestrator could not be reached.
    pub workflow_token_used: bool,
}

/// Review of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeReview {
    /// Object id of the reviewed tree.
    pub tree: String,
    /// Blocking findings.
    pub findings: Vec<BlockingFinding>,
}

/// Result of one of the project's own checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreflightCheck {
    /// Command line.
    pub name: String,
    /// Outcome.
    pub outcome: PreflightOutcome,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreflightOutcome {
    /// Exit code 0.
    Passed,
    /// Any other exit code.
    Failed,
    /// Not finished within its time limit.
    TimedOut,
    /// The program is not installed.
    Unavailable,
}

/// Pull request of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedPullRequest {
    /// Number.
    pub number: u64,
    /// Web URL.
    pub url: String,
}

/// Outcome of a step that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepOutcome {
    /// Completed, with its outputs.
    Passed(Value),
    /// Nothing to do, with the reason.
    Skipped(&'static str),
}

/// Exit code and last output line of a program.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// Exit code.
    pub exit: ChildExit,
    /// Last line of the standard output.
    pub last_line: String,
}

impl RunContext {
    /// Returns the maximum number of implement/review iterations.
    pub(crate) fn max_iterations(&self) -> u32 {
        let default = || limits::default_max_iterations(&self.config.provider);
        self.config.max_iterations.unwrap_or_else(default)
    }

    /// Returns the environment of repository scripts. It holds no credential.
    pub(crate) fn script_env(&self) -> Result<ChildEnv, RunFailure> {
        let folder = |name| self.folders.make(name).map_err(RunFailure::other);
        Ok(self
            .child_env
            .clone()
            .with("CI", "true")
            .with("HOME", folder("home")?)
            .with("TMPDIR", folder("tmp")?))
    }

    /// Runs a program of the repository in the work tree and logs its output. The last lines are
    /// kept in the console's log tail.
    pub(crate) async fn run_script(
        &self,
        command: &[String],
        deadline: Instant,
    ) -> Result<ChildExit, ChildError> {
        let result = self.run_program(command, Vec::new(), deadline).await?;
        Ok(result.exit)
    }

    /// Runs a program like [`RunContext::run_script`], with standard input.
    pub(crate) async fn run_program(
        &self,
        command: &[String],
        input: Vec<u8>,
        deadline: Instant,
    ) -> Result<ProgramResult, ChildError> {
        let env = self
            .script_env()
            .map_err(|failure| ChildError::Output(std::io::Error::other(failure.reason)))?;
        let (program, args) = command.split_first().ok_or(ChildError::TimedOut)?;
        let spec = ChildSpec {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            dir: self.folders.work_tree(),
            env,
            input,
        };
        self.console.clear_tail();
        let mut running = RunningChild::start(&spec, text::MAX_LOG_LINE)?;
        let mut last_line = String::new();
        let read_output = async {
            while let Some(line) = running.next_line().await {
                self.console.log_child(&line.text);
                if line.stream == OutputStream::Stdout {
                    last_line = line.text;
                }
            }
        };
        let in_time = tokio::time::timeout_at(deadline, read_output).await;
        let exit = running.wait_or_kill(std::time::Duration::ZERO).await;
        match (in_time, exit) {
            (Ok(()), Some(exit)) => Ok(ProgramResult { exit, last_line }),
            _ => Err(ChildError::TimedOut),
        }
    }

    /// Returns the model of a pass; `None` leaves the choice to the agent. The guidance file takes
    /// precedence over the settings, and a review model over the general model.
    pub(crate) fn model(&self, role: AgentRole) -> Option<String> {
        let config = &self.state.repo_config;
        let models = &config.settings.models;
        let choices: &[&Option<String>] = match role {
            AgentRole::Implement => &[&config.model, &models.implement],
            AgentRole::Review => &[
                &config.gap_analysis_model,
                &models.review,
                &config.model,
                &models.implement,
            ],
            AgentRole::Plan { .. } => &[&config.model, &models.plan],
        };
        choices.iter().find_map(|choice| (*choice).clone())
    }

    /// Kills every process that the agent or a script left running, so that nothing changes the
    /// work tree or the run's folders concurrently.
    ///
    /// # Errors
    /// If processes survive.
    pub(crate) async fn kill_orphan_processes(&self) -> Result<(), RunFailure> {
        orphan_processes::kill_all(self.orphan_processes)
            .await
            .map_err(|count| {
                RunFailure::other(format!(
                    "cannot kill {count} process(es) left behind by the agent or a script"
                ))
            })
    }

    /// Returns the end of a timeout, limited to the run's deadline.
    pub(crate) fn deadline_within(&self, timeout: Duration) -> Instant {
        self.deadline.min(Instant::now() + timeout)
    }

    /// Kills orphan processes and stages the work tree.
    pub(crate) async fn stage_work_tree(&self) -> Result<StagedTree, RunFailure> {
        self.kill_orphan_processes().await?;
        self.git.stage_work_tree().await.map_err(RunFailure::other)
    }

    /// Fetches repository access for one step. Kills orphan processes first: no process of the
    /// agent or a script may run while a token is held.
    pub(crate) async fn fetch_repo_access(&mut self) -> Result<RepoAccess, RunFailure> {
        self.kill_orphan_processes().await?;
        self.git.verify_program().map_err(RunFailure::other)?;
        let access = self
            .orchestrator
            .fetch_repo_access()
            .await
            .map_err(RunFailure::other)?;
        self.state.workflow_token_used |= access.source == TokenSource::Workflow;
        Ok(access)
    }

    /// Creates a GitHub client with the access.
    pub(crate) fn github_client(&self, access: &RepoAccess) -> Result<GitHub, RunFailure> {
        let token = access
            .token
            .clone()
            .ok_or_else(|| RunFailure::other("the run has no access to its repository"))?;
        let secrets = self.secrets.iter().chain([&token]).map(Secret::expose);
        // A new client would read certificates again, which the agent may have replaced.
        let client = self
            .orchestrator
            .client
            .for_vendor("github", Redactor::new(secrets));
        Ok(GitHub::new(
            client,
            &self.api_url,
            ScmCredentials::Token(token),
        ))
    }
}
