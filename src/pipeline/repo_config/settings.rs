//! `.agent-implement/config.yml`: how runs are made in this repository. (spec: *Limits*)

use std::time::Duration;

use serde::Deserialize;

use crate::domain::pipeline::ReviewInputs;
use crate::domain::sensitive::AllowList;

/// Where it stands, from the repository's root.
pub const FILE: &str = ".agent-implement/config.yml";

/// The one reviewer outside of a run whose verdicts can be read. (spec: *Limits*)
const CLAUDE_CODE_REVIEW: &str = "github-claude-code-review";

/// How often a reviewer is looked at, and for how long at most. (spec: *Limits*)
const REVIEW_WAIT_POLL: Duration = Duration::from_millis(5_000);
const REVIEW_WAIT_TIMEOUT: Duration = Duration::from_millis(300_000);

/// A host is asked no more often than this.
const SHORTEST_POLL: Duration = Duration::from_millis(200);

/// A repository's settings; every one has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The name of the agent that is to work here.
    pub agent: Option<String>,
    /// The package manager to install with; none means the one that the lock file names.
    pub package_manager: Option<String>,
    pub models: Models,
    pub reviewers: Reviewers,
    /// Files that the guard lets pass.
    pub guard: GuardSettings,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct GuardSettings {
    /// Globs over paths from the root.
    pub allow: Vec<String>,
}

/// The model of each kind of pass, where it is not the one of the file of guidance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Models {
    pub implement: Option<String>,
    pub review: Option<String>,
    pub plan: Option<String>,
}

/// Reviewers outside of the run, and how they are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewers {
    /// Whether the vendor's own review of Claude Code counts.
    pub claude_code_review: bool,
    /// Check runs whose verdict counts.
    pub checks: Vec<NamedCheck>,
    /// Time between two looks.
    pub poll: Duration,
    /// Whoever has not ended by then has not approved.
    pub timeout: Duration,
}

/// A check run that reviews. Written `name@app`, or `name` alone.
///
/// Whoever may push a workflow can have a job of any name reported, so a name alone is that of any
/// App but [`WORKFLOWS`]; `name@github-actions` says that such a job is meant all the same. A name
/// that itself ends in `@word` must be written with its App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCheck {
    pub name: String,
    /// The one App that may report it, by its name in addresses.
    pub app: Option<String>,
}

/// The App in whose name the host reports the jobs of workflows.
const WORKFLOWS: &str = "github-actions";

impl NamedCheck {
    fn parse(text: &str) -> Self {
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
    pub fn may_be_of(&self, app: &str) -> bool {
        match &self.app {
            Some(own) => own == app,
            None => !app.is_empty() && app != WORKFLOWS,
        }
    }
}

impl Default for Reviewers {
    fn default() -> Self {
        Self {
            claude_code_review: false,
            checks: Vec::new(),
            poll: REVIEW_WAIT_POLL,
            timeout: REVIEW_WAIT_TIMEOUT,
        }
    }
}

impl Reviewers {
    /// Whether there is anybody to wait for.
    pub fn is_empty(&self) -> bool {
        !self.claude_code_review && self.checks.is_empty()
    }

    /// These, with what the inputs of a pipeline's step say in their place.
    pub fn with(&self, inputs: &ReviewInputs) -> Self {
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
            poll: millis(inputs.review_wait_poll_ms, self.poll).max(SHORTEST_POLL),
            timeout: millis(inputs.review_wait_timeout_ms, self.timeout),
        }
    }
}

fn named(names: &[String]) -> Vec<NamedCheck> {
    let given = names.iter().filter(|name| !name.trim().is_empty());
    given.map(|name| NamedCheck::parse(name)).collect()
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct File {
    agent: Option<String>,
    guard: GuardSettings,
    package_manager: Option<String>,
    models: Models,
    #[serde(flatten)]
    review: ReviewInputs,
}

impl Settings {
    /// Reads the file's text. What is not known in it is left alone: a newer version may know it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Option<File> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let file = file.unwrap_or_default();
        AllowList::compile(&file.guard.allow).map_err(|error| error.to_string())?;
        Ok(Self {
            agent: file.agent,
            guard: file.guard,
            package_manager: file.package_manager,
            models: file.models,
            reviewers: Reviewers::default().with(&file.review),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_says_what_can_be_set() {
        let template = include_str!("../../../templates/config.yml");
        assert_eq!(Settings::parse(template), Ok(Settings::default()));
        let keys = template
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with(char::is_alphabetic) && line.contains(": ["))
            .filter(|line| line.ends_with(']'));
        let set: Vec<&str> = keys.collect();
        let settings = Settings::parse(&set.join("\n")).unwrap();
        assert!(settings.reviewers.claude_code_review, "{set:?}");
        assert_eq!(settings.reviewers.checks.len(), 2, "{set:?}");
    }

    #[test]
    fn every_setting_has_a_default() {
        for nothing in ["", "\n# later\n", "{}", "somethingNew: 1"] {
            assert_eq!(
                Settings::parse(nothing),
                Ok(Settings::default()),
                "{nothing:?}"
            );
        }
        let waits = Reviewers::default();
        assert_eq!(
            (waits.poll.as_millis(), waits.timeout.as_millis()),
            (5_000, 300_000)
        );
        assert!(waits.is_empty());
    }

    #[test]
    fn settings_are_read_and_unknown_reviewers_left_out() {
        let text = "agent: codex\nguard: {allow: ['docs/**']}\npackageManager: pnpm\nmodels: {implement: big, review: small}\n\
                    reviewProviders: [github-claude-code-review, somebody]\nreviewCheckNames: [lint]\n\
                    reviewWaitPollMs: 1\nreviewWaitTimeoutMs: 9000\n";
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.agent.as_deref(), Some("codex"));
        assert_eq!(settings.guard.allow, ["docs/**"]);
        assert_eq!(settings.package_manager.as_deref(), Some("pnpm"));
        assert_eq!(settings.models.implement.as_deref(), Some("big"));
        let reviewers = Reviewers {
            claude_code_review: true,
            checks: named(&["lint".into()]),
            poll: SHORTEST_POLL,
            timeout: Duration::from_secs(9),
        };
        assert_eq!(settings.reviewers, reviewers);
        let inputs = ReviewInputs {
            review_providers: Some(vec!["somebody".into()]),
            ..ReviewInputs::default()
        };
        let without = reviewers.with(&inputs);
        assert!(!without.claude_code_review);
        assert_eq!(without.checks, reviewers.checks);
    }

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
            let check = NamedCheck::parse(written);
            assert_eq!(check.name, name, "{written}");
            assert!(
                check.may_be_of(right) && !check.may_be_of(wrong),
                "{written}"
            );
        }
        assert_eq!(named(&[" ".into()]), []);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for broken in [
            "reviewCheckNames: lint",
            "reviewWaitPollMs: soon",
            "models: [",
            "agent: [claude]",
            "guard: {allow: ['a[']}",
        ] {
            assert!(Settings::parse(broken).is_err(), "{broken}");
        }
    }
}
