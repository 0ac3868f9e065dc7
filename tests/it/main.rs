//! The one integration test binary.
#![allow(clippy::unwrap_used)]

mod api;
mod crash;
mod floors;
mod model;
mod ticket;
mod world;

mod agents;
mod blockers;
mod callbacks_off;
mod canaries;
mod config_status;
mod contracts;
mod customizations;
mod customizing;
mod demo;
mod engine;
mod follow_up;
mod gap_fill;
mod guard;
mod guard_source;
mod hostile;
mod implementation;
mod jira;
mod lifecycle;
mod mappings_at_work;
mod outages;
mod outbox;
mod panel;
mod planning;
mod poll_requests;
mod review;
mod run_failures;
mod sync_workflows;
mod template_status;
mod templates;
mod watching;
mod webhooks;

mod admin_reads;
mod audit;
mod auth;
mod logs;
mod mappings;
mod metrics;
mod progress_load;
mod reaper;
mod runner_api;
mod runner_mode;
mod secrets;
mod session_api;
mod sessions;
mod settings;
