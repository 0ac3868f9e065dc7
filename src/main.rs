//! The command line of Agent Implement: one program for the service, its administration and the runs.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::execute(cli::CommandLine::read())
}
