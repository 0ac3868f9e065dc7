//! `agent-implement run`: the program inside a CI run, a machine or a container.

use std::process::ExitCode;

use run::{Environment, EnvironmentError};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// How the run calls itself, once it has left its first environment behind.
    #[arg(long, hide = true)]
    handed_over: bool,
}

/// Leaves the environment behind, then sees the run through.
pub fn run(arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    if !arguments.handed_over {
        return Ok(refused(&Environment::reexec(&["run", "--handed-over"])));
    }
    match Environment::from_reexec() {
        Ok(environment) => super::with_runtime(async { Ok(::run::run(environment).await) }),
        Err(error) => Ok(refused(&error)),
    }
}

fn refused(error: &EnvironmentError) -> ExitCode {
    eprintln!("agent-implement run: {error}");
    ExitCode::FAILURE
}
