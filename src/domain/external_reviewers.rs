//! External reviewers of pushes, as configured in `.agent-implement/config.yml`. See
//! docs/behaviour.md#review-after-the-push.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Only supported review provider. See docs/behaviour.md#limits.
const CLAUDE_CODE_REVIEW: &str = "github-claude-code-review";

/// Default interval and timeout of waiting for reviewers.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(5_000);
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(300_000);

/// Minimum poll interval.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Slug of the App of the Claude Code review.
pub const CLAUDE_APP: &str = "claude";

/// External reviewers, and how long a run waits for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalReviewConfig {
    /// Whether the Claude Code review must approve.
    pub claude_code_review: bool,
    /// Check runs that must approve.
    pub checks: Vec<ReviewCheck>,
    /// Time between two polls.
    pub poll_interval: Duration,
    /// Maximum wait. A reviewer that has not finished by then has not approved.
    pub timeout: Duration,
}

/// Check run that reviews, written as `name@app` or `name`.
///
/// Anyone who can push a workflow can create a job of any name. A name without an App therefore
/// matches every App except `github-actions`. `name@github-actions` matches such a job explicitly.
/// A name that ends in `@word` must be written with its App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewCheck {
    /// Name of the check run.
    pub name: String,
    /// Slug of the only App that may report the check run.
    pub app: Option<String>,
}

/// Slug of the App that reports the jobs of workflows.
const WORKFLOWS_APP: &str = "github-actions";

impl ReviewCheck {
    /// Parses `name@app` or `name`.
    pub fn parse(text: &str) -> Self {
        let is_app = |word: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !word.is_empty() && word.chars().all(plain)
        };
        let text = text.trim();
        match text.rsplit_once('@').filter(|(_, app)| is_app(app)) {
            Some((name, app)) => Self {
                name: name.trim().to_owned(),
                app: Some(app.to_owned()),
            },
            None => Self {
                name: text.to_owned(),
                app: None,
            },
        }
    }

    /// Returns whether this App may report the check run.
    pub fn accepts_app(&self, app: &str) -> bool {
        match &self.app {
            Some(own) => own == app,
            None => !app.is_empty() && app != WORKFLOWS_APP,
        }
    }
}

impl Default for ExternalReviewConfig {
    fn default() -> Self {
        Self {
            claude_code_review: false,
            checks: Vec::new(),
            poll_interval: DEFAULT_POLL_INTERVAL,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

impl ExternalReviewConfig {
    /// Returns whether there are no external reviewers.
    pub fn is_empty(&self) -> bool {
        !self.claude_code_review && self.checks.is_empty()
    }

    /// Returns whether an App is one of the reviewers. Its review comments then count like those of
    /// a person.
    pub fn includes_app(&self, app: &str) -> bool {
        let is_named = |check: &ReviewCheck| check.app.as_deref() == Some(app);
        self.claude_code_review && app == CLAUDE_APP || self.checks.iter().any(is_named)
    }

    /// Returns the configuration with the inputs of a pipeline step applied.
    pub fn with_overrides(&self, inputs: &ReviewInputs) -> Self {
        let millis =
            |value: Option<u64>, default: Duration| value.map_or(default, Duration::from_millis);
        Self {
            claude_code_review: inputs
                .review_providers
                .as_ref()
                .map_or(self.claude_code_review, |names| {
                    names.iter().any(|name| name == CLAUDE_CODE_REVIEW)
                }),
            checks: inputs
                .review_check_names
                .as_ref()
                .map_or_else(|| self.checks.clone(), |names| parse_checks(names)),
            poll_interval: millis(inputs.review_wait_poll_ms, self.poll_interval)
                .max(MIN_POLL_INTERVAL),
            timeout: millis(inputs.review_wait_timeout_ms, self.timeout),
        }
    }
}

fn parse_checks(names: &[String]) -> Vec<ReviewCheck> {
    let names = names.iter().filter(|name| !name.trim().is_empty());
    names.map(|name| ReviewCheck::parse(name)).collect()
}

/// Reviewers as written in the settings of a repository or in the inputs of a step. Unknown
/// providers are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReviewInputs {
    /// Review providers, by name.
    pub review_providers: Option<Vec<String>>,
    /// Check runs, as `name@app` or `name`.
    pub review_check_names: Option<Vec<String>>,
    /// Time between two polls, in milliseconds.
    pub review_wait_poll_ms: Option<u64>,
    /// Maximum wait, in milliseconds.
    pub review_wait_timeout_ms: Option<u64>,
}

impl ReviewInputs {
    /// Parses the inputs of a pipeline step.
    ///
    /// # Errors
    /// The reason why the inputs are invalid.
    pub fn read(inputs: &Map<String, Value>) -> Result<Self, String> {
        Self::deserialize(inputs).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_checks_only_from_the_right_app() {
        for (written, name, right, wrong) in [
            ("lint", "lint", "lint-app", "github-actions"),
            ("lint", "lint", "lint-app", ""),
            ("lint@github-actions", "lint", "github-actions", "lint-app"),
            (
                " CodeRabbit@coderabbitai ",
                "CodeRabbit",
                "coderabbitai",
                "coderabbit",
            ),
            ("a@b@c", "a@b", "c", "b"),
            ("test @ Node 18", "test @ Node 18", "ci", "github-actions"),
        ] {
            let check = ReviewCheck::parse(written);
            assert_eq!(check.name, name, "{written}");
            assert!(
                check.accepts_app(right) && !check.accepts_app(wrong),
                "{written}"
            );
        }
        assert_eq!(parse_checks(&[" ".into()]), []);
    }

    #[test]
    fn includes_configured_apps() {
        let named = ExternalReviewConfig::default().with_overrides(&ReviewInputs {
            review_providers: Some(vec![CLAUDE_CODE_REVIEW.to_owned()]),
            review_check_names: Some(vec![
                "CodeRabbit@coderabbitai".to_owned(),
                "lint".to_owned(),
            ]),
            ..ReviewInputs::default()
        });
        assert!(named.includes_app("claude") && named.includes_app("coderabbitai"));
        assert!(!named.includes_app("lint") && !named.includes_app("somebody"));
        assert!(!ExternalReviewConfig::default().includes_app("claude"));
    }
}
