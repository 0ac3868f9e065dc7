//! Pipelines as data: which steps a run goes through.
//!
//! The built-in ones are embedded; a file of the same name below `<custom root>/pipelines` takes
//! their place. A step is built in, or an executable below `<custom root>/steps`: one that the
//! pipeline names as its `module`, or one that is called like the step and takes its place. A
//! definition is judged as a whole when it is loaded, never in the middle of a run.
//! (spec: *Admin API*)

use std::borrow::Cow;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value};

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

/// The type of a step that is nothing but its module.
const CUSTOM: &str = "custom";

/// A valid pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub id: String,
    pub steps: Vec<StepDefinition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDefinition {
    pub id: String,
    /// The word of its type, as reports show it.
    pub kind: String,
    pub work: Work,
    /// What the pipeline hands to the step.
    pub inputs: Map<String, Value>,
}

/// Who does the work of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    BuiltIn(StepKind),
    /// This executable.
    Module(PathBuf),
}

impl Work {
    /// Whether the step only prepares the environment of the others.
    pub fn prepares(&self) -> bool {
        use StepKind::{Clone, Install, Setup};
        matches!(self, Work::BuiltIn(Clone | Install | Setup))
    }
}

/// One thing that is wrong with a pipeline, in words for the one who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub step: Option<String>,
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(step) => write!(f, "{}: step {step}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

/// Everything that is wrong with a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
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
pub fn pipeline_of(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => PLANNING,
        RunPhase::Implementation => "autonomous",
        RunPhase::GapAnalysis => "gap-fill",
    }
}

impl Definition {
    /// Loads a pipeline by its id, the operator's own before the built-in. Of planning there is the
    /// built-in only; what an operator has in its place is ignored.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(id: &str, custom_root: Option<&Path>) -> Result<Self, Faults> {
        let custom_root = custom_root.filter(|_| id != PLANNING);
        let name = format!("{id}.yml");
        let own = custom_root.map(|root| root.join("pipelines").join(&name));
        let (file, yaml) = match own.as_deref().map(std::fs::read_to_string) {
            Some(Ok(text)) => (format!("pipelines/{name}"), Cow::Owned(text)),
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                let file = format!("pipelines/{name}");
                return Err(fault(&file, None, error));
            }
            _ => (format!("built-in {name}"), built_in(&name)?),
        };
        let steps = custom_root.map(|root| root.join("steps"));
        Loader {
            id,
            file,
            steps: steps.as_deref(),
        }
        .parse(&yaml)
    }
}

fn built_in(name: &str) -> Result<Cow<'static, str>, Faults> {
    let text = BUILT_IN
        .get_file(name)
        .and_then(|file| file.contents_utf8());
    text.map(Cow::Borrowed)
        .ok_or_else(|| fault(name, None, "there is no such pipeline"))
}

fn fault(file: &str, step: Option<&str>, reason: impl ToString) -> Faults {
    Faults(vec![Fault {
        file: file.to_owned(),
        step: step.map(str::to_owned),
        reason: reason.to_string(),
    }])
}

/// What a file is judged by.
struct Loader<'a> {
    id: &'a str,
    file: String,
    /// Where the operator's own steps are.
    steps: Option<&'a Path>,
}

impl Loader<'_> {
    fn parse(&self, yaml: &str) -> Result<Definition, Faults> {
        let wrong = |reason: String| fault(&self.file, None, reason);
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
                Err(reason) => faults.extend(fault(&self.file, Some(&id), reason).0),
            }
        }
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let id = raw.id;
        Ok(Definition { id, steps })
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
            (Some(path), Some(_)) => Work::Module(path),
            (Some(path), None) if kind.is_none_or(|kind| kind == CUSTOM) => Work::Module(path),
            (None, Some(known)) => Work::BuiltIn(known),
            (None, None) if kind.is_none_or(|kind| kind == CUSTOM) => {
                return Err("it names neither a type nor a module".to_owned());
            }
            (_, None) => {
                return Err(format!(
                    "the type {} is unknown; types are {}, or {CUSTOM} with a module",
                    kind.unwrap_or_default(),
                    StepKind::names()
                ));
            }
        };
        if let Work::BuiltIn(known) = &work {
            let unfit = |cause| format!("its inputs: {cause}");
            known.check_inputs(&step.inputs).map_err(unfit)?;
        }
        Ok(StepDefinition {
            kind: kind.unwrap_or(CUSTOM).to_owned(),
            id: step.id,
            work,
            inputs: step.inputs,
        })
    }

    /// The module that a pipeline names.
    fn named(&self, module: &str) -> Result<PathBuf, String> {
        if !is_plain(module) {
            return Err(format!("{module:?} is no name of a module"));
        }
        match self.in_place_of(module)? {
            Some(path) => Ok(path),
            None => Err(format!("there is no module steps/{module}")),
        }
    }

    /// The operator's own step of this name.
    fn in_place_of(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let Some(path) = self
            .steps
            .filter(|_| is_plain(name))
            .map(|dir| dir.join(name))
        else {
            return Ok(None);
        };
        match path.metadata() {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                Ok(Some(path))
            }
            Ok(_) => Err(format!("steps/{name} is not an executable file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("steps/{name}: {error}")),
        }
    }
}

/// Names that lead nowhere else.
fn is_plain(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    fn parse(yaml: &str, steps: Option<&Path>) -> Result<Definition, Faults> {
        let file = "pipelines/x.yml".to_owned();
        Loader {
            id: "x",
            file,
            steps,
        }
        .parse(yaml)
    }

    fn executable(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

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
    fn what_is_wrong_is_said_with_file_and_step() {
        let said = |yaml: &str| parse(yaml, None).unwrap_err().to_string();
        let rows = [
            (
                "id: x\nsteps: [{id: a, type: test-plan}]",
                "step a: test-plan is a planning step",
            ),
            (
                "id: x\nsteps: [{id: explore-codebase, type: clone}]",
                "step explore-codebase: explore-codebase is a planning",
            ),
            (
                "id: x\nsteps: [{id: a, type: plan}]",
                "step a: plan is a planning step",
            ),
            (
                "id: x\nsteps: [{id: a, type: cook}]",
                "step a: the type cook is unknown; types are clone, ",
            ),
            (
                "id: x\nsteps: [{id: a}]",
                "step a: it names neither a type nor a module",
            ),
            (
                "id: x\nsteps: [{id: a, module: ../x}]",
                "step a: \"../x\" is no name of a module",
            ),
            (
                "id: x\nsteps: [{id: a, module: lint}]",
                "step a: there is no module steps/lint",
            ),
            (
                "id: x\nsteps: [{id: a, type: clone}, {id: a, type: clone}]",
                "step a: another step has this id",
            ),
            (
                "id: x\nsteps: [{id: a, type: post-push-review, inputs: {reviewWaitPollMs: soon}}]",
                "step a: its inputs: ",
            ),
            ("id: x\nsteps: []", "it has no steps"),
            ("id: y\nsteps: [{id: a, type: clone}]", "its id is y, not x"),
        ];
        for (yaml, words) in rows {
            let told = said(yaml);
            assert!(
                told.contains(&format!("\n- pipelines/x.yml: {words}")),
                "{told}"
            );
        }
        assert!(said("nonsense: [").contains("- pipelines/x.yml: "));
        let many = parse(
            "id: x\nsteps: [{id: a, type: cook}, {id: b, type: plan}]",
            None,
        );
        assert_eq!(many.unwrap_err().0.len(), 2, "all of it at once");
    }

    #[test]
    fn an_executable_is_a_step_or_takes_the_place_of_one() {
        let root = tempfile::tempdir().unwrap();
        let lint = executable(root.path(), "lint");
        let verify = executable(root.path(), "verify");
        std::fs::write(root.path().join("notes"), "").unwrap();
        let yaml = "id: x\nsteps: [{id: style, module: lint, inputs: {strict: true}}, {id: verify, type: verify}, {id: clone, type: clone}]";
        let steps = parse(yaml, Some(root.path())).unwrap().steps;
        assert_eq!(
            (steps[0].kind.as_str(), &steps[0].work),
            ("custom", &Work::Module(lint))
        );
        assert_eq!(steps[0].inputs["strict"], true);
        assert_eq!(
            (steps[1].kind.as_str(), &steps[1].work),
            ("verify", &Work::Module(verify))
        );
        assert_eq!(steps[2].work, Work::BuiltIn(StepKind::Clone));
        let notes = parse(
            "id: x\nsteps: [{id: notes, type: clone}]",
            Some(root.path()),
        );
        let told = notes.unwrap_err().to_string();
        assert!(
            told.contains("step notes: steps/notes is not an executable file"),
            "{told}"
        );
    }

    #[test]
    fn the_operators_own_file_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["pipelines", "steps"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
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
        executable(&root.path().join("steps"), "plan");
        let planning = Definition::load("planning", Some(root.path())).unwrap();
        assert_eq!(
            planning.steps[0].id, "clone",
            "planning is not customizable"
        );
        assert_eq!(planning.steps[2].work, Work::BuiltIn(StepKind::Plan));
    }
}
