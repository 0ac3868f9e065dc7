//! Integration tests of the service, built as one binary.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
#![allow(clippy::unwrap_used)]

// Helpers and checks of the source.
mod api_server;
mod architecture;
mod documents;
mod fake_model;
mod model;
mod openapi;
mod process;
mod requirements;
mod route_server;
mod test_env;
mod test_ticket;

// Issues, runs, and vendors.
mod agents;
mod attack;
mod backup;
mod blockers;
mod budget;
mod caddy;
mod callbacks_off;
mod canaries;
mod choices;
mod collisions;
mod command_line;
mod config_status;
mod conflicts;
mod connections;
mod container_engine;
mod contracts;
mod control;
mod control_socket;
mod conversation_model;
mod customizations;
mod demo;
mod digest;
mod disk;
mod dispatch;
mod dispatch_log;
mod dispatch_window;
mod doctor;
mod egress;
mod engine_model;
mod evidence;
mod fallback_agents;
mod follow_up;
mod gap_fill;
mod git_mirrors;
mod github_app;
mod github_issues;
mod guard;
mod guard_false_positives;
mod guard_scan;
mod hostile_repository;
mod image_build;
mod implementation;
mod incidents;
mod init;
mod issue_lifecycle;
mod jira;
mod landing_model;
mod mappings_during_runs;
mod model_limit;
mod no_address;
mod no_way_in;
mod numbers;
mod outages;
mod outbox;
mod panel;
mod plan_approval;
mod planning;
mod poll_requests;
mod public_image;
mod pull_ownership;
mod pull_request;
mod questions;
mod review;
mod review_capacity;
mod routing;
mod run_choices;
mod run_customization;
mod run_failures;
mod run_watch;
mod sync_workflows;
mod take_over;
mod template_status;
mod templates;
mod ticket_commands;
mod ticket_context;
mod ticketing_webhooks;
mod usage;
mod waiting_notice;
mod webhooks;
mod why;

// The service's API, store, and process.
mod admin_reads;
mod audit;
mod audit_export;
mod auth;
mod logs;
mod machine_sizes;
mod mappings;
mod merge_policy;
mod metrics;
mod package;
mod progress_load;
mod projects_file;
mod readme;
mod reaper;
mod red_checks;
mod response_compression;
mod run_log;
mod run_socket;
mod runner_api;
mod runner_mode;
mod scoreboard_rows;
mod secrets;
mod service_manager;
mod session_api;
mod session_cookie;
mod sessions;
mod settings;
mod shutdown;
mod standby;
mod startup;
