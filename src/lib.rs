//! Agent Implement: a labelled ticket becomes a reviewed pull request.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod domain;

pub mod store;

pub mod sandbox;
