//! `agent-implement run`: executes one run inside a CI job, a machine or a container.

use std::process::ExitCode;

use run::{Environment, EnvironmentError};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Set when the run has re-executed itself with a clean environment.
    #[arg(long, hide = true)]
    handed_over: bool,
}

/// Re-executes itself with credentials removed from the environment, then executes the run.
pub(super) fn run(arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    if !arguments.handed_over {
        return Ok(report_error(&Environment::reexec(&[
            "run",
            "--handed-over",
        ])));
    }
    super::with_runtime(async {
        Ok(match Environment::from_reexec() {
            Ok(environment) => ::run::run(environment).await,
            Err(error) => report_error(&error),
        })
    })
}

fn report_error(error: &EnvironmentError) -> ExitCode {
    eprintln!("agent-implement run: {error}");
    ExitCode::FAILURE
}
