//! A `kill -9` at any instant loses nothing that was acknowledged and repeats no effect.
//!
//! Two kinds of environment are killed: whole demos, once each, on every kind of host (`demo`), and a
//! busy service, repeatedly, while everything around it continues (`service_kills`). Each has a short
//! form, which is part of every test run, and a long form.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
#![allow(clippy::unwrap_used)]

mod cancellation;
mod checks;
mod clients;
mod conversation;
mod crash_env;
mod demo;
mod demo_outcome;
mod durability;
mod failover;
mod fake_runs;
mod landing;
mod landing_checks;
mod landing_people;
mod people;
mod program;
mod service_kills;
mod tickets;
mod visible_state;
