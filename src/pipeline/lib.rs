//! Pipelines and steps: the built-in ones and those of the operator, whose files are in one
//! directory.
//!
//! A run loads its pipeline with [`load_pipeline`]. The service reads its own copy of the directory
//! to show what is in use ([`list_customizations`], [`list_pipelines`], [`list_steps`]). This crate
//! writes no files and starts no programs.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod customizations;
mod definition;
mod load;
mod overview;

pub use customizations::{Customization, CustomizationCategory, list_customizations};
pub use definition::{
    DefinitionError, DefinitionErrors, ModuleResolver, PipelineDefinition, StepDefinition,
    StepImplementation, StepKind, parse_definition, pipeline_for_phase,
};
pub use load::load_pipeline;
pub use overview::{PipelineStep, PipelineSummary, StepSummary, list_pipelines, list_steps};

use serde::Serialize;

/// Relation of a file, pipeline or step to the built-in ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CustomizationStatus {
    /// Built in.
    BuiltIn,
    /// Replaces a built-in one.
    Override,
    /// Added to the built-in ones.
    Additive,
}

/// Returns the path of a built-in pipeline in the source tree.
fn pipeline_source_path(id: &str) -> String {
    format!("src/pipeline/definitions/{id}.yml")
}

/// Returns the path of a built-in step in the source tree.
fn step_source_path(kind: &str) -> String {
    format!("src/run/steps/{}.rs", kind.replace('-', "_"))
}
