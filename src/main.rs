//! The command line leads to one command; nothing else stands here.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    agent_implement::cli::execute(agent_implement::cli::CommandLine::parse())
}
