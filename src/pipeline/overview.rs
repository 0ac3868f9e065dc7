//! The pipelines and steps that are in force, and what is wrong with those that are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::load::{find_module, load_pipeline};
use super::{CustomizationStatus, pipeline_source_path, step_source_path};
use crate::definition::{
    DefinitionError, DefinitionErrors, PipelineDefinition, StepDefinition, StepImplementation,
    StepKind, built_in_ids, built_in_source, is_customizable,
};

/// How many names of a folder are looked at?
const MAX_NAMES: usize = 2_000;

/// A pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineSummary {
    pub id: String,
    /// In the source, or below the folder.
    pub file: String,
    pub status: CustomizationStatus,
    /// Empty when it cannot be loaded.
    pub steps: Vec<PipelineStep>,
    /// What is wrong with it.
    pub errors: Vec<DefinitionError>,
}

/// A step of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineStep {
    pub id: String,
    /// The word of its type.
    pub kind: String,
    /// The name of the executable that does its work.
    pub module: Option<String>,
    pub status: CustomizationStatus,
}

/// A step that pipelines can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSummary {
    pub id: String,
    /// Its source, when it is built in.
    pub source_path: Option<String>,
    /// Below the folder.
    pub custom_path: Option<String>,
    pub status: CustomizationStatus,
    /// Why the operator's own cannot be used.
    pub error: Option<String>,
}

/// Every pipeline, the built-in ones first.
///
/// # Errors
/// What the system says to reading the folder.
pub fn list_pipelines(root: &Path) -> io::Result<Vec<PipelineSummary>> {
    let own = names(&root.join("pipelines"))?;
    let built_ins: BTreeSet<&str> = built_in_ids().collect();
    let mut all: Vec<PipelineSummary> = built_ins
        .iter()
        .map(|id| {
            let file = format!("{id}.yml");
            match own.contains(&file) {
                true if is_customizable(id) => made(root, id, &file, CustomizationStatus::Override),
                true => ignored(id, &file),
                false => plain(id),
            }
        })
        .collect();
    for file in own {
        match file.strip_suffix(".yml") {
            Some(id) if built_in_source(id).is_some() => {}
            Some(id) => all.push(made(root, id, &file, CustomizationStatus::Additive)),
            None => all.push(unread(&file)),
        }
    }
    Ok(all)
}

fn plain(id: &str) -> PipelineSummary {
    PipelineSummary {
        file: pipeline_source_path(id),
        ..loaded(id, load_pipeline(id, None), CustomizationStatus::BuiltIn)
    }
}

fn made(root: &Path, id: &str, file: &str, status: CustomizationStatus) -> PipelineSummary {
    PipelineSummary {
        file: format!("pipelines/{file}"),
        ..loaded(id, load_pipeline(id, Some(root)), status)
    }
}

/// The built-in one, of which the operator's own cannot take the place.
fn ignored(id: &str, file: &str) -> PipelineSummary {
    let why = format!("it is ignored: {id} is not customizable");
    PipelineSummary {
        errors: DefinitionErrors::for_file(&format!("pipelines/{file}"), why).0,
        ..plain(id)
    }
}

fn unread(file: &str) -> PipelineSummary {
    let path = format!("pipelines/{file}");
    PipelineSummary {
        id: file.to_owned(),
        status: CustomizationStatus::Additive,
        steps: Vec::new(),
        errors: DefinitionErrors::for_file(
            &path,
            "it is not read: the name of a pipeline ends in .yml",
        )
        .0,
        file: path,
    }
}

fn loaded(
    id: &str,
    definition: Result<PipelineDefinition, DefinitionErrors>,
    status: CustomizationStatus,
) -> PipelineSummary {
    let (steps, faults) = match definition {
        Ok(definition) => (definition.steps.into_iter().map(step).collect(), Vec::new()),
        Err(DefinitionErrors(faults)) => (Vec::new(), faults),
    };
    PipelineSummary {
        id: id.to_owned(),
        file: String::new(),
        status,
        steps,
        errors: faults,
    }
}

fn step(step: StepDefinition) -> PipelineStep {
    let (module, status) = match &step.implementation {
        StepImplementation::BuiltIn(_) => (None, CustomizationStatus::BuiltIn),
        StepImplementation::Module(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let status = match StepKind::parse(&step.kind) {
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

/// Every step that pipelines can name, the built-in ones first, in the order of a run.
///
/// # Errors
/// What the system says to reading the folder.
pub fn list_steps(root: &Path) -> io::Result<Vec<StepSummary>> {
    let folder = root.join("steps");
    let mut own: BTreeMap<String, Option<String>> = names(&folder)?
        .into_iter()
        .map(|name| {
            let error = find_module(Some(&folder), &name).err();
            (name, error)
        })
        .collect();
    let custom = |name: &str| format!("steps/{name}");
    let mut all = Vec::new();
    for kind in StepKind::names() {
        let replaced = own.remove(kind);
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
    all.extend(own.into_iter().map(|(name, error)| StepSummary {
        source_path: None,
        custom_path: Some(custom(&name)),
        status: CustomizationStatus::Additive,
        error,
        id: name,
    }));
    Ok(all)
}

/// The names in a folder that are not hidden; none when there is no such folder.
fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries.take(MAX_NAMES) {
        // A name that is no text can be named by no pipeline.
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.insert(name);
        }
    }
    Ok(names)
}
