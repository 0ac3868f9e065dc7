//! `agent-implement mask`: first step of a CI run, which masks the run's tokens in the log.

use std::process::ExitCode;

/// Prints the workflow commands that mask the tokens in the rest of the log.
pub(super) fn mask() -> ExitCode {
    match run::add_mask_commands() {
        Ok(lines) => {
            for line in lines {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("agent-implement mask: {error}");
            ExitCode::FAILURE
        }
    }
}
