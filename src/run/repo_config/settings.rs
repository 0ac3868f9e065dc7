//! `.agent-implement/config.yml`: settings of runs in this repository. See docs/behaviour.md#limits.

use serde::Deserialize;
use serde_json::Value;

use super::validation::{self, KnownSetting, SettingKind};
pub(crate) use domain::ci_settings::SETTINGS_FILE as FILE;

use domain::ci_settings::CiSettings;
use domain::external_reviewers::{ExternalReviewConfig, ReviewInputs};
use domain::sensitive_files::AllowList;

/// Known settings of the file.
pub(super) const KNOWN_SETTINGS: &[KnownSetting] = &[
    ("agent", SettingKind::Text),
    ("packageManager", SettingKind::Text),
    (
        "models",
        SettingKind::Table(&[
            ("implement", SettingKind::Text),
            ("review", SettingKind::Text),
            ("plan", SettingKind::Text),
        ]),
    ),
    (
        "guard",
        SettingKind::Table(&[("allow", SettingKind::TextList)]),
    ),
    (
        "ci",
        SettingKind::Table(&[
            ("ignore", SettingKind::TextList),
            ("attempts", SettingKind::Integer),
            ("rerun", SettingKind::Text),
        ]),
    ),
    ("reviewProviders", SettingKind::TextList),
    ("reviewCheckNames", SettingKind::TextList),
    ("reviewWaitPollMs", SettingKind::Integer),
    ("reviewWaitTimeoutMs", SettingKind::Integer),
];

/// Settings of a repository. Every setting has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RepoSettings {
    /// Name of the agent.
    pub agent: Option<String>,
    /// Package manager for installation; `None` selects by lock file.
    pub package_manager: Option<String>,
    /// Models by kind of pass.
    pub models: ModelSettings,
    /// External reviewers to wait for.
    pub reviewers: ExternalReviewConfig,
    /// Settings of the sensitive-file guard.
    pub guard: GuardSettings,
}

/// Settings of the sensitive-file guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GuardSettings {
    /// Globs of allowed paths, from the repository's root.
    pub allow: Vec<String>,
}

/// Models by kind of pass. The model of the guidance file takes precedence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ModelSettings {
    /// Model of implement passes.
    pub implement: Option<String>,
    /// Model of review passes.
    pub review: Option<String>,
    /// Model of planning passes.
    pub plan: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct File {
    agent: Option<String>,
    guard: GuardSettings,
    package_manager: Option<String>,
    models: ModelSettings,
    #[serde(flatten)]
    review: ReviewInputs,
}

impl RepoSettings {
    /// Parses the file. Unknown settings are ignored, because a newer version may know them.
    ///
    /// # Errors
    /// The first invalid setting.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: Option<File> = serde_saphyr::from_str(text).map_err(|error| {
            validation::invalid_value(text, KNOWN_SETTINGS).unwrap_or_else(|| error.to_string())
        })?;
        let file = file.unwrap_or_default();
        AllowList::compile(&file.guard.allow).map_err(|error| error.to_string())?;
        Ok(Self {
            agent: file.agent,
            guard: file.guard,
            package_manager: file.package_manager,
            models: file.models,
            reviewers: ExternalReviewConfig::default().with_overrides(&file.review),
        })
    }
}

/// Returns a sentence about an invalid setting about failing checks. The service reads them; an invalid one has its
/// default and fails no run.
pub(super) fn invalid_ci_setting(text: &str) -> Option<String> {
    let file: Value = serde_saphyr::from_str(text).ok()?;
    CiSettings::read(&file["ci"]).err()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use domain::external_reviewers::ReviewCheck;

    #[test]
    fn the_template_lists_every_setting() {
        let template = include_str!("../../../templates/config.yml");
        assert_eq!(RepoSettings::parse(template), Ok(RepoSettings::default()));
        let keys = template
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with(char::is_alphabetic) && line.contains(": ["))
            .filter(|line| line.ends_with(']'));
        let set: Vec<&str> = keys.collect();
        let settings = RepoSettings::parse(&set.join("\n")).unwrap();
        // Every key, whatever its form.
        let keys = template
            .lines()
            .filter_map(|line| line.strip_prefix("# ")?.split_once(':'))
            .filter(|(key, _)| key.chars().all(char::is_alphanumeric))
            .filter(|(key, _)| !key.contains(' ') && *key != "implement");
        for (key, _) in keys {
            assert!(
                KNOWN_SETTINGS.iter().any(|(known, _)| *known == key),
                "{key}"
            );
        }
        assert!(settings.reviewers.claude_code_review, "{set:?}");
        assert_eq!(settings.reviewers.checks.len(), 2, "{set:?}");
    }

    #[test]
    fn every_setting_has_a_default() {
        for nothing in ["", "\n# later\n", "{}", "somethingNew: 1"] {
            assert_eq!(
                RepoSettings::parse(nothing),
                Ok(RepoSettings::default()),
                "{nothing:?}"
            );
        }
        let waits = ExternalReviewConfig::default();
        assert_eq!(
            (waits.poll_interval.as_millis(), waits.timeout.as_millis()),
            (5_000, 300_000)
        );
        assert!(waits.is_empty());
    }

    #[test]
    fn reads_settings_and_ignores_unknown_reviewers() {
        let text = "agent: codex\nguard: {allow: ['docs/**']}\npackageManager: pnpm\nmodels: {implement: big, review: small}\n\
                    reviewProviders: [github-claude-code-review, somebody]\nreviewCheckNames: [lint]\n\
                    reviewWaitPollMs: 1\nreviewWaitTimeoutMs: 9000\n";
        let settings = RepoSettings::parse(text).unwrap();
        assert_eq!(settings.agent.as_deref(), Some("codex"));
        assert_eq!(settings.guard.allow, ["docs/**"]);
        assert_eq!(settings.package_manager.as_deref(), Some("pnpm"));
        assert_eq!(settings.models.implement.as_deref(), Some("big"));
        let reviewers = ExternalReviewConfig {
            claude_code_review: true,
            checks: vec![ReviewCheck::parse("lint")],
            poll_interval: Duration::from_millis(200),
            timeout: Duration::from_secs(9),
        };
        assert_eq!(settings.reviewers, reviewers);
        let inputs = ReviewInputs {
            review_providers: Some(vec!["somebody".into()]),
            ..ReviewInputs::default()
        };
        let without = reviewers.with_overrides(&inputs);
        assert!(!without.claude_code_review);
        assert_eq!(without.checks, reviewers.checks);
    }

    #[test]
    fn rejects_invalid_settings() {
        for broken in [
            "reviewCheckNames: lint",
            "reviewWaitPollMs: soon",
            "models: [",
            "agent: [claude]",
            "guard: {allow: ['a[']}",
        ] {
            assert!(RepoSettings::parse(broken).is_err(), "{broken}");
        }
        let soon = RepoSettings::parse("reviewWaitPollMs: soon").unwrap_err();
        assert_eq!(
            soon,
            "reviewWaitPollMs must be a whole number, not \"soon\""
        );
    }

    #[test]
    fn an_invalid_setting_of_the_service_fails_no_run() {
        let text = "ci: {attempts: many}\n";
        assert_eq!(RepoSettings::parse(text), Ok(RepoSettings::default()));
        let sentence = invalid_ci_setting(text).unwrap();
        assert!(sentence.starts_with("ci.attempts in "), "{sentence}");
        for valid in ["", "ci: {attempts: 0}", "agent: codex"] {
            assert_eq!(invalid_ci_setting(valid), None, "{valid:?}");
        }
    }

    #[test]
    fn knows_every_setting_that_is_read() {
        let text = "agent: a\npackageManager: b\nmodels: {implement: c, review: d, plan: e}\n\
                    ci: {ignore: [x], attempts: 1, rerun: true}\nguard: {allow: []}\nreviewProviders: []\nreviewCheckNames: []\n\
                    reviewWaitPollMs: 1\nreviewWaitTimeoutMs: 2\n";
        assert_eq!(
            validation::unknown_settings(FILE, text, KNOWN_SETTINGS),
            [""; 0]
        );
        let known = text.lines().filter_map(|line| line.split_once(':'));
        assert_eq!(known.count(), KNOWN_SETTINGS.len());
    }
}
