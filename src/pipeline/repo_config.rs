//! What a repository says about how to work in it: `WORKFLOW.md`, `CLAUDE.md`, `AGENTS.md`.
//!
//! All are read from the base branch, never from the branch that is being changed: an agent must
//! not write its own rules. (spec: *Run failure messages*)

use serde::Deserialize;

use super::git::{Git, GitError};
use super::text;

/// How much of a file is handed on?
const MAX_GUIDANCE: usize = 60_000;

/// The repository's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepoConfig {
    /// A script that runs before the model starts.
    pub setup: Option<String>,
    /// A script that runs after the push.
    pub verify: Option<String>,
    pub model: Option<String>,
    /// The body of `WORKFLOW.md`.
    pub team_guidance: String,
    /// `CLAUDE.md` or `AGENTS.md`, with its name.
    pub agent_guidance: Vec<(String, String)>,
}

/// Why the repository's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RepoConfigError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("reading WORKFLOW.md: {0}")]
    FrontMatter(String),
}

#[derive(Deserialize, Default)]
struct FrontMatter {
    #[serde(default)]
    setup: Option<String>,
    #[serde(default)]
    verify: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

impl RepoConfig {
    /// Reads the settings as they stand in a commit.
    pub async fn read(git: &Git, commit: &str) -> Result<Self, RepoConfigError> {
        let mut config = match git.file(commit, "WORKFLOW.md").await? {
            Some(workflow) => Self::parse(&workflow)?,
            None => Self::default(),
        };
        for name in ["CLAUDE.md", "AGENTS.md"] {
            if let Some(guidance) = git.file(commit, name).await? {
                config
                    .agent_guidance
                    .push((name.to_owned(), text::cut(&guidance, MAX_GUIDANCE)));
            }
        }
        // One is often a link to, or a copy of, the other.
        config
            .agent_guidance
            .dedup_by(|one, other| one.1 == other.1);
        Ok(config)
    }

    fn parse(workflow: &str) -> Result<Self, RepoConfigError> {
        let (front, body) = split(workflow)?;
        let front: FrontMatter = match front {
            Some(front) if !front.trim().is_empty() => serde_saphyr::from_str(front)
                .map_err(|error| RepoConfigError::FrontMatter(error.to_string()))?,
            _ => FrontMatter::default(),
        };
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Ok(Self {
            setup: given(front.setup),
            verify: given(front.verify),
            model: given(front.model).map(|model| model.trim().to_owned()),
            team_guidance: text::cut(body.trim(), MAX_GUIDANCE),
            agent_guidance: Vec::new(),
        })
    }
}

/// Splits front matter from the body. Only a first line of three dashes opens it.
fn split(workflow: &str) -> Result<(Option<&str>, &str), RepoConfigError> {
    let workflow = workflow.strip_prefix('\u{feff}').unwrap_or(workflow);
    let Some(rest) = workflow
        .strip_prefix("---\n")
        .or_else(|| workflow.strip_prefix("---\r\n"))
    else {
        return Ok((None, workflow));
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok((Some(&rest[..at]), &rest[at + line.len()..]));
        }
        at += line.len();
    }
    Err(RepoConfigError::FrontMatter(
        "the front matter has no closing ---".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_read_and_the_body_is_guidance() {
        let config = RepoConfig::parse(
            "---\nsetup: |\n  npm run build\n  echo done\nverify: ./check.sh\nmodel: some-model\nother: 1\n---\n\nUse tabs.\n",
        )
        .unwrap();
        assert_eq!(config.setup.as_deref(), Some("npm run build\necho done\n"));
        assert_eq!(config.verify.as_deref(), Some("./check.sh"));
        assert_eq!(config.model.as_deref(), Some("some-model"));
        assert_eq!(config.team_guidance, "Use tabs.");
    }

    #[test]
    fn a_file_without_front_matter_is_all_guidance() {
        for (text, body) in [
            ("Use tabs.\n---\nx", "Use tabs.\n---\nx"),
            ("", ""),
            ("---\n---\nbody", "body"),
            ("---\r\nsetup: ''\r\n---\r\nbody", "body"),
        ] {
            let config = RepoConfig::parse(text).unwrap();
            assert_eq!(config.team_guidance, body, "{text:?}");
            assert_eq!(config.setup, None);
        }
    }

    #[test]
    fn broken_front_matter_is_said() {
        for broken in ["---\nsetup: x\n", "---\nsetup: [\n---\n"] {
            let error = RepoConfig::parse(broken).unwrap_err().to_string();
            assert!(error.starts_with("reading WORKFLOW.md: "), "{error}");
        }
    }
}
