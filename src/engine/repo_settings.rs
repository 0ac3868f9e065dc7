//! Settings that the service reads from `.agent-implement/config.yml` on the default branch of a repository.
//!
//! Reading an unchanged file does not count against GitHub's rate limit.

use serde_json::Value;

use domain::ci_settings::{CiSettings, SETTINGS_FILE};
use domain::external_reviewers::{ExternalReviewConfig, ReviewInputs};
use domain::mapping::Mapping;
use vendors::scm::GitHub;

/// Settings of a repository. What is invalid has its default.
#[derive(Debug, Clone)]
pub(crate) struct RepoSettings {
    /// Reviewers that the repository names.
    pub reviewers: ExternalReviewConfig,
    /// Settings about failing checks.
    pub ci: CiSettings,
    /// Sentence about an invalid setting about failing checks.
    pub ci_error: Option<String>,
}

/// Reads the settings of the repository of a mapping.
///
/// # Errors
/// Returns a sentence if the file cannot be read now.
pub(crate) async fn fetch(github: &GitHub, mapping: &Mapping) -> Result<RepoSettings, String> {
    let repo = mapping.target_repo();
    let file = github
        .file(&repo, SETTINGS_FILE, &mapping.default_branch)
        .await
        .map_err(|error| error.to_string())?;
    let settings = parse(file.as_ref().map_or("", |file| file.text.as_str()));
    if let Some(error) = &settings.ci_error {
        tracing::warn!(%repo, error, "Invalid setting of a repository; the defaults are in force.");
    }
    Ok(settings)
}

fn parse(text: &str) -> RepoSettings {
    let file: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let review: ReviewInputs = serde_json::from_value(file.clone()).unwrap_or_default();
    let (ci, ci_error) = match CiSettings::read(&file["ci"]) {
        Ok(ci) => (ci, None),
        Err(error) => (CiSettings::default(), Some(error)),
    };
    RepoSettings {
        reviewers: ExternalReviewConfig::default().with_overrides(&review),
        ci,
        ci_error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_leaves_the_others_in_force() {
        let settings =
            parse("reviewProviders: [github-claude-code-review]\nci: {attempts: many}\n");
        assert!(settings.reviewers.claude_code_review);
        assert_eq!(settings.ci.attempts, CiSettings::default().attempts);
        assert!(settings.ci_error.is_some());
        let settings = parse("ci: {attempts: 1, rerun: false}\nreviewCheckNames: 7\n");
        assert_eq!((settings.ci.attempts, settings.ci.rerun), (1, false));
        assert!(settings.ci_error.is_none() && settings.reviewers.is_empty());
        for nothing in ["", "[", "# later\n"] {
            assert!(parse(nothing).ci_error.is_none(), "{nothing:?}");
        }
    }
}
