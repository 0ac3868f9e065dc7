//! `agent-implement init`: sets up a service and its first project.
//!
//! Each step checks what it got at the vendor and stores it at once. A command that is stopped and started again
//! continues with what is stored.

mod candidate;
mod connections;
mod github;
mod installed_service;
mod jira_fields;
mod next_steps;
mod project;
mod questions;
mod setup_files;
mod temporary_service;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use domain::github_app::creation_path;
use domain::ids::Repo;
use domain::issue::System;
use domain::job::RunnerKind;
use engine::config::{GivenSettings, Options};
use engine::doctor::token_permissions;

use candidate::Candidate;
use questions::{Choice, Questions, TerminalState};
use setup_files::SetupFiles;
use temporary_service::TemporaryService;

/// Exit code after SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

const HELP: &str = "\
Asks where runs execute and where tickets are, takes each credential and checks it, writes the settings and \
credential files, maps the first project, and prepares what its runs need: the container image, or the pull request \
with the workflows. What a flag or a variable sets is not asked, and is stored if the setup uses it. With --yes nothing \
is asked.

Safe to stop and to repeat: each step stores what it has checked, and another start continues with it.

Exit codes: 0 the setup is complete; 1 a step failed, and the message names what is missing; 2 the command line is \
wrong.";

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct InitArgs {
    /// Where runs execute.
    #[arg(long, value_enum)]
    runner: Option<Runner>,
    /// Where tickets are.
    #[arg(long, value_enum)]
    system: Option<TicketSystem>,
    /// Repository that tickets change, as OWNER/NAME.
    #[arg(long, value_name = "OWNER/NAME", value_parser = parse_repo)]
    repo: Option<Repo>,
    /// Branch that pull requests are opened against; default: the default branch of the repository.
    #[arg(long)]
    branch: Option<String>,
    /// Key of the Linear team or the Jira project.
    #[arg(long, value_name = "KEY")]
    team: Option<String>,
    /// Key of the project in the service; default: the team's key, or the name of the repository.
    #[arg(long, value_name = "KEY")]
    project: Option<String>,
    /// Plan each ticket before it is implemented.
    #[arg(long)]
    planning: bool,
    /// Image that the image of local containers is built on: Debian or Ubuntu with Node.js and npm.
    #[arg(long, value_name = "IMAGE")]
    image_from: Option<String>,
    /// Create a GitHub App instead of using a token, unless GitHub is connected: of ORGANIZATION, or of your own account.
    /// The command prints an address for your browser and waits until the App is installed, also with --yes.
    #[arg(
        long,
        value_name = "ORGANIZATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = parse_organization
    )]
    create_github_app: Option<String>,
    /// Ask nothing: take answers from flags, variables and what is stored, and defaults otherwise.
    #[arg(long)]
    yes: bool,
    /// File for the settings, in the format of systemd's EnvironmentFile=; secrets go to the folder credentials beside
    /// it. Default: the file of the installed package, else agent-implement/agent-implement.env.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[command(flatten)]
    given: GivenSettings,
    #[command(flatten)]
    options: Options,
}

impl InitArgs {
    /// Environment file of an earlier start, if there is one.
    pub(super) fn existing_env_file(&self) -> Option<&Path> {
        let named = self.env_file.as_deref();
        named
            .or_else(SetupFiles::existing)
            .filter(|file| file.exists())
    }
}

/// Where runs execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Runner {
    /// Containers on this machine.
    Local,
    /// Workflows of GitHub Actions.
    Ci,
    /// Fly Machines.
    Vm,
    /// Jobs of a Kubernetes cluster.
    Kubernetes,
}

impl Runner {
    /// Name of the runner mode in the API.
    fn mode(self) -> &'static str {
        match self {
            Runner::Local => "local",
            Runner::Ci => "ci",
            Runner::Vm => "vm",
            Runner::Kubernetes => "kubernetes",
        }
    }

    /// Kind of the runner of its runs.
    fn kind(self) -> RunnerKind {
        match self {
            Runner::Local => RunnerKind::Local,
            Runner::Ci => RunnerKind::Ci,
            Runner::Vm => RunnerKind::Vm,
            Runner::Kubernetes => RunnerKind::Kubernetes,
        }
    }
}

/// Where tickets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TicketSystem {
    /// Issues of the repository.
    Github,
    /// Linear.
    Linear,
    /// Jira Cloud.
    Jira,
}

impl From<TicketSystem> for System {
    fn from(system: TicketSystem) -> Self {
        match system {
            TicketSystem::Github => System::GitHub,
            TicketSystem::Linear => System::Linear,
            TicketSystem::Jira => System::Jira,
        }
    }
}

fn parse_repo(text: &str) -> Result<Repo, String> {
    Repo::parse(text.trim()).ok_or_else(|| "expected OWNER/NAME".to_owned())
}

fn parse_organization(text: &str) -> Result<String, String> {
    creation_path(Some(text)).map(|_| text.trim().to_owned())
}

/// Sets up a service and its first project.
pub(super) async fn init(arguments: InitArgs) -> anyhow::Result<ExitCode> {
    restore_terminal_on_interrupt();
    let questions = Questions::new(arguments.yes);
    let files = SetupFiles::locate(arguments.env_file.as_deref())?;
    files.create()?;
    println!("Settings: {}", files.env_file().display());
    let runner = match arguments.runner {
        Some(runner) => runner,
        None => questions.choose("Where do runs execute?", "--runner", runners())?,
    };
    let system = match arguments.system {
        Some(system) => system,
        None => questions.choose("Where are the tickets?", "--system", systems())?,
    };
    let mut candidate = Candidate::new(arguments.options.clone(), arguments.given.clone(), files)?;
    connections::connect_runner(&mut candidate, &questions, runner).await?;
    if runner == Runner::Local {
        installed_service::permit_containers(&candidate).await?;
    }
    github::connect(&mut candidate, &questions, &arguments, runner).await?;
    let needed = token_permissions(runner.kind(), system.into());
    let target = project::choose_repository(&candidate, &questions, &arguments, &needed).await?;
    let source = match system {
        TicketSystem::Github => project::issues_of(&target),
        TicketSystem::Linear => {
            connections::connect_linear(&mut candidate, &questions).await?;
            project::choose_team(&candidate, &questions, &arguments).await?
        }
        TicketSystem::Jira => {
            connections::connect_jira(&mut candidate, &questions).await?;
            let source =
                project::choose_jira_project(&candidate, &questions, &arguments, &target).await?;
            jira_fields::ensure(&candidate, &questions, &target.repo).await?;
            source
        }
    };
    connections::store_network(&mut candidate)?;
    connections::connect_model(&mut candidate, &questions, runner)?;
    connections::store_rest(&mut candidate, runner, system)?;
    candidate.ensure_access_code()?;
    temporary_service::restart_if_outdated(&candidate, &questions).await?;
    let service = TemporaryService::start(candidate.config()?).await?;
    let set_up = project::set_up(&service, &questions, &arguments, runner, &target, &source).await;
    service.stop().await;
    let outcome = set_up?;
    if runner == Runner::Local {
        connections::ensure_image(&candidate, arguments.image_from.as_deref()).await?;
    }
    next_steps::print(&candidate, &outcome).await
}

fn runners() -> Vec<Choice<Runner>> {
    vec![
        Choice::new(
            Runner::Local,
            "Containers on this machine (Docker or Podman)",
        ),
        Choice::new(Runner::Ci, "GitHub Actions of the repository"),
        Choice::new(Runner::Vm, "Fly Machines"),
        Choice::new(Runner::Kubernetes, "Jobs of a Kubernetes cluster"),
    ]
}

fn systems() -> Vec<Choice<TicketSystem>> {
    vec![
        Choice::new(TicketSystem::Github, "Issues of the GitHub repository"),
        Choice::new(TicketSystem::Linear, "Linear"),
        Choice::new(TicketSystem::Jira, "Jira Cloud"),
    ]
}

/// Restores the terminal if the command is interrupted while it does not show what is typed.
fn restore_terminal_on_interrupt() {
    let state = TerminalState::read();
    tasks::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            state.restore();
            eprintln!(
                "\nInterrupted. What was checked is stored: run the command again to continue."
            );
            std::process::exit(INTERRUPTED);
        }
    });
}
