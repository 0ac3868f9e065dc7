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
mod customizing;
mod demo;
mod gap_fill;
mod guard;
mod guard_source;
mod hostile;
mod implementation;
mod jira;
mod lifecycle;
mod mappings_at_work;
mod outages;
mod panel;
mod planning;
mod poll_requests;
mod review;
mod run_failures;
mod templates;
mod watching;

mod admin_reads;
mod auth;
mod mappings;
mod progress_load;
mod runner_api;
