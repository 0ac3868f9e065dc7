//! Who else reviews what we push, as a repository names them in `.agent-implement/config.yml`.
//! (spec: *Limits*)

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The one reviewer outside of a run whose verdicts can be read. (spec: *Limits*)
const CLAUDE_CODE_REVIEW: &str = "github-claude-code-review";

/// How often a reviewer is looked at, and for how long at most. (spec: *Limits*)
const REVIEW_WAIT_POLL: Duration = Duration::from_millis(5_000);
const REVIEW_WAIT_TIMEOUT: Duration = Duration::from_millis(300_000);

/// A host is asked no more often than this.
const SHORTEST_POLL: Duration = Duration::from_millis(200);

/// The App of that reviewer, by its name in addresses.
pub const CLAUDE_APP: &str = "claude";

/// Reviewers outside of the run, and how they are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalReviewConfig {
    /// Whether the vendor's own review of Claude Code counts.
    pub claude_code_review: bool,
    /// Check runs whose verdict counts.
    pub checks: Vec<ReviewCheck>,
    /// Time between two looks.
    pub poll_interval: Duration,
    /// Whoever has not ended by then has not approved.
    pub timeout: Duration,
}

/// A check run that reviews. Written `name@app`, or `name` alone.
///
/// Whoever may push a workflow can have a job of any name reported, so a name alone is that of any
/// App but [`WORKFLOWS`]; `name@github-actions` says that such a job is meant all the same. A name
/// that itself ends in `@word` must be written with its App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewCheck {
    pub name: String,
    /// The one App that may report it, by its name in addresses.
    pub app: Option<String>,
}

/// The App in whose name the host reports the jobs of workflows.
const WORKFLOWS: &str = "github-actions";

impl ReviewCheck {
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

    /// Whether an App may report it.
    pub fn accepts_app(&self, app: &str) -> bool {
        match &self.app {
            Some(own) => own == app,
            None => !app.is_empty() && app != WORKFLOWS,
        }
    }
}

impl Default for ExternalReviewConfig {
    fn default() -> Self {
        Self {
            claude_code_review: false,
            checks: Vec::new(),
            poll_interval: REVIEW_WAIT_POLL,
            timeout: REVIEW_WAIT_TIMEOUT,
        }
    }
}

impl ExternalReviewConfig {
    /// Whether there is anybody to wait for.
    pub fn is_empty(&self) -> bool {
        !self.claude_code_review && self.checks.is_empty()
    }

    /// Whether an App is one of them: what it says counts as a person's word does.
    pub fn includes_app(&self, app: &str) -> bool {
        let is_named = |check: &ReviewCheck| check.app.as_deref() == Some(app);
        self.claude_code_review && app == CLAUDE_APP || self.checks.iter().any(is_named)
    }

    /// These, with what the inputs of a pipeline's step say in their place.
    pub fn with_overrides(&self, inputs: &ReviewInputs) -> Self {
        let millis = |given: Option<u64>, or: Duration| given.map_or(or, Duration::from_millis);
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
                .map_or_else(|| self.checks.clone(), |names| named(names)),
            poll_interval: millis(inputs.review_wait_poll_ms, self.poll_interval)
                .max(SHORTEST_POLL),
            timeout: millis(inputs.review_wait_timeout_ms, self.timeout),
        }
    }
}

fn named(names: &[String]) -> Vec<ReviewCheck> {
    let given = names.iter().filter(|name| !name.trim().is_empty());
    given.map(|name| ReviewCheck::parse(name)).collect()
}

/// How reviewers are named, in a repository's settings and as a step's inputs. Unknown providers are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReviewInputs {
    pub review_providers: Option<Vec<String>>,
    pub review_check_names: Option<Vec<String>>,
    pub review_wait_poll_ms: Option<u64>,
    pub review_wait_timeout_ms: Option<u64>,
}

impl ReviewInputs {
    /// Reads what a pipeline tells the step.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(inputs: &Map<String, Value>) -> Result<Self, String> {
        Self::deserialize(inputs).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_counts_only_from_the_right_app() {
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
        assert_eq!(named(&[" ".into()]), []);
    }

    #[test]
    fn an_app_counts_when_it_is_named() {
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
