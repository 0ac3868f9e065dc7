//! Build of the runner image from this program.
//!
//! The image is the last stage of `packaging/docker/Dockerfile.runner`, with the program that is running in
//! place of one that an earlier stage compiles. So neither sources nor a compiler are needed.

use std::collections::BTreeMap;
use std::io;

use tokio::fs::File;

use crate::app::docker_client;
use crate::config::ContainerEngine;
use domain::agent::{CLAUDE, CODEX, GEMINI, NamedAgent};
use vendors::http::Redactor;
use vendors::session_hosts::{ImageBuild, ImageBuildError};

/// Dockerfile of the runner image.
const DOCKERFILE: &str = include_str!("../../packaging/docker/Dockerfile.runner");

/// Instruction that copies the compiled program, and its replacement.
const COPY_COMPILED: &str = "COPY --from=build /src/target/dist/agent-implement ";
const COPY_OWN: &str = "COPY agent-implement ";

/// Argument with the base image.
const BASE_IMAGE: &str = "BASE_IMAGE";

/// Argument with the version of the program.
const PROGRAM_VERSION: &str = "AGENT_IMPLEMENT_VERSION";

/// The running program. Also readable if an upgrade has replaced its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Label with the version of the program in an image.
pub(crate) const VERSION_LABEL: &str = "agent_implement_version";

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Versions of the agents in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentVersions {
    /// Claude Code.
    pub claude: String,
    /// OpenAI Codex.
    pub codex: String,
    /// Gemini CLI.
    pub gemini: String,
}

impl Default for AgentVersions {
    fn default() -> Self {
        let pinned = |agent: NamedAgent| agent.version.to_owned();
        Self {
            claude: pinned(CLAUDE),
            codex: pinned(CODEX),
            gemini: pinned(GEMINI),
        }
    }
}

/// Runner image to build.
#[derive(Debug, Clone)]
pub struct RunnerImage {
    /// Address of the container engine; `None` for the default socket.
    pub docker_host: Option<String>,
    /// Name and tag of the image.
    pub tag: String,
    /// Image that it is built on: Debian or Ubuntu with Node.js and npm.
    pub base: String,
    /// Versions of the agents.
    pub versions: AgentVersions,
}

/// Error of a build, as a sentence for operators.
#[derive(Debug, thiserror::Error)]
pub enum RunnerImageError {
    /// A value is invalid.
    #[error("{0}")]
    Invalid(String),
    /// No engine can be reached at the default address.
    #[error("there is no container engine at {0}. Install Docker or Podman, or set DOCKER_HOST")]
    NoEngine(ContainerEngine),
    /// The own program cannot be opened.
    #[error("cannot open this program: {0}")]
    Program(io::Error),
    /// The engine rejected the build, or a step of it failed.
    #[error("building the image failed: {0}{1}")]
    Build(ImageBuildError, &'static str),
    /// The build ended without an error, but the image does not state this version.
    #[error(
        "the engine reported no error, but the image {0} does not contain version {VERSION} of this program"
    )]
    NotBuilt(String),
}

impl RunnerImage {
    /// Returns the values of the Dockerfile's arguments.
    pub fn arguments(&self) -> BTreeMap<String, String> {
        let AgentVersions {
            claude,
            codex,
            gemini,
        } = &self.versions;
        [
            (BASE_IMAGE, self.base.as_str()),
            (PROGRAM_VERSION, VERSION),
            ("CLAUDE_CODE_VERSION", claude),
            ("CODEX_VERSION", codex),
            ("GEMINI_CLI_VERSION", gemini),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Builds the image with this program and passes every line of progress to `on_line`.
    ///
    /// # Errors
    /// Returns a sentence for operators.
    pub async fn build(
        &self,
        redactor: &Redactor,
        on_line: impl FnMut(&str),
    ) -> Result<(), RunnerImageError> {
        self.check()?;
        let engine = ContainerEngine::from_docker_host(self.docker_host.as_deref())
            .map_err(RunnerImageError::Invalid)?;
        if let ContainerEngine::Socket(path) = &engine
            && !path.exists()
        {
            return Err(RunnerImageError::NoEngine(engine));
        }
        let docker = docker_client(&engine, redactor).map_err(RunnerImageError::Invalid)?;
        let build = ImageBuild {
            tag: self.tag.clone(),
            dockerfile: dockerfile(),
            arguments: self.arguments(),
            program_name: "agent-implement",
            program: File::open(OWN_PROGRAM)
                .await
                .map_err(RunnerImageError::Program)?,
        };
        let built = docker.build_image(build, on_line).await;
        built.map_err(|error| {
            let advice = advice(&error);
            RunnerImageError::Build(error, advice)
        })?;
        let labels = docker.image_labels(&self.tag).await;
        let labels = labels.map_err(|error| RunnerImageError::Build(error.into(), ""))?;
        let version = labels.as_ref().and_then(|labels| labels.get(VERSION_LABEL));
        match version.is_some_and(|version| version == VERSION) {
            true => Ok(()),
            false => Err(RunnerImageError::NotBuilt(self.tag.clone())),
        }
    }

    fn check(&self) -> Result<(), RunnerImageError> {
        let versions = &self.versions;
        for (what, value, extra) in [
            ("the base image", &self.base, "./:@_-"),
            ("the tag", &self.tag, "./:_-"),
            ("the version of Claude Code", &versions.claude, ".+-"),
            ("the version of Codex", &versions.codex, ".+-"),
            ("the version of Gemini CLI", &versions.gemini, ".+-"),
        ] {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
            if value.is_empty() || value.starts_with('-') || !value.chars().all(is_valid) {
                return Err(RunnerImageError::Invalid(format!(
                    "{what} is not valid: {value:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Returns the Dockerfile of an image that contains the program of the build context.
pub fn dockerfile() -> String {
    let final_stage = DOCKERFILE.rfind("\nFROM ").map_or(0, |at| at + 1);
    let global = DOCKERFILE
        .lines()
        .take_while(|line| !line.starts_with("FROM "))
        .filter(|line| line.starts_with("ARG "));
    let global: String = global.map(|line| format!("{line}\n")).collect();
    global + &DOCKERFILE[final_stage..].replace(COPY_COMPILED, COPY_OWN)
}

/// Returns the value of an argument of the Dockerfile.
pub fn default_argument(name: &str) -> Option<&'static str> {
    let mut arguments = DOCKERFILE
        .lines()
        .filter_map(|line| line.strip_prefix("ARG ")?.split_once('='));
    arguments
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// Base image unless another one is named.
pub fn default_base() -> &'static str {
    default_argument(BASE_IMAGE).unwrap_or_default()
}

/// What to do about a failed step.
fn advice(error: &ImageBuildError) -> &'static str {
    let text = error.to_string();
    match text.contains("agent-implement --version") {
        true => {
            ". This program cannot run in that image: build on an image of the same processor with a C library that \
             is not older (--from), or use a released program"
        }
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_has_one_stage_that_copies_the_own_program() {
        let text = dockerfile();
        let from: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("FROM "))
            .collect();
        assert_eq!(from, ["FROM ${BASE_IMAGE}"], "{text}");
        assert!(text.starts_with("ARG BASE_IMAGE=node:"), "{text}");
        let copy = "\nCOPY agent-implement /usr/local/bin/agent-implement\n";
        assert_eq!(text.matches("\nCOPY ").count(), 1, "{text}");
        assert!(text.contains(copy), "{text}");
        assert!(!text.contains("cargo"), "{text}");
    }

    #[test]
    fn the_dockerfile_declares_every_argument_with_the_pinned_value() {
        let image = RunnerImage {
            docker_host: None,
            tag: "x".to_owned(),
            base: default_base().to_owned(),
            versions: AgentVersions::default(),
        };
        for (name, value) in image.arguments() {
            assert_eq!(default_argument(&name), Some(value.as_str()), "{name}");
        }
        let declared = DOCKERFILE.lines().filter(|line| line.starts_with("ARG "));
        assert_eq!(declared.count(), image.arguments().len());
        for agent in domain::agent::NAMED_AGENTS {
            assert!(
                DOCKERFILE.contains(&format!("\"{}@$", agent.package)),
                "{agent:?}"
            );
        }
    }

    #[test]
    fn refuses_values_that_are_no_names() {
        let image = |base: &str, version: &str| RunnerImage {
            docker_host: None,
            tag: "runner:local".to_owned(),
            base: base.to_owned(),
            versions: AgentVersions {
                codex: version.to_owned(),
                ..AgentVersions::default()
            },
        };
        assert!(
            image("ghcr.io/a/b:1@sha256:00", "1.2.3-beta.1")
                .check()
                .is_ok()
        );
        for (base, version) in [
            ("a b", "1"),
            ("", "1"),
            ("-x", "1"),
            ("a", "1;x"),
            ("a\nRUN x", "1"),
            ("a", ""),
        ] {
            assert!(
                image(base, version).check().is_err(),
                "{base:?} {version:?}"
            );
        }
    }
}
