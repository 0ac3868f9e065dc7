//! Agent Implement: a labelled ticket becomes a reviewed pull request.
//!
//! Two questions place every line: does it decide or does it do (the floor), and what about (the
//! file)? Judgements never touch the world; errands never decide. Uses run downwards only, and
//! `tests/it/floors.rs` keeps it so.
#![cfg_attr(test, allow(clippy::unwrap_used))]

// FLOOR 1: facts and rules, and the keys. Pure.
pub mod domain;
pub mod keys;

// FLOOR 2: the store, the operator's own pipelines and steps, and the one HTTP client.
pub mod custom;
pub mod store;
pub mod wire;

// FLOOR 3: the vendors we talk to.
pub mod chat;
pub mod scm;
pub mod ticketing;

// FLOOR 4: where runs execute.
pub mod runners;

// The other process: the program inside a run.
pub mod pipeline;

// FLOOR 5: the verbs, in the order a ticket meets them.
pub mod flow;

// FLOOR 6: HTTP.
pub mod http;

// What the engine is made of.
pub mod app;
pub mod clock;
pub mod config;
pub mod crash;
pub mod meter;

// On top: the commands.
pub mod cli;

// BESIDE: a town of stand-in vendors, for the demo and the tests.
pub mod sandbox;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
