//! FLOOR 4: the program inside a run, `agent-implement run`.
//!
//! A process of its own, started by CI, a machine or a container: it has a work tree, a token now
//! and then, and a way to call back. It knows nothing of the store, of other runs, or of tickets
//! beyond the one it was given. Three walls hold throughout:
//!
//! - **Children start with nothing.** Their environment is built from a list of names; the agent
//!   gets its model key, a script gets no credential, one git process at a time gets a token. The
//!   run's own environment, which a child might read, holds no credential either.
//! - **No token while foreign code runs.** The repository's token is fetched to clone, dropped,
//!   and fetched again to push, after every process of the work has been ended.
//! - **The result always leaves.** Whatever happens, the orchestrator is told how it ended.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
mod callback;
mod child;
mod console;
mod environment;
mod executor;
mod git;
mod guard;
mod handover;
mod headings;
mod herald;
mod hold;
mod meter;
mod patch;
mod patience;
mod prepare;
mod programs;
mod progress;
mod prompts;
mod pull_request;
mod repo_config;
mod run;
pub mod scan;
mod start;
mod steps;
mod stop;
mod strays;
mod text;

#[cfg(test)]
mod tests;

pub use child::ChildEnv;
pub use console::Console;
pub use environment::{Environment, EnvironmentError, mask_lines};
pub use git::changes::read_changes;
pub use meter::Meter;
pub use progress::Progress;
pub use repo_config::read_repository_files;
pub use run::Folders;
pub use start::run;
pub use stop::StopSignal;

/// A word that nobody else can know.
fn random_word() -> String {
    use ring::rand::SecureRandom;
    let mut bytes = [0u8; 16];
    // Without randomness from the system no TLS connection would exist either.
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes).is_ok();
    if filled {
        data_encoding::HEXLOWER.encode(&bytes)
    } else {
        format!("{:032x}", fastrand::u128(..))
    }
}
