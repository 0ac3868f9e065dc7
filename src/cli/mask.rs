//! `agent-implement mask`: the first step of a CI run, which hides the run's tokens from its log.

use std::process::ExitCode;

/// Prints the commands that make CI hide the tokens. CI obeys them for everything that follows.
pub fn mask() -> ExitCode {
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
