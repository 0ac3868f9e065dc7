//! Coding agent: a program that gets a prompt and works in a folder.
//!
//! - `configuration`: the agent of a run. `credentials`: variables that each program gets.
//! - `installation`: the agent of a run whose image does not contain it.
//! - `run_pass`: one pass. `supervise` runs the program to completion, `outcome` evaluates its result.
//! - `claude`, `codex`, `gemini`, `command`: flags, settings and output format of one program.
//!
//! The repository may attack its own agent. Each program's module documents which repository
//! configuration would run code or redirect the model key, and how that is prevented.

mod claude;
mod cli;
mod codex;
mod command;
mod configuration;
mod credentials;
mod gemini;
mod installation;
#[cfg(test)]
mod others_tests;
mod outcome;
mod output;
mod pass;
mod rate_limit_reset;
mod run_pass;
mod stream_reader;
mod supervise;
#[cfg(test)]
mod tests;

pub use cli::AgentCli;
pub use configuration::{Agent, RETRIES};
pub use credentials::{cloud_key_names, direct_key_names, is_base_url};
pub use installation::Installation;
pub use pass::{AgentAnswer, AgentPass, AgentRole};
pub use stream_reader::fuzz_streams;
