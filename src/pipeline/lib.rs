//! The operator's own pipelines and steps: files below one folder, which take the place of built-in
//! ones or come beside them.
//!
//! A run loads from the folder ([`load`]); the service looks at its own copy, to show what is in
//! force ([`survey()`], [`pipelines`], [`steps`]). Nothing is ever written or started here.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod customizations;
mod definition;
mod load;
mod overview;

pub use customizations::{Customization, CustomizationCategory, list_customizations};
pub use definition::{
    DefinitionError, DefinitionErrors, ModuleResolver, PipelineDefinition, StepDefinition,
    StepImplementation, StepKind, built_in_ids, built_in_source, is_customizable, is_valid_name,
    parse_definition, pipeline_for_phase,
};
pub use load::load_pipeline;
pub use overview::{PipelineStep, PipelineSummary, StepSummary, list_pipelines, list_steps};

use serde::Serialize;

/// How something relates to what is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CustomizationStatus {
    BuiltIn,
    /// In the place of something built in.
    Override,
    /// Beside what is built in.
    Additive,
}

/// Where the built-in pipeline of this id stands in the source.
fn pipeline_source_path(id: &str) -> String {
    format!("src/pipeline/definitions/{id}.yml")
}

/// Where the built-in step of this type stands in the source.
fn step_source_path(kind: &str) -> String {
    format!("src/run/steps/{}.rs", kind.replace('-', "_"))
}
