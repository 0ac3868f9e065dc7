//! Repository configuration: `WORKFLOW.md` (`PLANNING.md` for planning), `.agent-implement/config.yml`,
//! and `CLAUDE.md` / `AGENTS.md`.
//!
//! All files are read from the base branch, never from the branch under work: an agent must not change
//! its own rules.

mod settings;
mod validation;

use serde::Deserialize;

pub(crate) use domain::external_reviewers::{ExternalReviewConfig, ReviewCheck};
pub(crate) use settings::{FILE as SETTINGS_FILE, RepoSettings};
use validation::{KnownSetting, SettingKind};

use crate::agent::AgentRole;
use crate::git::{Git, GitError};
use domain::report::RunPhase;
use domain::sanitize;

/// Maximum size of one guidance file, in bytes.
const MAX_GUIDANCE: usize = 60_000;

/// Repository configuration of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RepoConfig {
    /// Script that runs before the model starts.
    pub setup: Option<String>,
    /// Script that runs after the push.
    pub verify: Option<String>,
    /// Script that runs at the end, whatever the result.
    pub teardown: Option<String>,
    /// Model of all passes.
    pub model: Option<String>,
    /// Model of review passes, if different.
    pub gap_analysis_model: Option<String>,
    /// Settings of `.agent-implement/config.yml`.
    pub settings: RepoSettings,
    /// Messages about unknown settings.
    pub unknown_settings: Vec<String>,
    /// Text below the front matter, with the file name.
    pub team_guidance: Vec<(String, String)>,
    /// `CLAUDE.md` and `AGENTS.md`, with the file name.
    pub agent_guidance: Vec<(String, String)>,
}

/// Returns the guidance file of a phase.
pub(crate) fn guidance_file(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => "PLANNING.md",
        RunPhase::Implementation | RunPhase::GapAnalysis => "WORKFLOW.md",
    }
}

/// Error of reading the repository configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepoConfigError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file is malformed: file name and cause.
    #[error("cannot read {0}: {1}")]
    Unreadable(&'static str, String),
}

/// Settings of the front matter.
const FRONT_MATTER: &[KnownSetting] = &[
    ("setup", SettingKind::Text),
    ("verify", SettingKind::Text),
    ("teardown", SettingKind::Text),
    ("model", SettingKind::Text),
    ("gap_analysis_model", SettingKind::Text),
];

#[derive(Deserialize, Default)]
struct FrontMatter {
    #[serde(default)]
    setup: Option<String>,
    #[serde(default)]
    verify: Option<String>,
    #[serde(default)]
    teardown: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    gap_analysis_model: Option<String>,
}

impl RepoConfig {
    /// Reads the configuration of a phase from a commit. Planning also includes the guidance of
    /// `WORKFLOW.md`, but not its settings.
    ///
    /// # Errors
    /// If git fails or a file is malformed.
    pub(crate) async fn read(
        git: &Git,
        commit: &str,
        phase: RunPhase,
    ) -> Result<Self, RepoConfigError> {
        let mut config = Self::read_one(git, commit, guidance_file(phase)).await?;
        if phase == RunPhase::Planning {
            let workflow =
                Self::read_one(git, commit, guidance_file(RunPhase::Implementation)).await?;
            config.team_guidance.extend(workflow.team_guidance);
        }
        if let Some(text) = git.read_file(commit, settings::FILE).await? {
            let unreadable = |cause| RepoConfigError::Unreadable(settings::FILE, cause);
            config.settings = RepoSettings::parse(&text).map_err(unreadable)?;
            let unknown =
                validation::unknown_settings(settings::FILE, &text, settings::KNOWN_SETTINGS);
            config.unknown_settings.extend(unknown);
            config
                .unknown_settings
                .extend(settings::invalid_ci_setting(&text));
        }
        for name in ["CLAUDE.md", "AGENTS.md"] {
            if let Some(guidance) = git.read_file(commit, name).await? {
                let guidance = sanitize::truncate(guidance, MAX_GUIDANCE, sanitize::ELLIPSIS);
                config
                    .agent_guidance
                    .push((name.to_owned(), guidance.into_owned()));
            }
        }
        // `CLAUDE.md` and `AGENTS.md` are often links to, or copies of, each other.
        config
            .agent_guidance
            .dedup_by(|one, other| one.1 == other.1);
        Ok(config)
    }

    /// Returns the model of a pass; `None` leaves the choice to the agent. The guidance file takes
    /// precedence over the settings, and a review model over the general model.
    pub(crate) fn model(&self, role: AgentRole) -> Option<String> {
        let models = &self.settings.models;
        let choices: &[&Option<String>] = match role {
            AgentRole::Implement => &[&self.model, &models.implement],
            AgentRole::Review => &[
                &self.gap_analysis_model,
                &models.review,
                &self.model,
                &models.implement,
            ],
            AgentRole::Plan { .. } => &[&self.model, &models.plan],
        };
        choices.iter().find_map(|choice| (*choice).clone())
    }

    /// Removes all models.
    pub(crate) fn clear_models(&mut self) {
        self.model = None;
        self.gap_analysis_model = None;
        self.settings.models = settings::ModelSettings::default();
    }

    async fn read_one(
        git: &Git,
        commit: &str,
        name: &'static str,
    ) -> Result<Self, RepoConfigError> {
        match git.read_file(commit, name).await? {
            Some(text) => Self::parse(name, &text),
            None => Ok(Self::default()),
        }
    }

    fn parse(name: &'static str, text: &str) -> Result<Self, RepoConfigError> {
        let unreadable = |cause: String| RepoConfigError::Unreadable(name, cause);
        let (front, body) = split(text).map_err(|cause| unreadable(cause.to_owned()))?;
        // The newline replaces the opening line, so that error messages count lines of the whole file.
        let yaml = format!("\n{}", front.unwrap_or_default());
        let front: FrontMatter = match yaml.trim() {
            "" => FrontMatter::default(),
            _ => serde_saphyr::from_str(&yaml).map_err(|error| {
                let cause = validation::invalid_value(&yaml, FRONT_MATTER);
                unreadable(cause.unwrap_or_else(|| error.to_string()))
            })?,
        };
        let body = sanitize::truncate(body.trim(), MAX_GUIDANCE, sanitize::ELLIPSIS).into_owned();
        let non_empty = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let trimmed = |text: Option<String>| non_empty(text).map(|text| text.trim().to_owned());
        Ok(Self {
            setup: non_empty(front.setup),
            verify: non_empty(front.verify),
            teardown: non_empty(front.teardown),
            model: trimmed(front.model),
            gap_analysis_model: trimmed(front.gap_analysis_model),
            settings: RepoSettings::default(),
            unknown_settings: validation::unknown_settings(name, &yaml, FRONT_MATTER),
            team_guidance: (!body.is_empty())
                .then(|| (name.to_owned(), body))
                .into_iter()
                .collect(),
            agent_guidance: Vec::new(),
        })
    }
}

/// Fuzzing entry point: parses a text as every repository file.
pub fn fuzz_repo_config(text: &str) {
    let _ = RepoConfig::parse("WORKFLOW.md", text);
    let _ = RepoSettings::parse(text);
}

/// Splits front matter from the body. Only a first line `---` opens front matter.
fn split(workflow: &str) -> Result<(Option<&str>, &str), &'static str> {
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
    Err("the front matter has no closing ---")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_front_matter_and_guidance() {
        let config = RepoConfig::parse(
            "WORKFLOW.md",
            "---\nsetup: |\n  npm run build\n  echo done\nverify: ./check.sh\nmodel: some-model\nother: 1\n---\n\nUse tabs.\n",
        )
        .unwrap();
        assert_eq!(config.setup.as_deref(), Some("npm run build\necho done\n"));
        assert_eq!(config.verify.as_deref(), Some("./check.sh"));
        assert_eq!(config.model.as_deref(), Some("some-model"));
        let guidance = ("WORKFLOW.md".to_owned(), "Use tabs.".to_owned());
        assert_eq!(config.team_guidance, [guidance]);
        assert_eq!(
            config.unknown_settings,
            ["WORKFLOW.md: unknown setting other"]
        );
        let typo = RepoConfig::parse("WORKFLOW.md", "---\nmodle: big\n---\n").unwrap();
        let expected = "WORKFLOW.md: unknown setting modle; did you mean model?";
        assert_eq!(typo.unknown_settings, [expected]);
    }

    #[test]
    fn counts_lines_from_the_top_of_the_file() {
        let broken = "---\nmodel: x\nsetup: [\n---\n";
        let error = RepoConfig::parse("WORKFLOW.md", broken).unwrap_err();
        let message = error.to_string();
        // The unclosed list starts in line 3 and ends with the front matter.
        let names_line = message.contains("line 3") || message.contains("line 4");
        assert!(names_line, "{message}");
        let wrong = "---\nmodel: [x]\n---\n";
        let error = RepoConfig::parse("WORKFLOW.md", wrong).unwrap_err();
        let expected = "cannot read WORKFLOW.md: model must be a string, not [\"x\"]";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn treats_a_file_without_front_matter_as_guidance() {
        for (text, body) in [
            ("Use tabs.\n---\nx", "Use tabs.\n---\nx"),
            ("", ""),
            ("---\n---\nbody", "body"),
            ("---\r\nsetup: ''\r\n---\r\nbody", "body"),
        ] {
            let config = RepoConfig::parse("PLANNING.md", text).unwrap();
            let read = config.team_guidance.first();
            let read = read.map(|(_, body)| body.as_str()).unwrap_or_default();
            assert_eq!(read, body, "{text:?}");
            assert_eq!(config.setup, None);
        }
    }

    #[test]
    fn reports_malformed_front_matter() {
        for broken in ["---\nsetup: x\n", "---\nsetup: [\n---\n"] {
            let error = RepoConfig::parse("PLANNING.md", broken)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("cannot read PLANNING.md: "), "{error}");
        }
    }
}
