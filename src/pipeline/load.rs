//! Loading of pipelines: customized ones take precedence over built-in ones.

use std::borrow::Cow;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::definition::{self, DefinitionErrors, PipelineDefinition};

/// Maximum size of a definition, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Loads the pipeline with this id. A customized pipeline takes precedence over the built-in one,
/// except for planning.
///
/// # Errors
/// All errors in the definition.
pub fn load_pipeline(
    id: &str,
    root: Option<&Path>,
) -> Result<PipelineDefinition, DefinitionErrors> {
    let root = root.filter(|_| definition::is_customizable(id));
    let name = format!("{id}.yml");
    let custom = root.map(|root| read_definition(&root.join("pipelines").join(&name)));
    let (file, yaml) = match custom {
        Some(Ok(text)) => (format!("pipelines/{name}"), Cow::Owned(text)),
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
            return Err(DefinitionErrors::for_file(
                &format!("pipelines/{name}"),
                error,
            ));
        }
        _ => {
            let text = definition::built_in_source(id)
                .ok_or_else(|| DefinitionErrors::for_file(&name, "the pipeline does not exist"))?;
            (format!("built-in {name}"), Cow::Borrowed(text))
        }
    };
    let steps = root.map(|root| root.join("steps"));
    definition::parse_definition(id, &file, &yaml, &|name| {
        find_module(steps.as_deref(), name)
    })
}

/// Reads a definition file.
fn read_definition(path: &Path) -> Result<String, Error> {
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "the file is larger than 1 MiB",
        ));
    }
    fs::read_to_string(path)
}

/// Returns the operator's module with this name in the directory of steps, if it exists.
///
/// # Errors
/// The file exists and cannot be used.
pub(super) fn find_module(steps: Option<&Path>, name: &str) -> Result<Option<PathBuf>, String> {
    let Some(path) = steps.map(|dir| dir.join(name)) else {
        return Ok(None);
    };
    match path.metadata() {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(Some(path)),
        Ok(_) => Err(format!("steps/{name} is not an executable file")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("steps/{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{StepImplementation, StepKind};
    use domain::report::RunPhase;
    use std::fs::Permissions;

    fn parse(yaml: &str, steps: Option<&Path>) -> Result<PipelineDefinition, DefinitionErrors> {
        let find = |name: &str| find_module(steps, name);
        definition::parse_definition("x", "pipelines/x.yml", yaml, &find)
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
            let definition = load_pipeline(definition::pipeline_for_phase(phase), None).unwrap();
            assert_eq!(definition.steps.len(), 8, "{phase:?}");
        }
        let planning =
            load_pipeline(definition::pipeline_for_phase(RunPhase::Planning), None).unwrap();
        let ids: Vec<&str> = planning.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["clone", "setup", "plan"]);
    }

    #[test]
    fn errors_name_the_file_and_step() {
        let message = |yaml: &str| parse(yaml, None).unwrap_err().to_string();
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
                "step a: unknown type cook; use one of clone, ",
            ),
            (
                "id: x\nsteps: [{id: a}]",
                "step a: type or module is required",
            ),
            (
                "id: x\nsteps: [{id: a, module: ../x}]",
                "step a: \"../x\" is not a valid module name",
            ),
            (
                "id: x\nsteps: [{id: a, module: lint}]",
                "step a: module steps/lint does not exist",
            ),
            (
                "id: x\nsteps: [{id: a, type: clone}, {id: a, type: clone}]",
                "step a: the step id is used twice",
            ),
            (
                "id: x\nsteps: [{id: a, type: post-push-review, inputs: {reviewWaitPollMs: soon}}]",
                "step a: invalid inputs: ",
            ),
            ("id: x\nsteps: []", "the pipeline has no steps"),
            (
                "id: y\nsteps: [{id: a, type: clone}]",
                "the id is y, expected x",
            ),
        ];
        for (yaml, expected) in rows {
            let text = message(yaml);
            assert!(
                text.contains(&format!("\n- pipelines/x.yml: {expected}")),
                "{text}"
            );
        }
        assert!(message("nonsense: [").contains("- pipelines/x.yml: "));
        let many = parse(
            "id: x\nsteps: [{id: a, type: cook}, {id: b, type: plan}]",
            None,
        );
        assert_eq!(many.unwrap_err().0.len(), 2, "all errors are returned");
    }

    #[test]
    fn an_executable_adds_or_replaces_a_step() {
        let root = tempfile::tempdir().unwrap();
        let lint = executable(root.path(), "lint");
        let verify = executable(root.path(), "verify");
        std::fs::write(root.path().join("notes"), "").unwrap();
        let yaml = "id: x\nsteps: [{id: style, module: lint, inputs: {strict: true}}, {id: verify, type: verify}, {id: clone, type: clone}]";
        let steps = parse(yaml, Some(root.path())).unwrap().steps;
        assert_eq!(
            (steps[0].kind.as_str(), &steps[0].implementation),
            (
                "custom",
                &StepImplementation::Module {
                    path: lint,
                    kind: None
                }
            )
        );
        assert_eq!(steps[0].inputs["strict"], true);
        assert_eq!(
            (steps[1].kind.as_str(), &steps[1].implementation),
            (
                "verify",
                &StepImplementation::Module {
                    path: verify,
                    kind: Some(StepKind::Verify)
                }
            )
        );
        assert_eq!(
            steps[2].implementation,
            StepImplementation::BuiltIn(StepKind::Clone)
        );
        let notes = parse(
            "id: x\nsteps: [{id: notes, type: clone}]",
            Some(root.path()),
        );
        let text = notes.unwrap_err().to_string();
        assert!(
            text.contains("step notes: steps/notes is not an executable file"),
            "{text}"
        );
    }

    #[test]
    fn an_executable_in_place_of_a_preparation_step_prepares_too() {
        let root = tempfile::tempdir().unwrap();
        for name in ["install", "setup", "verify", "lint"] {
            executable(root.path(), name);
        }
        let yaml = "id: x\nsteps: [{id: install, type: install}, {id: own, type: setup, module: setup}, \
                    {id: verify, type: verify}, {id: lint}]";
        let steps = parse(yaml, Some(root.path())).unwrap().steps;
        let prepares: Vec<bool> = steps
            .iter()
            .map(|step| step.implementation.is_preparation())
            .collect();
        assert_eq!(prepares, [true, true, false, false]);
    }

    #[test]
    fn customized_pipelines_take_precedence() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["pipelines", "steps"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        std::fs::write(
            root.path().join("pipelines/autonomous.yml"),
            "id: autonomous\nsteps: [{id: get, type: clone}]",
        )
        .unwrap();
        let definition = load_pipeline("autonomous", Some(root.path())).unwrap();
        assert_eq!(definition.steps[0].id, "get");
        std::fs::write(
            root.path().join("pipelines/planning.yml"),
            "id: planning\nsteps: [{id: get, type: push}]",
        )
        .unwrap();
        executable(&root.path().join("steps"), "plan");
        let planning = load_pipeline("planning", Some(root.path())).unwrap();
        assert_eq!(
            planning.steps[0].id, "clone",
            "planning is not customizable"
        );
        assert_eq!(
            planning.steps[2].implementation,
            StepImplementation::BuiltIn(StepKind::Plan)
        );
    }
}
