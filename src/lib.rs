//! Agent Implement: a labelled ticket becomes a reviewed pull request.

pub mod domain;

pub mod sandbox;
