//! One run: what it was asked for, what it works with, what its steps have found so far.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::time::Instant;

use super::agent::{Agent, AgentRole};
use super::child::{ChildEnv, ChildError, ChildExit, ChildSpec, OutputStream, RunningChild};
use super::console::Console;
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
use domain::report::{FailureCode, StepRecord};
use domain::run_config::RunConfig;
use domain::secret::Secret;
use domain::sensitive_files::SensitiveFile;
use domain::time::Timestamp;
use vendors::http::Redactor;
use vendors::scm::{GitHub, ScmCredentials};

/// Everything a step needs.
pub struct RunContext {
    pub config: RunConfig,
    pub repo: Repo,
    pub api_url: String,
    pub base_branch: String,
    pub run_url: Option<String>,
    pub folders: Folders,
    pub git: Git,
    pub agent: Agent,
    pub console: Console,
    pub progress: ProgressReporter,
    pub status_reporter: StatusReporter,
    pub orchestrator: OrchestratorClient,
    /// What must not be seen, beside the repository's token of the moment.
    pub secrets: Vec<Secret>,
    pub child_env: ChildEnv,
    pub orphan_processes: OrphanProcesses,
    pub stop_signal: StopSignal,
    /// When the run ends itself, to be able to report.
    pub deadline: Instant,
    /// When its host may end it.
    pub host_deadline: Instant,
    /// Steps that have begun and not ended, outermost first.
    pub open_steps: Vec<StepRecord>,
    pub state: RunState,
}

/// What earlier steps leave for later ones.
#[derive(Debug, Default)]
pub struct RunState {
    /// The base branch's commit.
    pub base_commit: String,
    /// Where the branch and the base part: everything after it is ours.
    pub fork_point: String,
    /// The commit that the work continues from.
    pub head_commit: String,
    /// Where the branch stood on the host; none means that it did not exist.
    pub remote_head: Option<String>,
    /// This dispatch's commit, when an earlier attempt had pushed it already.
    pub already_pushed: bool,
    /// Whether the branch holds work of ours that no pull request was opened for.
    pub has_unpublished_work: bool,
    pub repo_config: RepoConfig,
    /// What each step answered, by its id.
    pub outputs: Map<String, Value>,
    pub staged: Option<StagedTree>,
    /// What the guard let pass and a person should look at.
    pub guard_warnings: Vec<SensitiveFile>,
    /// The plan that was made before, as the orchestrator wrapped it.
    pub plan: String,
    /// What a planning pass wants posted on the ticket.
    pub ticket_comments: Vec<String>,
    /// The agent's own words on what it did.
    pub summary: String,
    /// The last review of the run's own.
    pub last_review: Option<TreeReview>,
    /// What the review left open.
    pub unresolved: Vec<String>,
    pub iterations: u32,
    pub preflight_checks: Vec<PreflightCheck>,
    pub pull: Option<OpenedPullRequest>,
    /// Where the work of a shadow is to be seen; it has no pull request.
    pub shadow_url: Option<String>,
    /// Work that could not be pushed.
    pub patch: Option<String>,
    pub workflow_token_used: bool,
}

/// What a review said, and of which tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeReview {
    pub tree: String,
    pub findings: Vec<BlockingFinding>,
}

/// One of the project's own checks, as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightCheck {
    pub name: String,
    /// A word on how it ended.
    pub outcome: PreflightOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreflightOutcome {
    Passed,
    Failed,
    TimedOut,
    /// The program it needs is not there.
    Unavailable,
}

/// The pull request of this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPullRequest {
    pub number: u64,
    pub url: String,
}

/// What a step that did not fail says.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    Passed(Value),
    /// There was nothing to do, for this reason.
    Skipped(&'static str),
}

/// How it is told that a run's time is over.
pub const OUT_OF_TIME: &str = "the run's time was used up";

/// Why a step, and so the run, failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RunFailure {
    pub code: Option<FailureCode>,
    pub reason: String,
    /// When the model's provider will take requests again, if it refused them until then.
    pub retry_at: Option<Timestamp>,
}

impl RunFailure {
    pub fn new(code: FailureCode, reason: impl ToString) -> Self {
        Self {
            code: Some(code),
            reason: reason.to_string(),
            retry_at: None,
        }
    }

    /// The run's time is over, whatever it was doing.
    pub fn out_of_time() -> Self {
        Self::new(FailureCode::TimedOut, OUT_OF_TIME)
    }

    /// Somebody has stopped the run.
    pub fn stopped() -> Self {
        Self::new(FailureCode::Cancelled, "the run was stopped from outside")
    }

    /// A failure that programs have no word for.
    pub fn other(reason: impl ToString) -> Self {
        Self {
            code: None,
            reason: reason.to_string(),
            retry_at: None,
        }
    }
}

/// How a program of the repository ended, and the last line of its output.
#[derive(Debug)]
pub struct ProgramResult {
    pub exit: ChildExit,
    pub last_line: String,
}

/// The run's own folders, gone when it ends.
pub struct Folders {
    root: TempDir,
}

impl Folders {
    pub fn new(parent: &Path) -> std::io::Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("agent-implement-")
            .tempdir_in(parent)?;
        Ok(Self { root })
    }

    pub fn work_tree(&self) -> PathBuf {
        self.root.path().join("tree")
    }

    pub fn git_dir(&self) -> PathBuf {
        self.root.path().join("git")
    }

    /// A folder of this name, made on demand and tried: a program that cannot write its temporary
    /// files may wait for ever.
    pub fn make(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.path().join(name);
        std::fs::create_dir_all(&path)?;
        tempfile::tempfile_in(&path)?;
        Ok(path)
    }

    /// The same, emptied first.
    pub fn make_empty(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.path().join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        self.make(name)
    }
}

impl RunContext {
    /// Now, as reports write it.
    pub fn now() -> Timestamp {
        let age = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    }

    /// Cycles of changing and reviewing that this run may make.
    pub fn max_iterations(&self) -> u32 {
        let default = || limits::default_max_iterations(&self.config.provider);
        self.config.max_iterations.unwrap_or_else(default)
    }

    /// The environment of scripts of the repository: no credential at all.
    pub fn script_env(&self) -> Result<ChildEnv, RunFailure> {
        let folder = |name| self.folders.make(name).map_err(RunFailure::other);
        Ok(self
            .child_env
            .clone()
            .with("CI", "true")
            .with("HOME", folder("home")?)
            .with("TMPDIR", folder("tmp")?))
    }

    /// Runs a program of the repository in the work tree, its lines going to the log. Answers
    /// whether it ended well; what went wrong is in the console's tail.
    pub async fn run_script(
        &self,
        command: &[String],
        deadline: Instant,
    ) -> Result<ChildExit, ChildError> {
        let ended = self.run_program(command, Vec::new(), deadline).await?;
        Ok(ended.exit)
    }

    /// The same with something to read on its standard input.
    pub async fn run_program(
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
        let whole = async {
            while let Some(line) = running.next_line().await {
                self.console.log_child(&line.text);
                if line.stream == OutputStream::Stdout {
                    last_line = line.text;
                }
            }
        };
        let in_time = tokio::time::timeout_at(deadline, whole).await;
        let exit = running.wait_or_kill(std::time::Duration::ZERO).await;
        match (in_time, exit) {
            (Ok(()), Some(exit)) => Ok(ProgramResult { exit, last_line }),
            _ => Err(ChildError::TimedOut),
        }
    }

    /// The model of a pass: what stands with the guidance counts before the settings, and what was
    /// chosen for reviews before what was chosen for everything. None leaves it to the agent.
    pub fn model(&self, role: AgentRole) -> Option<String> {
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

    /// Ends whatever the agent or a script left running. From here on nothing changes the work
    /// tree or the run's own folders behind the run's back.
    pub async fn kill_orphan_processes(&self) -> Result<(), RunFailure> {
        orphan_processes::kill_all(self.orphan_processes)
            .await
            .map_err(|left| {
                RunFailure::other(format!(
                    "{left} process(es) that the work left behind could not be ended"
                ))
            })
    }

    /// The end of something that may take so long, and no longer than the run.
    pub fn deadline_within(&self, timeout: Duration) -> Instant {
        self.deadline.min(Instant::now() + timeout)
    }

    /// Takes the work tree into the index.
    pub async fn stage_work_tree(&self) -> Result<StagedTree, RunFailure> {
        self.kill_orphan_processes().await?;
        self.git.stage_work_tree().await.map_err(RunFailure::other)
    }

    /// Access to the repository for one phase. Nothing that the agent or a script started may be
    /// alive while it is held.
    pub async fn fetch_repo_access(&mut self) -> Result<RepoAccess, RunFailure> {
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

    /// The host's interface, for as long as the access is held.
    pub fn github_client(&self, access: &RepoAccess) -> Result<GitHub, RunFailure> {
        let token = access
            .token
            .clone()
            .ok_or_else(|| RunFailure::other("the run was given no access to its repository"))?;
        let known = self.secrets.iter().chain([&token]).map(Secret::expose);
        // Made anew, it would believe certificates that the agent has replaced.
        let client = self
            .orchestrator
            .client
            .for_vendor("github", Redactor::new(known));
        Ok(GitHub::new(
            client,
            &self.api_url,
            ScmCredentials::Token(token),
        ))
    }
}
