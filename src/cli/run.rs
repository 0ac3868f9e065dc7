//! `agent-implement run`: the program inside a CI run, a machine or a container.

use std::process::ExitCode;

use crate::pipeline::{self, Environment};

/// Reads the environment and sees the run through.
pub async fn run() -> ExitCode {
    match Environment::read() {
        Ok(environment) => pipeline::run(environment).await,
        Err(error) => {
            eprintln!("agent-implement run: {error}");
            ExitCode::FAILURE
        }
    }
}
