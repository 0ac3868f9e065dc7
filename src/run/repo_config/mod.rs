//! What a repository says about how to work in it: `WORKFLOW.md`, for planning `PLANNING.md`;
//! `.agent-implement/config.yml`; and `CLAUDE.md`, `AGENTS.md`.
//!
//! All are read from the base branch, never from the branch that is being changed: an agent must
//! not write its own rules. (spec: *Run failure messages*)

mod settings;
mod validation;

use serde::Deserialize;

pub use domain::external_reviewers::{ExternalReviewConfig, ReviewCheck};
pub use settings::{FILE as SETTINGS_FILE, RepoSettings};
use validation::{KnownSetting, SettingKind};

use super::git::{Git, GitError};
use super::text;
use domain::report::RunPhase;

/// How much of a file is handed on?
const MAX_GUIDANCE: usize = 60_000;

/// The repository's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepoConfig {
    /// A script that runs before the model starts.
    pub setup: Option<String>,
    /// A script that runs after the push.
    pub verify: Option<String>,
    /// A script that runs at the very end, however the run ended.
    pub teardown: Option<String>,
    pub model: Option<String>,
    /// The model that reviews, when it is another.
    pub gap_analysis_model: Option<String>,
    pub settings: RepoSettings,
    /// Names that were set and have no effect, as sentences.
    pub unknown_settings: Vec<String>,
    /// What stands below the front matter, with the file's name.
    pub team_guidance: Vec<(String, String)>,
    /// `CLAUDE.md` or `AGENTS.md`, with its name.
    pub agent_guidance: Vec<(String, String)>,
}

/// The file that says how runs of this phase are made.
pub fn guidance_file(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Planning => "PLANNING.md",
        RunPhase::Implementation | RunPhase::GapAnalysis => "WORKFLOW.md",
    }
}

/// Why the repository's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RepoConfigError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("reading {0}: {1}")]
    Unreadable(&'static str, String),
}

/// What can be set in front matter.
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
    /// Reads the settings of a phase as they stand in a commit. A plan knows how the team works as
    /// well, but takes its settings from its own file only.
    pub async fn read(git: &Git, commit: &str, phase: RunPhase) -> Result<Self, RepoConfigError> {
        let mut config = Self::read_one(git, commit, guidance_file(phase)).await?;
        if phase == RunPhase::Planning {
            let work = Self::read_one(git, commit, guidance_file(RunPhase::Implementation)).await?;
            config.team_guidance.extend(work.team_guidance);
        }
        if let Some(text) = git.read_file(commit, settings::FILE).await? {
            let unreadable = |cause| RepoConfigError::Unreadable(settings::FILE, cause);
            config.settings = RepoSettings::parse(&text).map_err(unreadable)?;
            let unknown =
                validation::unknown_settings(settings::FILE, &text, settings::KNOWN_SETTINGS);
            config.unknown_settings.extend(unknown);
        }
        for name in ["CLAUDE.md", "AGENTS.md"] {
            if let Some(guidance) = git.read_file(commit, name).await? {
                config
                    .agent_guidance
                    .push((name.to_owned(), text::truncate(&guidance, MAX_GUIDANCE)));
            }
        }
        // One is often a link to, or a copy of, the other.
        config
            .agent_guidance
            .dedup_by(|one, other| one.1 == other.1);
        Ok(config)
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
        // In place of the first line, so that the parser counts lines as the file's reader does.
        let yaml = format!("\n{}", front.unwrap_or_default());
        let front: FrontMatter = match yaml.trim() {
            "" => FrontMatter::default(),
            _ => serde_saphyr::from_str(&yaml).map_err(|error| {
                let cause = validation::invalid_value(&yaml, FRONT_MATTER);
                unreadable(cause.unwrap_or_else(|| error.to_string()))
            })?,
        };
        let body = text::truncate(body.trim(), MAX_GUIDANCE);
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let word = |text: Option<String>| given(text).map(|text| text.trim().to_owned());
        Ok(Self {
            setup: given(front.setup),
            verify: given(front.verify),
            teardown: given(front.teardown),
            model: word(front.model),
            gap_analysis_model: word(front.gap_analysis_model),
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

/// For the fuzzer: every file that a repository may say something in.
pub fn fuzz_repo_config(text: &str) {
    let _ = RepoConfig::parse("WORKFLOW.md", text);
    let _ = RepoSettings::parse(text);
}

/// Splits front matter from the body. Only a first line of three dashes opens it.
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
    fn front_matter_is_read_and_the_body_is_guidance() {
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
        assert_eq!(config.unknown_settings, ["WORKFLOW.md: other is not known"]);
        let typo = RepoConfig::parse("WORKFLOW.md", "---\nmodle: big\n---\n").unwrap();
        let told = "WORKFLOW.md: modle is not known; did you mean model?";
        assert_eq!(typo.unknown_settings, [told]);
    }

    #[test]
    fn lines_are_counted_from_the_top_of_the_file() {
        let broken = "---\nmodel: x\nsetup: [\n---\n";
        let error = RepoConfig::parse("WORKFLOW.md", broken).unwrap_err();
        let said = error.to_string();
        // The list that is never closed begins in the third line and ends with the front matter.
        assert!(said.contains("line 3") || said.contains("line 4"), "{said}");
        let wrong = "---\nmodel: [x]\n---\n";
        let error = RepoConfig::parse("WORKFLOW.md", wrong).unwrap_err();
        let said = "reading WORKFLOW.md: model must be a text, not [\"x\"]";
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn a_file_without_front_matter_is_all_guidance() {
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
    fn broken_front_matter_is_said() {
        for broken in ["---\nsetup: x\n", "---\nsetup: [\n---\n"] {
            let error = RepoConfig::parse("PLANNING.md", broken)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("reading PLANNING.md: "), "{error}");
        }
    }
}
