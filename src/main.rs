//! The command line leads to one command; nothing else stands here.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_implement::cli::execute(agent_implement::cli::CommandLine::read())
}
