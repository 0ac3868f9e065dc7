//! The commands, one file each.

mod demo;
mod logging;
mod mask;
mod run;
mod serve;
mod supervision;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::sandbox::scripted_agent;

/// The exit code after which starting again as before is of no use. (`sysexits.h`: `EX_CONFIG`)
const MISCONFIGURED: u8 = 78;

/// A labelled ticket becomes a reviewed pull request.
#[derive(Debug, clap::Parser)]
#[command(name = "agent-implement", version, about, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the service: poll, dispatch, track, report; admin API and callbacks over HTTP.
    Serve(Box<serve::Arguments>),
    /// Run the whole story on this machine: stand-in vendors, the service, real runs. Needs nothing.
    Demo(demo::Arguments),
    /// Inside a run: clone, implement, review, push, open the pull request, report.
    Run(run::Arguments),
    /// Inside a CI run, first of all: hide the run's tokens from its log.
    Mask,
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
        Command::ScriptedAgent { arguments } => Ok(scripted_agent::main(arguments)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("agent-implement: {error:#}");
        match error.is::<ConfigError>() {
            true => ExitCode::from(MISCONFIGURED),
            false => ExitCode::FAILURE,
        }
    })
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
