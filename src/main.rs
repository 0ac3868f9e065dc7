//! Command-line program of Agent Implement: service, administration and runs in one binary.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::execute(cli::CommandLine::read())
}
