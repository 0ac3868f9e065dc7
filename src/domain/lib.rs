//! Domain types and rules of Agent Implement.
//!
//! This crate is pure. It has no async code, no I/O, no clock, no store and no HTTP. The current
//! time is an argument. A change of the outside world is returned as data (an [`effect::Effect`])
//! and performed by the outbox worker.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ids;
pub mod time;

pub mod connection;
pub mod crypto;
pub mod csv;
pub mod issue;
pub mod mapping;
pub mod stage;
pub mod vendor;

pub mod decision;
pub mod job;
pub mod job_filter;
pub mod machine;
pub mod machine_size;
pub mod reaper;
pub mod runner_mode;
pub mod transition;

pub mod agent;
pub mod agent_choice;
pub mod agent_identity;
pub mod audit;
pub mod check_result;
pub mod comments;
pub mod effect;
pub mod plan;
pub mod templates;

pub mod report;
pub mod report_artifact;
pub mod run_config;
pub mod run_details;
pub mod run_log;
pub mod run_options;
pub mod run_socket;
pub mod runner_labels;
pub mod session_event;

pub mod branch;
pub mod edit_distance;
pub mod external_reviewers;
pub mod feedback;
pub mod github_app;
pub mod json_number;
pub mod limits;
pub mod retry;
pub mod runner_image;
pub mod sanitize;
pub mod scoreboard;
pub mod secret;
pub mod sensitive_files;
pub mod session_secrets;
pub mod string_arena;
pub mod usage;
