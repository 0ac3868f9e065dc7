//! The operator's own pipelines and steps: files below one folder, which take the place of built-in
//! ones or come beside them.
//!
//! A run loads from the folder ([`load`]); the service looks at its own copy, to show what is in
//! force ([`survey()`], [`pipelines`], [`steps`]). Nothing is ever written or started here.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod definition;
mod load;
mod overview;
mod survey;

pub use definition::{
    Definition, Fault, Faults, FindModule, StepDefinition, StepKind, Work, built_in, built_in_ids,
    is_customizable, is_plain, judge, pipeline_of,
};
pub use load::load;
pub use overview::{Pipeline, PipelineStep, StepModule, pipelines, steps};
pub use survey::{Category, Customization, survey};

use serde::Serialize;

/// How something relates to what is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    BuiltIn,
    /// In the place of something built in.
    Override,
    /// Beside what is built in.
    Additive,
}

/// Where the built-in pipeline of this id stands in the source.
fn pipeline_source(id: &str) -> String {
    format!("src/pipeline/definitions/{id}.yml")
}

/// Where the built-in step of this type stands in the source.
fn step_source(kind: &str) -> String {
    format!("src/run/steps/{}.rs", kind.replace('-', "_"))
}
