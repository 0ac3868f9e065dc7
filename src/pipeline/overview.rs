//! Pipelines and steps in use, and the errors in their definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::customizations::{CustomizationStatus, pipeline_source_path, step_source_path};
use crate::definition::{
    DefinitionError, DefinitionErrors, PipelineDefinition, StepDefinition, StepImplementation,
    StepKind, built_in_ids, built_in_source, is_customizable,
};
use crate::load::{find_module, load_pipeline};

/// Maximum number of names read from a directory.
const MAX_NAMES: usize = 2_000;

/// Pipeline and its errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineSummary {
    /// Identifier of the pipeline.
    pub id: String,
    /// Path in the source tree or in the directory of customizations.
    pub file: String,
    /// Relation to the built-in pipelines.
    pub status: CustomizationStatus,
    /// Steps. Empty if the pipeline cannot be loaded.
    pub steps: Vec<PipelineStep>,
    /// Errors in the definition.
    pub errors: Vec<DefinitionError>,
}

/// Step of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineStep {
    /// Identifier of the step.
    pub id: String,
    /// Name of the type.
    pub kind: String,
    /// Name of the executable, if the step is a module.
    pub module: Option<String>,
    /// Relation to the built-in steps.
    pub status: CustomizationStatus,
}

/// Step type that pipelines can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSummary {
    /// Name of the step.
    pub id: String,
    /// Path in the source tree, if built in.
    pub source_path: Option<String>,
    /// Path in the directory of customizations, if customized.
    pub custom_path: Option<String>,
    /// Relation to the built-in steps.
    pub status: CustomizationStatus,
    /// Reason why the customized file cannot be used.
    pub error: Option<String>,
}

/// Returns all pipelines, built-in ones first.
///
/// # Errors
/// The directory cannot be read.
pub fn list_pipelines(root: &Path) -> io::Result<Vec<PipelineSummary>> {
    let custom_files = names(&root.join("pipelines"))?;
    let built_ins: BTreeSet<&str> = built_in_ids().collect();
    let mut all: Vec<PipelineSummary> = built_ins
        .iter()
        .map(|id| {
            let file = format!("{id}.yml");
            match custom_files.contains(&file) {
                true if is_customizable(id) => {
                    customized_pipeline(root, id, &file, CustomizationStatus::Override)
                }
                true => ignored_pipeline(id, &file),
                false => built_in_pipeline(id),
            }
        })
        .collect();
    for file in custom_files {
        match file.strip_suffix(".yml") {
            Some(id) if built_in_source(id).is_some() => {}
            Some(id) => all.push(customized_pipeline(
                root,
                id,
                &file,
                CustomizationStatus::Additive,
            )),
            None => all.push(unused_file(&file)),
        }
    }
    Ok(all)
}

fn built_in_pipeline(id: &str) -> PipelineSummary {
    PipelineSummary {
        file: pipeline_source_path(id),
        ..summarize(id, load_pipeline(id, None), CustomizationStatus::BuiltIn)
    }
}

fn customized_pipeline(
    root: &Path,
    id: &str,
    file: &str,
    status: CustomizationStatus,
) -> PipelineSummary {
    PipelineSummary {
        file: format!("pipelines/{file}"),
        ..summarize(id, load_pipeline(id, Some(root)), status)
    }
}

/// Returns a built-in pipeline that a customized file cannot replace.
fn ignored_pipeline(id: &str, file: &str) -> PipelineSummary {
    let reason = format!("ignored, because {id} cannot be customized");
    PipelineSummary {
        errors: DefinitionErrors::for_file(&format!("pipelines/{file}"), reason).0,
        ..built_in_pipeline(id)
    }
}

fn unused_file(file: &str) -> PipelineSummary {
    let path = format!("pipelines/{file}");
    PipelineSummary {
        id: file.to_owned(),
        status: CustomizationStatus::Additive,
        steps: Vec::new(),
        errors: DefinitionErrors::for_file(
            &path,
            "ignored, because the file name does not end in .yml",
        )
        .0,
        file: path,
    }
}

fn summarize(
    id: &str,
    definition: Result<PipelineDefinition, DefinitionErrors>,
    status: CustomizationStatus,
) -> PipelineSummary {
    let (steps, errors) = match definition {
        Ok(definition) => (definition.steps.into_iter().map(step).collect(), Vec::new()),
        Err(DefinitionErrors(errors)) => (Vec::new(), errors),
    };
    PipelineSummary {
        id: id.to_owned(),
        file: String::new(),
        status,
        steps,
        errors,
    }
}

fn step(step: StepDefinition) -> PipelineStep {
    let (module, status) = match &step.implementation {
        StepImplementation::BuiltIn(_) => (None, CustomizationStatus::BuiltIn),
        StepImplementation::Module { path, kind } => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let status = match kind {
                Some(_) => CustomizationStatus::Override,
                None => CustomizationStatus::Additive,
            };
            (Some(name.into_owned()), status)
        }
    };
    PipelineStep {
        id: step.id,
        kind: step.kind,
        module,
        status,
    }
}

/// Returns all steps that pipelines can use: built-in ones first, in the order of a run.
///
/// # Errors
/// The directory cannot be read.
pub fn list_steps(root: &Path) -> io::Result<Vec<StepSummary>> {
    let folder = root.join("steps");
    let mut custom_steps: BTreeMap<String, Option<String>> = names(&folder)?
        .into_iter()
        .map(|name| {
            let error = find_module(Some(&folder), &name).err();
            (name, error)
        })
        .collect();
    let custom = |name: &str| format!("steps/{name}");
    let mut all = Vec::new();
    for kind in StepKind::names() {
        let replaced = custom_steps.remove(kind);
        all.push(StepSummary {
            id: kind.to_owned(),
            source_path: Some(step_source_path(kind)),
            custom_path: replaced.as_ref().map(|_| custom(kind)),
            status: match replaced {
                Some(_) => CustomizationStatus::Override,
                None => CustomizationStatus::BuiltIn,
            },
            error: replaced.flatten(),
        });
    }
    all.extend(custom_steps.into_iter().map(|(name, error)| StepSummary {
        source_path: None,
        custom_path: Some(custom(&name)),
        status: CustomizationStatus::Additive,
        error,
        id: name,
    }));
    Ok(all)
}

/// Returns the names in a directory without hidden files. Empty if the directory does not exist.
fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries.take(MAX_NAMES) {
        // Pipelines cannot refer to names that are not valid UTF-8.
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.insert(name);
        }
    }
    Ok(names)
}
