//! A `kill -9` at any instant loses nothing that was acknowledged, and repeats nothing.
//!
//! Two kinds of world are killed: whole demos, once each, on every kind of host (`demo`), and a service
//! at work, over and over, with everything else alive around it (`fire`). Each has a short form, which
//! is part of every run, and a long one.
#![allow(clippy::unwrap_used)]

mod checks;
mod clients;
mod crash_env;
mod demo;
mod demo_outcome;
mod durability;
mod fake_runs;
mod program;
mod service_kills;
mod tickets;
