//! Agent Implement: a labelled ticket becomes a reviewed pull request.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod domain;
pub mod keys;

pub mod wire;

pub mod chat;
pub mod scm;
pub mod ticketing;

pub mod runners;

pub mod store;

pub mod sandbox;
