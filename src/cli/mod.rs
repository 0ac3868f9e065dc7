//! The commands, one file each.

mod audit;
mod backup;
mod completions;
mod demo;
mod doctor;
mod guard;
mod local_service;
mod logging;
mod man;
mod mask;
mod openapi;
mod restore;
mod run;
mod serve;
mod service_manager;
mod terminal;
mod why;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches};
use rustix::fs::Mode;
use rustix::process::{Signal, umask};
use tokio::signal::unix::{SignalKind, signal};

use engine::config::{ConfigError, EnvFile};
use fake_vendors::scripted_agent;
use store::StoreError;

/// The exit code after which starting again as before is of no use. (`sysexits.h`: `EX_CONFIG`)
const MISCONFIGURED: u8 = 78;
/// The exit code after a failure of the disk, which starting again may find mended. (`EX_IOERR`)
const DISK_FAILED: u8 = 74;
/// The exit code of a store that is damaged or somebody else's: only a person can help. (`EX_DATAERR`)
const DAMAGED: u8 = 65;
/// Where the package puts the environment file of the service.
const USUAL_ENV_FILE: &str = "/etc/agent-implement/agent-implement.env";
/// What people call this program.
const PROGRAM_NAME: &str = "agent-implement";

/// A labelled ticket becomes a reviewed pull request.
#[derive(Debug, clap::Parser)]
#[command(name = PROGRAM_NAME, version, about, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the service: poll, dispatch, track, report; admin API and callbacks over HTTP.
    Serve(Box<serve::ServeArgs>),
    /// Run the whole story on this machine: stand-in vendors, the service, real runs. Needs git, and no
    /// account or configuration.
    Demo(demo::DemoArgs),
    /// Check the whole set-up, and say how to mend what is wrong.
    Doctor(Box<doctor::DoctorArgs>),
    /// Tell what was decided about an issue, and what to do about it.
    Why(why::WhyArgs),
    /// Copy the store into a file, while the service runs or is stopped.
    Backup(backup::BackupArgs),
    /// Put a backup in the place of the store of a stopped service.
    Restore(restore::RestoreArgs),
    /// What a run executes: clone, implement, review, push, open the pull request, report. Workflows,
    /// machines and containers start it; there is no reason to do it by hand.
    Run(run::RunArgs),
    /// What a workflow executes first of all: hide the run's tokens from its log.
    Mask,
    /// Look for secrets as the guard of a run does, before anything is committed or pushed.
    Guard(guard::GuardArgs),
    /// Check the record of who did what.
    Audit(audit::AuditArgs),
    /// Print the description of the HTTP API, as OpenAPI 3.1 in JSON.
    Openapi,
    /// Print a script that makes a shell complete this command line.
    Completions(completions::CompletionsArgs),
    /// Print the manual page, as roff: `agent-implement man | man -l -`.
    Man(man::ManArgs),
    /// In the demo and the tests: play the agent CLI from a script.
    #[command(hide = true, disable_help_flag = true)]
    ScriptedAgent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl CommandLine {
    /// Reads the command line and the environment, the one that `--env-file` names included.
    pub fn read() -> Self {
        let matches = Self::command().get_matches();
        let line = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let read = match line.command.env_file() {
            None => return line,
            Some(Some(file)) => Self::in_environment(file, false),
            Some(None) if names_folder(&matches) => return line,
            Some(None) => match usual_env_file() {
                Some(file) => Self::in_environment(file, true),
                None => return line,
            },
        };
        read.unwrap_or_else(|error| error.exit())
    }

    /// Reads the same command line with the variables of a file. Flags beat them. One that was named
    /// takes the place of our own environment; the usual one is beaten by it.
    fn in_environment(file: &Path, is_usual: bool) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let variables = EnvFile::read(file)
            .map_err(|cause| command.error(clap::error::ErrorKind::ValueValidation, cause))?;
        let given = |arg: Arg| {
            if arg.get_id() == "env_file" {
                return arg.default_value(file.as_os_str().to_owned());
            }
            let value = arg.get_env().and_then(|name| variables.get(name.to_str()?));
            match value.map(str::to_owned) {
                Some(value) if is_usual => arg.default_value(value),
                Some(value) => arg.env(None::<&'static str>).default_value(value),
                None => arg,
            }
        };
        let mut command = in_all(command, &given);
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

impl Command {
    /// The file that stands for the environment of a service, if one was named. None for a command that
    /// takes no such file.
    fn env_file(&self) -> Option<Option<&Path>> {
        let named = match self {
            Command::Doctor(arguments) => &arguments.env_file,
            Command::Why(arguments) => &arguments.location.env_file,
            Command::Backup(arguments) => &arguments.location.env_file,
            Command::Restore(arguments) => &arguments.location.env_file,
            Command::Audit(arguments) => &arguments.location().env_file,
            _ => return None,
        };
        Some(named.as_deref())
    }

    /// Whether the command may make files of the service: store, logs, backups.
    fn keeps_data(&self) -> bool {
        matches!(self, Command::Serve(_)) || self.env_file().is_some()
    }
}

/// Whether a flag or a variable names the data folder.
fn names_folder(matches: &ArgMatches) -> bool {
    if let Some((_, below)) = matches.subcommand() {
        return names_folder(below);
    }
    let is_known = matches.ids().any(|id| id == "data_dir");
    let is_named = |source| matches!(source, ValueSource::CommandLine | ValueSource::EnvVariable);
    is_known && matches.value_source("data_dir").is_some_and(is_named)
}

/// The environment file of an installed service, if there is one that this user may read.
fn usual_env_file() -> Option<&'static Path> {
    let file = Path::new(USUAL_ENV_FILE);
    match std::fs::File::open(file) {
        Ok(_) => {
            eprintln!(
                "{PROGRAM_NAME}: using {USUAL_ENV_FILE}; --env-file or --data-dir names another service"
            );
            Some(file)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!(
                "{PROGRAM_NAME}: {USUAL_ENV_FILE} may not be read by this user and is not used; try sudo"
            );
            None
        }
        Err(_) => None,
    }
}

/// Changes the arguments of a command and of all below it.
fn in_all(command: clap::Command, change: &impl Fn(Arg) -> Arg) -> clap::Command {
    command
        .mut_args(change)
        .mut_subcommands(|below| in_all(below, change))
}

/// Carries out the command and answers the process's exit code.
pub fn execute(line: CommandLine) -> ExitCode {
    if line.command.keeps_data() {
        // For the owner alone, also when no service manager has set it.
        umask(Mode::RWXG | Mode::RWXO);
    }
    let done = match line.command {
        Command::Serve(arguments) => with_runtime(serve::serve(*arguments)),
        Command::Demo(arguments) => with_runtime(demo::demo(arguments)),
        Command::Doctor(arguments) => with_runtime(doctor::doctor(*arguments)),
        Command::Why(arguments) => with_runtime(why::why(arguments)),
        Command::Backup(arguments) => with_runtime(backup::backup(arguments)),
        Command::Restore(arguments) => with_runtime(restore::restore(arguments)),
        Command::Run(arguments) => run::run(&arguments),
        Command::Mask => Ok(mask::mask()),
        Command::Guard(arguments) => with_runtime(guard::guard(arguments)),
        Command::Audit(arguments) => with_runtime(audit::audit(arguments)),
        Command::Openapi => openapi::openapi(),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => man::man(&arguments),
        Command::ScriptedAgent { arguments } => Ok(scripted_agent::main(arguments)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("agent-implement: {error:#}");
        exit_code(&error)
    })
}

/// What an error means to whoever may start us again.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    use io::ErrorKind as Kind;
    if error.is::<ConfigError>() {
        return ExitCode::from(MISCONFIGURED);
    }
    let stored = error.chain().find_map(|cause| cause.downcast_ref());
    match stored {
        Some(StoreError::Damaged { .. } | StoreError::Foreign { .. }) => ExitCode::from(DAMAGED),
        Some(StoreError::OutcomeUnknown | StoreError::DiskFull(_)) => ExitCode::from(DISK_FAILED),
        Some(StoreError::Open { cause, .. }) => match cause.kind() {
            Kind::PermissionDenied => ExitCode::from(MISCONFIGURED),
            Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge => ExitCode::from(DISK_FAILED),
            // EIO has no kind of its own.
            _ if cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                ExitCode::from(DISK_FAILED)
            }
            _ => ExitCode::FAILURE,
        },
        _ => ExitCode::FAILURE,
    }
}

/// The end of a command that prints. Whoever reads may have read enough.
fn ignore_broken_pipe(done: io::Result<()>) -> anyhow::Result<ExitCode> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a command that talks to the network.
fn with_runtime(
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // A file beyond the limit of its size is to be an error that is told, not a silent end.
            let _limit = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
            command.await
        })
}
