//! Agent Implement: a labelled ticket becomes a reviewed pull request.

pub mod domain;
pub mod keys;

pub mod wire;

pub mod chat;
pub mod scm;
pub mod ticketing;

pub mod runners;

pub mod pipeline;

pub mod cli;

pub mod sandbox;
