//! Pipelines as data: which steps a run goes through.
//!
//! The built-in ones are embedded; a file of the same name below `<custom root>/pipelines` takes
//! their place. A definition is judged when it is loaded, never in the middle of a run.
//! (spec: *Admin API*)

use std::borrow::Cow;
use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use super::steps::StepKind;
use crate::domain::report::RunPhase;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/pipeline/definitions");

/// The pipeline of planning. It is no operator's to change: a plan is made from what it reads, and
/// its workflow is given no right to do more.
const PLANNING: &str = "planning";

/// Step ids that belonged to planning, which has a workflow of its own.
const PLANNING_STEPS: [&str; 6] = [
    "architecture-analysis",
    "test-plan",
    "work-unit-decomposition",
    "cross-story-context",
    "post-to-ticketing",
    "explore-codebase",
];

/// A valid pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub id: String,
    pub steps: Vec<StepDefinition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDefinition {
    pub id: String,
    pub kind: StepKind,
}

/// Why a pipeline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("there is no pipeline {0}")]
    Unknown(String),
    #[error("reading pipeline {0}: {1}")]
    Unreadable(String, String),
    #[error("pipeline {0} has no steps")]
    Empty(String),
    #[error("pipeline {0}: two steps are called {1}")]
    Twice(String, String),
    #[error("pipeline {0}: step {1} has the unknown type {2}; types are {types}", types = StepKind::names())]
    Type(String, String, String),
    #[error(
        "pipeline {0}: {1} is a planning step; planning runs in a workflow of its own and is no step type"
    )]
    Planning(String, String),
    #[error("pipeline {0}: step {1} names a module; steps of one's own cannot be run yet")]
    Module(String, String),
}

#[derive(Deserialize)]
struct RawDefinition {
    id: String,
    #[serde(default)]
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
struct RawStep {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    module: Option<String>,
}

/// The pipeline of a phase.
pub fn pipeline_of(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => PLANNING,
        RunPhase::Implementation => "autonomous",
        RunPhase::GapAnalysis => "gap-fill",
    }
}

impl Definition {
    /// Loads a pipeline by its id, the operator's own before the built-in. Of planning there is the
    /// built-in only; a file in its place is ignored.
    ///
    /// # Errors
    /// What is wrong with it, in words for the one who wrote it.
    pub fn load(id: &str, custom_root: Option<&Path>) -> Result<Self, DefinitionError> {
        Self::parse(id, &source(id, custom_root)?)
    }

    fn parse(id: &str, yaml: &str) -> Result<Self, DefinitionError> {
        let unreadable = |cause: String| DefinitionError::Unreadable(id.to_owned(), cause);
        let raw: RawDefinition =
            serde_saphyr::from_str(yaml).map_err(|error| unreadable(error.to_string()))?;
        if raw.id != id {
            return Err(unreadable(format!("its id is {}", raw.id)));
        }
        if raw.steps.is_empty() {
            return Err(DefinitionError::Empty(raw.id));
        }
        let mut steps: Vec<StepDefinition> = Vec::with_capacity(raw.steps.len());
        for step in raw.steps {
            if steps.iter().any(|earlier| earlier.id == step.id) {
                return Err(DefinitionError::Twice(raw.id, step.id));
            }
            steps.push(valid_step(id, step)?);
        }
        Ok(Self { id: raw.id, steps })
    }
}

fn valid_step(pipeline: &str, step: RawStep) -> Result<StepDefinition, DefinitionError> {
    let pipeline = pipeline.to_owned();
    if let Some(planning) = [&step.kind, &step.id]
        .into_iter()
        .find(|name| PLANNING_STEPS.contains(&name.as_str()))
    {
        return Err(DefinitionError::Planning(pipeline, planning.clone()));
    }
    if step.module.is_some() {
        return Err(DefinitionError::Module(pipeline, step.id));
    }
    if step.kind == StepKind::Plan.as_str() && pipeline != PLANNING {
        return Err(DefinitionError::Planning(pipeline, step.kind));
    }
    match StepKind::parse(&step.kind) {
        Some(kind) => Ok(StepDefinition { id: step.id, kind }),
        None => Err(DefinitionError::Type(pipeline, step.id, step.kind)),
    }
}

fn source(id: &str, custom_root: Option<&Path>) -> Result<Cow<'static, str>, DefinitionError> {
    let name = format!("{id}.yml");
    let custom_root = custom_root.filter(|_| id != PLANNING);
    if let Some(path) = custom_root.map(|root| root.join("pipelines").join(&name)) {
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(text.into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(DefinitionError::Unreadable(
                    id.to_owned(),
                    error.to_string(),
                ));
            }
        }
    }
    BUILT_IN
        .get_file(&name)
        .and_then(|file| file.contents_utf8())
        .map(Cow::Borrowed)
        .ok_or_else(|| DefinitionError::Unknown(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_pipeline_loads() {
        for phase in [RunPhase::Implementation, RunPhase::GapAnalysis] {
            let definition = Definition::load(pipeline_of(phase), None).unwrap();
            assert_eq!(definition.steps.len(), 8, "{phase:?}");
        }
        let planning = Definition::load(pipeline_of(RunPhase::Planning), None).unwrap();
        let ids: Vec<&str> = planning.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["clone", "setup", "plan"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |yaml: &str| Definition::parse("x", yaml).unwrap_err().to_string();
        assert!(said("id: x\nsteps: [{id: a, type: test-plan}]").contains("planning step"));
        assert!(said("id: x\nsteps: [{id: explore-codebase, type: clone}]").contains("planning"));
        assert!(said("id: x\nsteps: [{id: a, type: plan}]").contains("plan is a planning step"));
        assert!(!said("id: x\nsteps: [{id: a, type: cook}]").contains("plan"));
        assert!(said("id: x\nsteps: [{id: a, type: cook}]").contains("unknown type cook"));
        assert!(said("id: x\nsteps: []").contains("no steps"));
        assert!(
            said("id: x\nsteps: [{id: a, type: clone}, {id: a, type: push}]").contains("two steps")
        );
        assert!(said("id: y\nsteps: [{id: a, type: clone}]").contains("its id is y"));
        assert!(said("nonsense: [").contains("reading pipeline x"));
    }

    #[test]
    fn the_operators_own_file_comes_first() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("pipelines")).unwrap();
        std::fs::write(
            root.path().join("pipelines/autonomous.yml"),
            "id: autonomous\nsteps: [{id: get, type: clone}]",
        )
        .unwrap();
        let definition = Definition::load("autonomous", Some(root.path())).unwrap();
        assert_eq!(definition.steps[0].id, "get");
        std::fs::write(
            root.path().join("pipelines/planning.yml"),
            "id: planning\nsteps: [{id: get, type: push}]",
        )
        .unwrap();
        let planning = Definition::load("planning", Some(root.path())).unwrap();
        assert_eq!(
            planning.steps[0].id, "clone",
            "planning is not customizable"
        );
    }
}
