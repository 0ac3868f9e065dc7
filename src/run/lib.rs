//! Run: the program that implements one dispatch, `agent-implement run`.
//!
//! A process started by CI, on a machine or in a container. It has a work tree, a short-lived
//! repository token and a callback URL. It has no access to the store, to other runs or to other
//! tickets. Guarantees:
//!
//! - **Children start with an empty environment.** Variables are added by name. The agent gets its
//!   model key, scripts get no credential, and git never sees the token: a relay in this process
//!   adds it. The run's own environment, which children could read, holds no credential either.
//! - **No token while repository code runs.** The repository token is fetched for the clone,
//!   dropped, and fetched again for the push, after every child process was killed.
//! - **Every run reports a result.** The orchestrator receives the outcome of every run, whatever
//!   the cause of its end.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
mod blocking_finding;
mod child;
mod clock;
mod console;
mod context;
mod egress_relay;
mod environment;
mod evidence;
mod executor;
mod failure;
mod folders;
mod git;
mod guard;
mod headings;
mod home_template;
mod keep_alive;
mod lifecycle;
mod orchestrator_client;
mod orphan_processes;
mod patch;
mod prepare;
mod print;
mod programs;
mod progress;
mod prompts;
mod pull_request;
mod random;
mod reexec;
mod repo_config;
mod report_file;
mod result_report;
mod retry;
mod run_log;
pub mod scan;
mod scratch;
mod status_reporter;
mod steps;
mod stop_signal;
mod stopwatch;
mod usage_meter;

#[cfg(test)]
mod tests;

pub use child::ChildEnv;
pub use console::Console;
pub use egress_relay::fuzz_proxy_request;
pub use environment::{Environment, EnvironmentError, add_mask_commands};
pub use failure::RunFailure;
pub use folders::Folders;
pub use git::changes::fuzz_changes;
pub use git::version::{OldGitError, check_git_version};
pub use lifecycle::run;
pub use repo_config::fuzz_repo_config;
pub use run_log::RunLog;
pub use stop_signal::StopSignal;
pub use usage_meter::UsageMeter;
