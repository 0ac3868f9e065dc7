//! The pipelines and steps that are in force, and what is wrong with those that are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::load::{load, module};
use super::{Status, pipeline_source, step_source};
use crate::definition::{
    Definition, Fault, Faults, StepDefinition, StepKind, Work, built_in, built_in_ids,
    is_customizable,
};

/// How many names of a folder are looked at?
const MAX_NAMES: usize = 2_000;

/// A pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    pub id: String,
    /// In the source, or below the folder.
    pub file: String,
    pub status: Status,
    /// Empty when it cannot be loaded.
    pub steps: Vec<PipelineStep>,
    /// What is wrong with it.
    pub faults: Vec<Fault>,
}

/// A step of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineStep {
    pub id: String,
    /// The word of its type.
    pub kind: String,
    /// The name of the executable that does its work.
    pub module: Option<String>,
    pub status: Status,
}

/// A step that pipelines can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepModule {
    pub id: String,
    /// Its source, when it is built in.
    pub source: Option<String>,
    /// Below the folder.
    pub custom: Option<String>,
    pub status: Status,
    /// Why the operator's own cannot be used.
    pub error: Option<String>,
}

/// Every pipeline, the built-in ones first.
///
/// # Errors
/// What the system says to reading the folder.
pub fn pipelines(root: &Path) -> io::Result<Vec<Pipeline>> {
    let own = names(&root.join("pipelines"))?;
    let built_ins: BTreeSet<&str> = built_in_ids().collect();
    let mut all: Vec<Pipeline> = built_ins
        .iter()
        .map(|id| {
            let file = format!("{id}.yml");
            match own.contains(&file) {
                true if is_customizable(id) => made(root, id, &file, Status::Override),
                true => ignored(id, &file),
                false => plain(id),
            }
        })
        .collect();
    for file in own {
        match file.strip_suffix(".yml") {
            Some(id) if built_in(id).is_some() => {}
            Some(id) => all.push(made(root, id, &file, Status::Additive)),
            None => all.push(unread(&file)),
        }
    }
    Ok(all)
}

fn plain(id: &str) -> Pipeline {
    Pipeline {
        file: pipeline_source(id),
        ..loaded(id, load(id, None), Status::BuiltIn)
    }
}

fn made(root: &Path, id: &str, file: &str, status: Status) -> Pipeline {
    Pipeline {
        file: format!("pipelines/{file}"),
        ..loaded(id, load(id, Some(root)), status)
    }
}

/// The built-in one, of which the operator's own cannot take the place.
fn ignored(id: &str, file: &str) -> Pipeline {
    let why = format!("it is ignored: {id} is not customizable");
    Pipeline {
        faults: Faults::of_file(&format!("pipelines/{file}"), why).0,
        ..plain(id)
    }
}

fn unread(file: &str) -> Pipeline {
    let path = format!("pipelines/{file}");
    Pipeline {
        id: file.to_owned(),
        status: Status::Additive,
        steps: Vec::new(),
        faults: Faults::of_file(&path, "it is not read: the name of a pipeline ends in .yml").0,
        file: path,
    }
}

fn loaded(id: &str, definition: Result<Definition, Faults>, status: Status) -> Pipeline {
    let (steps, faults) = match definition {
        Ok(definition) => (definition.steps.into_iter().map(step).collect(), Vec::new()),
        Err(Faults(faults)) => (Vec::new(), faults),
    };
    Pipeline {
        id: id.to_owned(),
        file: String::new(),
        status,
        steps,
        faults,
    }
}

fn step(step: StepDefinition) -> PipelineStep {
    let (module, status) = match &step.work {
        Work::BuiltIn(_) => (None, Status::BuiltIn),
        Work::Module(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let status = match StepKind::parse(&step.kind) {
                Some(_) => Status::Override,
                None => Status::Additive,
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
pub fn steps(root: &Path) -> io::Result<Vec<StepModule>> {
    let folder = root.join("steps");
    let mut own: BTreeMap<String, Option<String>> = names(&folder)?
        .into_iter()
        .map(|name| {
            let error = module(Some(&folder), &name).err();
            (name, error)
        })
        .collect();
    let custom = |name: &str| format!("steps/{name}");
    let mut all = Vec::new();
    for kind in StepKind::names() {
        let replaced = own.remove(kind);
        all.push(StepModule {
            id: kind.to_owned(),
            source: Some(step_source(kind)),
            custom: replaced.as_ref().map(|_| custom(kind)),
            status: match replaced {
                Some(_) => Status::Override,
                None => Status::BuiltIn,
            },
            error: replaced.flatten(),
        });
    }
    all.extend(own.into_iter().map(|(name, error)| StepModule {
        source: None,
        custom: Some(custom(&name)),
        status: Status::Additive,
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
