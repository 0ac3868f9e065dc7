//! FLOOR 1: facts and rules.
//!
//! Everything here is a judgement: plain values in, plain values out. No async, no input or
//! output, no clock, no store, no HTTP. Time comes in as an argument; whatever a judgement
//! wants done leaves it as data (an [`effect::Effect`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ids;
pub mod time;

pub mod crypto;
pub mod issue;
pub mod mapping;
pub mod stage;

pub mod decision;
pub mod job;
pub mod machine;
pub mod machine_size;
pub mod reaper;
pub mod runner_mode;
pub mod transition;

pub mod audit;
pub mod check_result;
pub mod comments;
pub mod effect;
pub mod plan;
pub mod templates;

pub mod report;
pub mod run_config;
pub mod session_event;

pub mod branch;
pub mod edit_distance;
pub mod external_reviewers;
pub mod feedback;
pub mod json_number;
pub mod limits;
pub mod runner_image;
pub mod secret;
pub mod sensitive_files;
pub mod session_secrets;
pub mod string_arena;
pub mod usage;
