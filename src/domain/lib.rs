//! FLOOR 1: facts and rules.
//!
//! Everything here is a judgement: plain values in, plain values out. No async, no input or
//! output, no clock, no store, no HTTP. Time comes in as an argument; whatever a judgement
//! wants done leaves it as data (an [`effect::Effect`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ids;
pub mod time;

pub mod issue;
pub mod keys;
pub mod mapping;
pub mod stage;

pub mod decision;
pub mod job;
pub mod machine;
pub mod machine_size;
pub mod reaping;
pub mod runner_mode;
pub mod transition;

pub mod audit;
pub mod checkup;
pub mod comments;
pub mod effect;
pub mod plan;
pub mod templates;

pub mod report;
pub mod run_config;
pub mod session_event;

pub mod branch;
pub mod caps;
pub mod feedback;
pub mod image;
pub mod nearest;
pub mod number;
pub mod packed;
pub mod reviewers;
pub mod secret;
pub mod secrets;
pub mod sensitive;
pub mod usage;
