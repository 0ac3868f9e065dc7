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

pub use customizations::{
    Customization, CustomizationCategory, CustomizationStatus, list_customizations,
};
pub use definition::{
    DefinitionError, DefinitionErrors, ModuleResolver, PipelineDefinition, StepDefinition,
    StepImplementation, StepKind, parse_definition, pipeline_for_phase,
};
pub use load::load_pipeline;
pub use overview::{PipelineStep, PipelineSummary, StepSummary, list_pipelines, list_steps};
