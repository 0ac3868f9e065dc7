//! Pipeline definitions: their steps, and their validation.
//!
//! Built-in definitions are embedded. A step is built in, or a module: an executable of the
//! operator. The pipeline names the module, or the module has the name of a built-in step and
//! replaces it. A definition is validated as a whole before the run starts. See
//! docs/repository-settings.md#custom-pipelines-and-steps.

use std::fmt;
use std::path::PathBuf;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value};

use domain::external_reviewers::ReviewInputs;
use domain::report::RunPhase;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/definitions");

/// Id of the planning pipeline. Operators cannot replace it, because its workflow only has read
/// permissions.
const PLANNING: &str = "planning";

/// Step ids of planning, which has a separate workflow.
const PLANNING_STEPS: [&str; 6] = [
    "architecture-analysis",
    "test-plan",
    "work-unit-decomposition",
    "cross-story-context",
    "post-to-ticketing",
    "explore-codebase",
];

/// Type of a step that has no built-in implementation.
const CUSTOM: &str = "custom";

/// Type of a built-in step. See docs/repository-settings.md#pipeline-file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Clones the repository.
    Clone,
    /// Installs dependencies.
    Install,
    /// Runs the `setup` script.
    Setup,
    /// Implements and reviews until no fixable finding is left.
    FeedbackLoop,
    /// Runs the checks of the project before the push.
    Preflight,
    /// Pushes the branch and opens the pull request.
    Push,
    /// Runs the `verify` script.
    Verify,
    /// Reviews the pushed changes.
    PostPushReview,
    /// Writes the plan. Only allowed in the planning pipeline.
    Plan,
}

/// All types, by name.
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
    /// Parses the name of a type.
    pub fn parse(name: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    /// Returns the names of the types that operators can use, in the order of a run.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let allowed = KINDS.iter().filter(|(_, kind)| *kind != StepKind::Plan);
        allowed.map(|(name, _)| *name)
    }

    /// Checks the inputs of a step.
    ///
    /// # Errors
    /// The reason why the inputs are invalid.
    fn check_inputs(self, inputs: &Map<String, Value>) -> Result<(), String> {
        match self {
            StepKind::PostPushReview => ReviewInputs::read(inputs).map(drop),
            _ => Ok(()),
        }
    }
}

/// Valid pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineDefinition {
    /// Identifier of the pipeline.
    pub id: String,
    /// Steps, in order.
    pub steps: Vec<StepDefinition>,
}

/// Step of a valid pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDefinition {
    /// Identifier of the step, unique in the pipeline.
    pub id: String,
    /// Name of the type in reports.
    pub kind: String,
    /// Implementation.
    pub implementation: StepImplementation,
    /// Inputs from the pipeline.
    pub inputs: Map<String, Value>,
}

/// Implementation of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepImplementation {
    /// Built-in step.
    BuiltIn(StepKind),
    /// Executable of the operator.
    Module {
        /// Path of the executable.
        path: PathBuf,
        /// Built-in step in whose place it runs; `None` if the step is an additional one.
        kind: Option<StepKind>,
    },
}

impl StepImplementation {
    /// Returns whether the step only prepares the environment for later steps.
    pub fn is_preparation(&self) -> bool {
        let kind = match self {
            StepImplementation::BuiltIn(kind) => Some(*kind),
            StepImplementation::Module { kind, .. } => *kind,
        };
        matches!(
            kind,
            Some(StepKind::Clone | StepKind::Install | StepKind::Setup)
        )
    }
}

/// Error in a pipeline definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionError {
    /// Path of the definition.
    pub file: String,
    /// Id of the step. `None` if the error concerns the whole file.
    pub step: Option<String>,
    /// Reason, for the author of the file.
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

/// All errors in a pipeline definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionErrors(pub Vec<DefinitionError>);

impl fmt::Display for DefinitionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot load the pipeline")?;
        self.0.iter().try_for_each(|error| write!(f, "\n- {error}"))
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

/// Returns the id of the pipeline for a phase.
pub fn pipeline_for_phase(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => PLANNING,
        RunPhase::Implementation => "autonomous",
        RunPhase::GapAnalysis => "gap-fill",
    }
}

/// Returns the text of a built-in pipeline.
pub(crate) fn built_in_source(id: &str) -> Option<&'static str> {
    BUILT_IN.get_file(format!("{id}.yml"))?.contents_utf8()
}

/// Returns the ids of the built-in pipelines.
pub(crate) fn built_in_ids() -> impl Iterator<Item = &'static str> {
    BUILT_IN
        .files()
        .filter_map(|file| file.path().file_stem()?.to_str())
}

/// Returns whether an operator can replace the pipeline with this id.
pub(crate) fn is_customizable(id: &str) -> bool {
    id != PLANNING
}

/// Function that looks up a module by name. The error states why an existing file cannot be used.
pub type ModuleResolver<'a> = dyn Fn(&str) -> Result<Option<PathBuf>, String> + 'a;

/// Parses and validates a pipeline definition.
///
/// # Errors
/// All errors in the definition.
pub fn parse_definition(
    id: &str,
    file: &str,
    yaml: &str,
    resolve_module: &ModuleResolver<'_>,
) -> Result<PipelineDefinition, DefinitionErrors> {
    DefinitionParser {
        id,
        file,
        resolve_module,
    }
    .parse(yaml)
}

impl DefinitionErrors {
    /// Returns one error that concerns a whole file.
    pub(crate) fn for_file(file: &str, reason: impl ToString) -> Self {
        error(file, None, reason)
    }
}

fn error(file: &str, step: Option<&str>, reason: impl ToString) -> DefinitionErrors {
    DefinitionErrors(vec![DefinitionError {
        file: file.to_owned(),
        step: step.map(str::to_owned),
        reason: reason.to_string(),
    }])
}

/// Parser of one definition.
struct DefinitionParser<'a> {
    id: &'a str,
    file: &'a str,
    resolve_module: &'a ModuleResolver<'a>,
}

impl DefinitionParser<'_> {
    fn parse(&self, yaml: &str) -> Result<PipelineDefinition, DefinitionErrors> {
        let invalid = |reason: String| error(self.file, None, reason);
        let raw: RawDefinition =
            serde_saphyr::from_str(yaml).map_err(|error| invalid(error.to_string()))?;
        if raw.id != self.id {
            return Err(invalid(format!(
                "the id is {}, expected {}",
                raw.id, self.id
            )));
        }
        if raw.steps.is_empty() {
            return Err(invalid("the pipeline has no steps".to_owned()));
        }
        let mut steps: Vec<StepDefinition> = Vec::with_capacity(raw.steps.len());
        let mut errors = Vec::new();
        for step in raw.steps {
            let id = step.id.clone();
            let parsed = if steps.iter().any(|earlier| earlier.id == id) {
                Err("the step id is used twice".to_owned())
            } else {
                self.parse_step(step)
            };
            match parsed {
                Ok(step) => steps.push(step),
                Err(reason) => errors.extend(error(self.file, Some(&id), reason).0),
            }
        }
        if !errors.is_empty() {
            return Err(DefinitionErrors(errors));
        }
        let id = raw.id;
        Ok(PipelineDefinition { id, steps })
    }

    /// Validates one step.
    fn parse_step(&self, step: RawStep) -> Result<StepDefinition, String> {
        let kind = step.kind.as_deref();
        if let Some(planning) = kind
            .into_iter()
            .chain([step.id.as_str()])
            .find(|name| PLANNING_STEPS.contains(name))
        {
            return Err(format!(
                "{planning} is a planning step, which cannot be used here; planning has a separate workflow"
            ));
        }
        let module = match &step.module {
            Some(module) => Some(self.required_module(module)?),
            None => self.find_module(&step.id)?,
        };
        let known = kind.and_then(StepKind::parse);
        if known == Some(StepKind::Plan) && self.id != PLANNING {
            return Err("plan is a planning step, which cannot be used here".to_owned());
        }
        let implementation = match (module, known) {
            (Some(path), Some(_)) => StepImplementation::Module { path, kind: known },
            (Some(path), None) if kind.is_none_or(|kind| kind == CUSTOM) => {
                StepImplementation::Module { path, kind: None }
            }
            (None, Some(known)) => StepImplementation::BuiltIn(known),
            (None, None) if kind.is_none_or(|kind| kind == CUSTOM) => {
                return Err("type or module is required".to_owned());
            }
            (_, None) => {
                return Err(format!(
                    "unknown type {}; use one of {}, or {CUSTOM} with a module",
                    kind.unwrap_or_default(),
                    StepKind::names().collect::<Vec<_>>().join(", ")
                ));
            }
        };
        if let StepImplementation::BuiltIn(known) = &implementation {
            let invalid = |cause| format!("invalid inputs: {cause}");
            known.check_inputs(&step.inputs).map_err(invalid)?;
        }
        Ok(StepDefinition {
            kind: kind.unwrap_or(CUSTOM).to_owned(),
            id: step.id,
            implementation,
            inputs: step.inputs,
        })
    }

    /// Returns the module that a step names.
    fn required_module(&self, module: &str) -> Result<PathBuf, String> {
        if !is_valid_name(module) {
            return Err(format!("{module:?} is not a valid module name"));
        }
        match self.find_module(module)? {
            Some(path) => Ok(path),
            None => Err(format!("module steps/{module} does not exist")),
        }
    }

    /// Returns the operator's module with this name, if it exists.
    fn find_module(&self, name: &str) -> Result<Option<PathBuf>, String> {
        if is_valid_name(name) {
            (self.resolve_module)(name)
        } else {
            Ok(None)
        }
    }
}

/// Returns whether text is a valid name of a pipeline or module. Valid names contain no path
/// separators.
fn is_valid_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
}
