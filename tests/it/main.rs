//! The one integration test binary.
#![allow(clippy::unwrap_used)]

mod api;
mod crash;
mod floors;
mod world;

mod canaries;
mod contracts;
mod hostile;
mod implementation;
mod jira;
mod planning;
mod templates;

mod admin_reads;
mod auth;
mod mappings;
mod progress_load;
mod runner_api;
