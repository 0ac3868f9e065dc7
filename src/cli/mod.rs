//! Subcommands, one module each.

/// Prints to the standard output. Unlike the macro of the standard library, it does not panic if the reader has closed
/// the pipe: the command continues without it.
macro_rules! print {
    ($($text:tt)*) => {
        $crate::cli::terminal::print(format_args!($($text)*))
    };
}

/// Prints a line like [`print!`].
macro_rules! println {
    () => {
        print!("\n")
    };
    ($($text:tt)*) => {
        print!("{}\n", format_args!($($text)*))
    };
}

mod audit;
mod backup;
mod checkout;
mod completions;
mod control;
mod conversation;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod guard;
mod image;
mod init;
mod local_service;
mod logging;
mod man;
mod mask;
mod openapi;
mod projects_file;
mod report;
mod restore;
mod run;
mod serve;
mod service_manager;
mod stop_signal;
mod take_over;
mod terminal;
mod why;

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches};
use rustix::fs::Mode;
use rustix::process::{Signal, umask};
use tokio::signal::unix::{SignalKind, signal};

use engine::app::AppError;
use engine::config::{ConfigError, EnvFile};
use engine::standby::StartError;
#[cfg(feature = "demo")]
use fake_vendors::scripted_agent;
use store::StoreError;

/// Exit code for a configuration error: a restart does not help (`EX_CONFIG` of `sysexits.h`).
const MISCONFIGURED: u8 = 78;
/// Exit code for a disk failure: a restart may succeed (`EX_IOERR`).
const DISK_FAILED: u8 = 74;
/// Exit code if another machine does the work, or its state must be restored first (`EX_TEMPFAIL`). The unit of a standby
/// restores before each start.
const RESTORE_NEEDED: u8 = 75;
/// Exit code for a damaged or foreign store: an operator must act (`EX_DATAERR`).
const DAMAGED: u8 = 65;
/// Environment file of an installed service.
const DEFAULT_ENV_FILE: &str = "/etc/agent-implement/agent-implement.env";
/// Name of the program in help and messages.
const PROGRAM_NAME: &str = "agent-implement";

/// Turns labelled tickets into reviewed pull requests.
#[derive(Debug, clap::Parser)]
#[command(name = PROGRAM_NAME, version, about, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the service: poll tickets, dispatch and track runs, serve the panel, the admin API and callbacks.
    Serve(Box<serve::ServeArgs>),
    /// Run a complete demo on this machine: fake vendors, the service and real runs. Needs git, but no
    /// account and no configuration.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Set up a service and its first project: credentials, settings, image or workflows.
    Init(Box<init::InitArgs>),
    /// Check the setup and print how to fix each problem.
    Doctor(Box<doctor::DoctorArgs>),
    /// Show why an issue waits or failed, its runs and pull requests, and what to do next.
    Why(why::WhyArgs),
    /// Cancel an active run, and give up its work or dispatch it again.
    Cancel(control::CancelArgs),
    /// Retry the work of an ended run.
    Retry(control::RetryArgs),
    /// Answer the question that a run asked on its ticket.
    Answer(conversation::AnswerArgs),
    /// Approve the plan of an issue, so that its implementation starts.
    Approve(conversation::PlanArgs),
    /// Reject the plan of an issue. Nothing more happens until its trigger is set again.
    Reject(conversation::PlanArgs),
    /// Plan an issue again, with an instruction.
    Replan(conversation::ReplanArgs),
    /// Continue an issue by hand: print the commands for it, and pause automatic work on it.
    Take(take_over::TakeArgs),
    /// Give an issue back that a person has taken over.
    GiveBack(take_over::GiveBackArgs),
    /// Print the numbers of a month by project: runs, pull requests, lead times, cost and failures.
    Report(report::ReportArgs),
    /// Print projects, settings and the runner mode as a file that apply reads.
    Export(projects_file::ExportArgs),
    /// Make projects, settings and the runner mode match a file.
    Apply(projects_file::ApplyArgs),
    /// Copy the store to a file, while the service runs or is stopped.
    Backup(backup::BackupArgs),
    /// Replace the store of a stopped service with a backup.
    Restore(restore::RestoreArgs),
    /// Execute one run: clone, implement, review, push, open the pull request, report. Started by workflows,
    /// machines and containers, not manually.
    Run(run::RunArgs),
    /// Mask the run's tokens in the log of a workflow. The first step of every workflow.
    Mask,
    /// Scan files for secrets with the rules that a run applies before it pushes.
    Guard(guard::GuardArgs),
    /// Build the image of runs in local containers.
    Image(image::ImageArgs),
    /// Verify the audit log.
    Audit(audit::AuditArgs),
    /// Print the OpenAPI 3.1 description of the HTTP API as JSON.
    Openapi,
    /// Print a shell completion script.
    Completions(completions::CompletionsArgs),
    /// Print the manual page as roff: `agent-implement man | man -l -`.
    Man(man::ManArgs),
    /// Scripted stand-in for an agent CLI, for the demo and the tests.
    #[cfg(feature = "demo")]
    #[command(hide = true, disable_help_flag = true)]
    ScriptedAgent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

impl CommandLine {
    /// Reads the command line and the environment, including the file named by `--env-file`. Exits the
    /// process with a message if they are invalid.
    pub(crate) fn read() -> Self {
        let matches = Self::command().get_matches();
        let line = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let read = match line.command.env_file() {
            None => return line,
            Some(Some(file)) => Self::in_environment(file, false),
            Some(None) if is_data_dir_set(&matches) => return line,
            Some(None) => match default_env_file() {
                Some(file) => Self::in_environment(file, true),
                None => return line,
            },
        };
        read.unwrap_or_else(|error| error.exit())
    }

    /// Reads the same command line with the variables of a file. Flags override them. A file named by the
    /// user replaces the process environment; the process environment overrides the default file.
    fn in_environment(file: &Path, is_default: bool) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let variables = EnvFile::read(file)
            .map_err(|cause| command.error(clap::error::ErrorKind::ValueValidation, cause))?;
        let with_variable = |arg: Arg| {
            if arg.get_id() == "env_file" {
                return arg.default_value(file.as_os_str().to_owned());
            }
            let value = arg.get_env().and_then(|name| variables.get(name.to_str()?));
            match value.map(str::to_owned) {
                Some(value) if is_default => arg.default_value(value),
                Some(value) => arg.env(None::<&'static str>).default_value(value),
                None => arg,
            }
        };
        let mut command = mut_args_recursively(command, &with_variable);
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

impl Command {
    /// Environment file named by the user, if any. `None` for a command without `--env-file`.
    fn env_file(&self) -> Option<Option<&Path>> {
        let named = match self {
            // The service manager passes the variables of an installed service. A person prints them without it.
            Command::Serve(arguments)
                if arguments.env_file.is_none() && !arguments.print_config =>
            {
                return None;
            }
            Command::Serve(arguments) => &arguments.env_file,
            Command::Init(arguments) => return arguments.existing_env_file().map(Some),
            Command::Doctor(arguments) => &arguments.env_file,
            Command::Why(arguments) => &arguments.location.env_file,
            Command::Cancel(arguments) => &arguments.location.env_file,
            Command::Retry(arguments) => &arguments.location.env_file,
            Command::Answer(arguments) => &arguments.location.env_file,
            Command::Approve(arguments) | Command::Reject(arguments) => {
                &arguments.location.env_file
            }
            Command::Replan(arguments) => &arguments.location.env_file,
            Command::Take(arguments) => &arguments.location.env_file,
            Command::GiveBack(arguments) => &arguments.location.env_file,
            Command::Report(arguments) => &arguments.location.env_file,
            Command::Export(arguments) => &arguments.location.env_file,
            Command::Apply(arguments) => &arguments.location.env_file,
            Command::Backup(arguments) => &arguments.location.env_file,
            Command::Restore(arguments) => &arguments.location.env_file,
            Command::Audit(arguments) => &arguments.location().env_file,
            Command::Image(arguments) => arguments.env_file(),
            _ => return None,
        };
        Some(named.as_deref())
    }

    /// Whether the command may create files of the service: store, logs, backups.
    fn creates_service_files(&self) -> bool {
        match self {
            Command::Serve(_) | Command::Init(_) => true,
            // Files of a clone have the mode that its user chose.
            Command::Take(_) => false,
            _ => self.env_file().is_some(),
        }
    }
}

/// Whether a flag or a variable sets the data folder.
fn is_data_dir_set(matches: &ArgMatches) -> bool {
    if let Some((_, below)) = matches.subcommand() {
        return is_data_dir_set(below);
    }
    let has_option = matches.ids().any(|id| id == "data_dir");
    let is_explicit =
        |source| matches!(source, ValueSource::CommandLine | ValueSource::EnvVariable);
    has_option && matches.value_source("data_dir").is_some_and(is_explicit)
}

/// Environment file of an installed service, if it exists and this user may read it.
fn default_env_file() -> Option<&'static Path> {
    let file = Path::new(DEFAULT_ENV_FILE);
    match std::fs::File::open(file) {
        Ok(_) => {
            eprintln!(
                "{PROGRAM_NAME}: using {DEFAULT_ENV_FILE}; use --env-file or --data-dir for another service"
            );
            Some(file)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!(
                "{PROGRAM_NAME}: ignoring {DEFAULT_ENV_FILE}: this user may not read it; try sudo"
            );
            None
        }
        Err(_) => None,
    }
}

/// Changes the arguments of a command and of all its subcommands.
fn mut_args_recursively(command: clap::Command, change: &impl Fn(Arg) -> Arg) -> clap::Command {
    command
        .mut_args(change)
        .mut_subcommands(|below| mut_args_recursively(below, change))
}

/// Executes the command and returns the exit code of the process.
pub(crate) fn execute(line: CommandLine) -> ExitCode {
    if line.command.creates_service_files() {
        // Files are readable by their owner only, even if no service manager has set a umask.
        umask(Mode::RWXG | Mode::RWXO);
    }
    let result = match line.command {
        Command::Serve(arguments) => with_runtime(serve::serve(*arguments)),
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => with_runtime(demo::demo(arguments)),
        Command::Init(arguments) => with_runtime(init::init(*arguments)),
        Command::Doctor(arguments) => with_runtime(doctor::doctor(*arguments)),
        Command::Why(arguments) => with_runtime(why::why(arguments)),
        Command::Cancel(arguments) => with_runtime(control::cancel(arguments)),
        Command::Retry(arguments) => with_runtime(control::retry(arguments)),
        Command::Answer(arguments) => with_runtime(conversation::answer(arguments)),
        Command::Approve(arguments) => with_runtime(conversation::approve(arguments)),
        Command::Reject(arguments) => with_runtime(conversation::reject(arguments)),
        Command::Replan(arguments) => with_runtime(conversation::replan(arguments)),
        Command::Take(arguments) => with_runtime(take_over::take(arguments)),
        Command::GiveBack(arguments) => with_runtime(take_over::give_back(arguments)),
        Command::Report(arguments) => with_runtime(report::report(arguments)),
        Command::Export(arguments) => with_runtime(projects_file::export(arguments)),
        Command::Apply(arguments) => with_runtime(projects_file::apply(arguments)),
        Command::Backup(arguments) => with_runtime(backup::backup(arguments)),
        Command::Restore(arguments) => with_runtime(restore::restore(arguments)),
        Command::Run(arguments) => run::run(&arguments),
        Command::Mask => Ok(mask::mask()),
        Command::Guard(arguments) => with_runtime(guard::guard(arguments)),
        Command::Audit(arguments) => with_runtime(audit::audit(arguments)),
        Command::Image(arguments) => with_runtime(image::image(arguments)),
        Command::Openapi => openapi::openapi(),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => man::man(&arguments),
        #[cfg(feature = "demo")]
        Command::ScriptedAgent { arguments } => Ok(scripted_agent::main(arguments)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("agent-implement: {error:#}");
        exit_code(&error)
    })
}

/// Exit code for an error. The systemd unit decides by it whether to restart the service.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    use io::ErrorKind as Kind;
    let app_error = error.downcast_ref::<AppError>();
    if error.is::<ConfigError>() || app_error.is_some_and(AppError::needs_key) {
        return ExitCode::from(MISCONFIGURED);
    }
    if let Some(error) = error.downcast_ref::<StartError>()
        && error.needs_restore()
    {
        return ExitCode::from(RESTORE_NEEDED);
    }
    let in_chain = || error.chain().find_map(|cause| cause.downcast_ref());
    match app_error.and_then(AppError::store_error).or_else(in_chain) {
        Some(StoreError::Damaged { .. } | StoreError::Foreign { .. }) => ExitCode::from(DAMAGED),
        Some(StoreError::OutcomeUnknown | StoreError::DiskFull(_)) => ExitCode::from(DISK_FAILED),
        Some(StoreError::Open { cause, .. }) => match cause.kind() {
            Kind::PermissionDenied => ExitCode::from(MISCONFIGURED),
            Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge => ExitCode::from(DISK_FAILED),
            // `io::ErrorKind` has no variant for EIO.
            _ if cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                ExitCode::from(DISK_FAILED)
            }
            _ => ExitCode::FAILURE,
        },
        _ => ExitCode::FAILURE,
    }
}

/// Async command.
type BoxedCommand<'a> = Pin<Box<dyn Future<Output = anyhow::Result<ExitCode>> + 'a>>;

/// Runs an async command on a Tokio runtime, with the TLS provider installed.
fn with_runtime<'a>(
    command: impl Future<Output = anyhow::Result<ExitCode>> + 'a,
) -> anyhow::Result<ExitCode> {
    // Boxed, because the runtime's code would be in the program once per command.
    block_on(Box::pin(command))
}

fn block_on(command: BoxedCommand<'_>) -> anyhow::Result<ExitCode> {
    // Fails only if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // Catches SIGXFSZ, so that exceeding the file size limit is an error and does not kill the
            // process.
            let _limit = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
            command.await
        })
}
