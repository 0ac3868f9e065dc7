//! Pipelines as data: which steps a run goes through, and what is wrong with one.
//!
//! The built-in ones are embedded. A step is built in, or a module: an executable of the operator's
//! that the pipeline names, or one that is called like the step and takes its place. A definition is
//! judged as a whole, never in the middle of a run. (spec: *Admin API*)

use std::fmt;
use std::path::PathBuf;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value};

use domain::external_reviewers::ReviewInputs;
use domain::report::RunPhase;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/definitions");

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

/// The type of a step that is nothing but its module.
const CUSTOM: &str = "custom";

/// What a step does. (spec: *Admin API*)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Clone,
    Install,
    Setup,
    FeedbackLoop,
    Preflight,
    Push,
    Verify,
    PostPushReview,
    /// Planning's own; definitions of other pipelines may not name it.
    Plan,
}

/// Every type there is.
const KINDS: [(&str, StepKind); 9] = [
    ("clone", StepKind::Clone),
    ("install", StepKind::Install),
    ("setup", StepKind::Setup),
    ("feedback-loop", StepKind::FeedbackLoop),
    ("preflight", StepKind::Preflight),
    ("push", StepKind::Push),
    ("verify", StepKind::Verify),
    ("post-push-review", StepKind::PostPushReview),
    ("plan", StepKind::Plan),
];

impl StepKind {
    pub fn parse(name: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    /// The names that an operator's pipeline may use, in the order of a run.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let free = KINDS.iter().filter(|(_, kind)| *kind != StepKind::Plan);
        free.map(|(name, _)| *name)
    }

    /// Whether the step can be told this.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_inputs(self, inputs: &Map<String, Value>) -> Result<(), String> {
        match self {
            StepKind::PostPushReview => ReviewInputs::read(inputs).map(drop),
            _ => Ok(()),
        }
    }
}

/// A valid pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineDefinition {
    pub id: String,
    pub steps: Vec<StepDefinition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDefinition {
    pub id: String,
    /// The word of its type, as reports show it.
    pub kind: String,
    pub implementation: StepImplementation,
    /// What the pipeline hands to the step.
    pub inputs: Map<String, Value>,
}

/// Who does the work of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepImplementation {
    BuiltIn(StepKind),
    /// This executable.
    Module(PathBuf),
}

impl StepImplementation {
    /// Whether the step only prepares the environment of the others.
    pub fn is_preparation(&self) -> bool {
        use StepKind::{Clone, Install, Setup};
        matches!(self, StepImplementation::BuiltIn(Clone | Install | Setup))
    }
}

/// One thing that is wrong with a pipeline, in words for the one who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionError {
    pub file: String,
    pub step: Option<String>,
    pub reason: String,
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(step) => write!(f, "{}: step {step}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

/// Everything that is wrong with a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionErrors(pub Vec<DefinitionError>);

impl fmt::Display for DefinitionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pipeline cannot be loaded")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n- {fault}"))
    }
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
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    inputs: Map<String, Value>,
}

/// The pipeline of a phase.
pub fn pipeline_for_phase(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => PLANNING,
        RunPhase::Implementation => "autonomous",
        RunPhase::GapAnalysis => "gap-fill",
    }
}

/// The text of a built-in pipeline.
pub fn built_in_source(id: &str) -> Option<&'static str> {
    BUILT_IN.get_file(format!("{id}.yml"))?.contents_utf8()
}

/// The ids of the built-in pipelines.
pub fn built_in_ids() -> impl Iterator<Item = &'static str> {
    BUILT_IN
        .files()
        .filter_map(|file| file.path().file_stem()?.to_str())
}

/// Whether an operator's file of this name counts.
pub fn is_customizable(id: &str) -> bool {
    id != PLANNING
}

/// Looks for a module by its name; the error says what is wrong with what is there.
pub type ModuleResolver<'a> = dyn Fn(&str) -> Result<Option<PathBuf>, String> + 'a;

/// Reads a pipeline and judges it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_definition(
    id: &str,
    file: &str,
    yaml: &str,
    find: &ModuleResolver<'_>,
) -> Result<PipelineDefinition, DefinitionErrors> {
    Judge { id, file, find }.parse(yaml)
}

impl DefinitionErrors {
    /// One thing that is wrong with a file as a whole.
    pub fn for_file(file: &str, reason: impl ToString) -> Self {
        fault(file, None, reason)
    }
}

fn fault(file: &str, step: Option<&str>, reason: impl ToString) -> DefinitionErrors {
    DefinitionErrors(vec![DefinitionError {
        file: file.to_owned(),
        step: step.map(str::to_owned),
        reason: reason.to_string(),
    }])
}

/// What a file is judged by.
struct Judge<'a> {
    id: &'a str,
    file: &'a str,
    find: &'a ModuleResolver<'a>,
}

impl Judge<'_> {
    fn parse(&self, yaml: &str) -> Result<PipelineDefinition, DefinitionErrors> {
        let wrong = |reason: String| fault(self.file, None, reason);
        let raw: RawDefinition =
            serde_saphyr::from_str(yaml).map_err(|error| wrong(error.to_string()))?;
        if raw.id != self.id {
            return Err(wrong(format!("its id is {}, not {}", raw.id, self.id)));
        }
        if raw.steps.is_empty() {
            return Err(wrong("it has no steps".to_owned()));
        }
        let mut steps: Vec<StepDefinition> = Vec::with_capacity(raw.steps.len());
        let mut faults = Vec::new();
        for step in raw.steps {
            let id = step.id.clone();
            let judged = if steps.iter().any(|earlier| earlier.id == id) {
                Err("another step has this id".to_owned())
            } else {
                self.step(step)
            };
            match judged {
                Ok(step) => steps.push(step),
                Err(reason) => faults.extend(fault(self.file, Some(&id), reason).0),
            }
        }
        if !faults.is_empty() {
            return Err(DefinitionErrors(faults));
        }
        let id = raw.id;
        Ok(PipelineDefinition { id, steps })
    }

    fn step(&self, step: RawStep) -> Result<StepDefinition, String> {
        let kind = step.kind.as_deref();
        if let Some(planning) = kind
            .into_iter()
            .chain([step.id.as_str()])
            .find(|name| PLANNING_STEPS.contains(name))
        {
            return Err(format!(
                "{planning} is a planning step; planning runs in a workflow of its own and is no step type"
            ));
        }
        let module = match &step.module {
            Some(module) => Some(self.named(module)?),
            None => self.in_place_of(&step.id)?,
        };
        let known = kind.and_then(StepKind::parse);
        if known == Some(StepKind::Plan) && self.id != PLANNING {
            return Err("plan is a planning step, and no step type elsewhere".to_owned());
        }
        let work = match (module, known) {
            (Some(path), Some(_)) => StepImplementation::Module(path),
            (Some(path), None) if kind.is_none_or(|kind| kind == CUSTOM) => {
                StepImplementation::Module(path)
            }
            (None, Some(known)) => StepImplementation::BuiltIn(known),
            (None, None) if kind.is_none_or(|kind| kind == CUSTOM) => {
                return Err("it names neither a type nor a module".to_owned());
            }
            (_, None) => {
                return Err(format!(
                    "the type {} is unknown; types are {}, or {CUSTOM} with a module",
                    kind.unwrap_or_default(),
                    StepKind::names().collect::<Vec<_>>().join(", ")
                ));
            }
        };
        if let StepImplementation::BuiltIn(known) = &work {
            let unfit = |cause| format!("its inputs: {cause}");
            known.check_inputs(&step.inputs).map_err(unfit)?;
        }
        Ok(StepDefinition {
            kind: kind.unwrap_or(CUSTOM).to_owned(),
            id: step.id,
            implementation: work,
            inputs: step.inputs,
        })
    }

    /// The module that a pipeline names.
    fn named(&self, module: &str) -> Result<PathBuf, String> {
        if !is_valid_name(module) {
            return Err(format!("{module:?} is no name of a module"));
        }
        match self.in_place_of(module)? {
            Some(path) => Ok(path),
            None => Err(format!("there is no module steps/{module}")),
        }
    }

    /// The operator's own step of this name.
    fn in_place_of(&self, name: &str) -> Result<Option<PathBuf>, String> {
        if is_valid_name(name) {
            (self.find)(name)
        } else {
            Ok(None)
        }
    }
}

/// Names that lead nowhere else.
pub fn is_valid_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(known)
}
