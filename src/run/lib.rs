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
mod child;
mod console;
mod context;
mod environment;
mod executor;
mod git;
mod guard;
mod headings;
mod keep_alive;
mod lifecycle;
mod orchestrator_client;
mod orphan_processes;
mod patch;
mod prepare;
mod programs;
mod progress;
mod prompts;
mod pull_request;
mod reexec;
mod repo_config;
mod retry;
pub mod scan;
mod status_reporter;
mod steps;
mod stop_signal;
mod text;
mod usage_meter;

#[cfg(test)]
mod tests;

pub use child::ChildEnv;
pub use console::Console;
pub use context::Folders;
pub use environment::{Environment, EnvironmentError, add_mask_commands};
pub use git::changes::fuzz_changes;
pub use lifecycle::run;
pub use progress::ProgressReporter;
pub use repo_config::fuzz_repo_config;
pub use stop_signal::StopSignal;
pub use usage_meter::UsageMeter;

/// A word that nobody else can know.
fn random_hex() -> String {
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
