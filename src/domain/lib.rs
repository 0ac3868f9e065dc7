//! Domain types and rules of Agent Implement.
//!
//! This crate is pure. It has no async code, no I/O, no clock, no store and no HTTP. The current
//! time is an argument. A change of the outside world is returned as data (an [`effect::Effect`])
//! and performed by the outbox worker.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ids;
pub mod time;

pub mod connection;
pub mod control_paths;
pub mod crypto;
pub mod csv;
pub mod issue;
pub mod mapping;
pub mod stage;
pub mod vendor;

pub mod collision;
pub mod decision;
pub mod digest;
pub mod dispatch_window;
pub mod job;
pub mod job_filter;
pub mod machine;
pub mod machine_size;
pub mod merge_policy;
pub mod reaper;
pub mod repository_load;
pub mod review_capacity;
pub mod runner_mode;
pub mod transition;

pub mod agent;
pub mod agent_choice;
pub mod agent_identity;
pub mod audit;
pub mod check_result;
pub mod comments;
pub mod effect;
pub mod egress;
pub mod evidence;
pub mod git_mirror;
pub mod plan;
pub mod plan_approval;
pub mod question;
pub mod take_over;
pub mod take_over_guide;
pub mod templates;
pub mod ticket_command;
pub mod ticket_comment;
pub mod ticket_context;

pub mod merge_report;
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
pub mod ci_settings;
pub mod edit_distance;
pub mod external_reviewers;
pub mod feedback;
pub mod github_app;
pub mod json_number;
pub mod kubeconfig;
pub mod kubernetes_labels;
pub mod limits;
pub mod lock_files;
pub mod path_globs;
pub mod red_checks;
pub mod reserved_variables;
pub mod retry;
pub mod runner_image;
pub mod sanitize;
pub mod scoreboard;
pub mod secret;
pub mod sensitive_files;
pub mod session_secrets;
pub mod string_arena;
pub mod time_zone;
pub mod usage;
