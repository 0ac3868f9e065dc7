//! The commands, one file each.

mod completions;
mod demo;
mod logging;
mod man;
mod mask;
mod openapi;
mod run;
mod serve;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use crate::sandbox::scripted_agent;

/// What people call this program.
const NAME: &str = "agent-implement";

/// A labelled ticket becomes a reviewed pull request.
#[derive(Debug, clap::Parser)]
#[command(name = NAME, version, about, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the service: poll, dispatch, track, report; admin API and callbacks over HTTP.
    Serve(Box<serve::Arguments>),
    /// Run the whole story on this machine: stand-in vendors, the service, real runs. Needs git, and no
    /// account or configuration.
    Demo(demo::Arguments),
    /// What a run executes: clone, implement, review, push, open the pull request, report. Workflows,
    /// machines and containers start it; there is no reason to do it by hand.
    Run(run::Arguments),
    /// What a workflow executes first of all: hide the run's tokens from its log.
    Mask,
    /// Print the description of the HTTP API, as OpenAPI 3.1 in JSON.
    Openapi,
    /// Print a script that makes a shell complete this command line.
    Completions(completions::Arguments),
    /// Print the manual page, as roff: `agent-implement man | man -l -`.
    Man(man::Arguments),
    /// In the demo and the tests: play the agent CLI from a script.
    #[command(hide = true, disable_help_flag = true)]
    ScriptedAgent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Carries out the command and answers the process's exit code.
pub fn execute(line: CommandLine) -> ExitCode {
    let done = match line.command {
        Command::Serve(arguments) => with_runtime(serve::serve(*arguments)),
        Command::Demo(arguments) => with_runtime(demo::demo(arguments)),
        Command::Run(arguments) => run::run(&arguments),
        Command::Mask => Ok(mask::mask()),
        Command::Openapi => openapi::openapi(),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => man::man(&arguments),
        Command::ScriptedAgent { arguments } => Ok(scripted_agent::main(arguments)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("agent-implement: {error:#}");
        ExitCode::FAILURE
    })
}

/// The end of a command that prints. Whoever reads may have read enough.
fn printed(done: io::Result<()>) -> anyhow::Result<ExitCode> {
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
        .block_on(command)
}
