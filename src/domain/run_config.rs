//! Inputs of a run: one flat JSON object of strings.
//!
//! CI receives them as `workflow_dispatch` inputs, machines and containers as the variable
//! `RUN_CONFIG`. The run parses them with [`RunConfig::from_inputs`]. Hosts fill omitted inputs
//! with empty strings, so an empty string always means absent.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::ids::{IssueId, IssueKey, JobId};
use super::issue::RelatedIssues;
use super::mapping::{ModelProvider, SessionMode};
use super::report::RunPhase;
use super::report_artifact::upload_permit;
use super::run_options::RunOptions;
use super::run_socket;
use super::secret::Secret;

/// Inputs of a run, by name.
pub type RunInputs = BTreeMap<String, String>;

/// Maximum size of the inputs of one dispatch, in characters of compact JSON: the limit of the host
/// (65,535), less 1 KiB for differences in counting.
const MAX_INPUT_CHARS: usize = 65_535 - 1_024;

/// Maximum size of the inputs, in bytes: the limit of Linux for one environment variable (128 KiB),
/// less its name and the spaces that the host adds. A run receives all inputs in one variable.
const MAX_INPUT_BYTES: usize = (128 << 10) - (4 << 10);

/// End of a truncated description or plan.
const TRUNCATION_MARK: &str = "\n\n[… truncated: too long for a dispatch]";

/// Share of the space for description and plan that the plan gets at least: a quarter.
const MIN_PLAN_SHARE: usize = 4;

/// Configuration of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    /// Job of the run, which is also its dispatch id.
    pub dispatch_id: JobId,
    /// Id of the issue.
    pub issue_id: IssueId,
    /// Key of the issue.
    pub issue_key: IssueKey,
    /// Title of the issue.
    pub issue_title: String,
    /// Description of the issue.
    pub issue_description: String,
    /// Phase of the run.
    pub phase: RunPhase,
    /// Number of the open pull request that a gap-fill or follow-up run works on.
    pub pr_number: Option<u64>,
    /// Branch that the run pushes to.
    pub branch: String,
    /// Instruction of an operator.
    pub instruction: Option<String>,
    /// Review findings to resolve, as text.
    pub findings: Option<String>,
    /// Related issues.
    pub related: RelatedIssues,
    /// Model provider.
    pub provider: ModelProvider,
    /// Container image of the run.
    pub runner_image: Option<String>,
    /// Maximum number of model turns per implement pass.
    pub max_turns: Option<u32>,
    /// Maximum number of implement and review cycles.
    pub max_iterations: Option<u32>,
    /// Time budget of the CI job, in minutes.
    pub job_timeout_minutes: Option<u32>,
    /// Session mode. `None` for CI runs, whose workflows have no such input.
    pub session_mode: Option<SessionMode>,
    /// Whether the run is a shadow run. It pushes its branch and opens no pull request.
    pub shadow: bool,
    /// Options without an input of their own.
    pub options: RunOptions,
    /// Labels of the GitHub Actions runner that executes the job. Empty for the default of the
    /// workflow.
    pub runs_on: Vec<String>,
    /// Callback settings. `None` if the run cannot report to the service.
    pub callback: Option<RunCallback>,
    /// Key with which a CI run without a callback signs its [report
    /// artifact](crate::report_artifact).
    pub report_key: Option<Secret>,
}

/// Base URL of requests through a socket. Its host name is never resolved.
const SOCKET_BASE_URL: &str = "http://agent-implement";

/// Callback address and tokens of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCallback {
    /// Base URL of the service, or `unix:` and the path of its socket.
    pub url: String,
    /// Token for one result.
    pub run_token: Secret,
    /// Token for any number of progress reports.
    pub progress_token: Secret,
}

impl RunCallback {
    /// Returns the URL of a route of the service. Through a socket, its host name has no meaning.
    pub fn route(&self, path: &str) -> String {
        let base = match self.socket() {
            Some(_) => SOCKET_BASE_URL,
            None => self.url.trim_end_matches('/'),
        };
        format!("{base}{path}")
    }

    /// Returns the path of the socket of the service; `None` if the URL is a network address.
    pub fn socket(&self) -> Option<&Path> {
        run_socket::socket_path(&self.url)
    }
}

/// Error in the inputs of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunConfigError {
    /// This input is missing.
    #[error("the run's input {0} is missing")]
    Missing(&'static str),
    /// This input has this invalid value.
    #[error("the run's input {0} is not valid: {1}")]
    Invalid(&'static str, String),
}

impl RunConfig {
    /// Returns the inputs of a dispatch. Unset values are omitted. If the inputs exceed the limit of the
    /// host or of the environment, plan and description are truncated and marked: the plan first, to no
    /// less than [`MIN_PLAN_SHARE`] of the space for both, then the description.
    pub fn to_inputs(&self) -> RunInputs {
        let (description, plan) = (&self.issue_description, self.options.plan.as_deref());
        let inputs = self.inputs_with(description, plan);
        if Size::of(&inputs).fits() {
            return inputs;
        }
        let plan = plan.map(|plan| {
            let share = Size::free_beside(&self.inputs_with("", None)).divided_by(MIN_PLAN_SHARE);
            longest_fitting(plan, |plan| {
                let is_small = Size::of(&json!(plan).to_string()).is_within(share);
                is_small || Size::of(&self.inputs_with(description, Some(plan))).fits()
            })
        });
        let description = longest_fitting(description, |description| {
            Size::of(&self.inputs_with(description, plan.as_deref())).fits()
        });
        self.inputs_with(&description, plan.as_deref())
    }

    fn inputs_with(&self, description: &str, plan: Option<&str>) -> RunInputs {
        let number = |value: Option<u32>| value.map(|number| number.to_string());
        let lines = |lines: &[String]| (!lines.is_empty()).then(|| lines.join("\n"));
        let (provider, region) = match &self.provider {
            ModelProvider::Direct => ("direct", None),
            ModelProvider::Cloud { region } => ("cloud", Some(region.clone())),
        };
        let callback = self.callback.as_ref();
        let options = RunOptions {
            plan: plan.map(str::to_owned),
            ..self.options.clone()
        };
        [
            ("dispatch_id", Some(self.dispatch_id.to_string())),
            ("issue_id", Some(self.issue_id.to_string())),
            ("issue_identifier", Some(self.issue_key.to_string())),
            ("issue_title", Some(self.issue_title.clone())),
            ("issue_description", Some(description.to_owned())),
            ("phase", Some(self.phase.as_str().to_owned())),
            ("pr_number", self.pr_number.map(|number| number.to_string())),
            ("branch", Some(self.branch.clone())),
            ("instruction", self.instruction.clone()),
            ("findings", self.findings.clone()),
            ("parent", self.related.parent.clone()),
            ("siblings", lines(&self.related.siblings)),
            ("dependencies", lines(&self.related.dependencies)),
            ("provider", Some(provider.to_owned())),
            ("cloud_region", region),
            ("runner_image", self.runner_image.clone()),
            ("max_turns", number(self.max_turns)),
            ("max_iterations", number(self.max_iterations)),
            ("job_timeout_minutes", number(self.job_timeout_minutes)),
            (
                "session_mode",
                self.session_mode.map(|mode| mode.as_str().to_owned()),
            ),
            ("shadow", self.shadow.then(|| "true".to_owned())),
            ("options", options.to_input()),
            (
                "runs_on",
                (!self.runs_on.is_empty()).then(|| json!(self.runs_on).to_string()),
            ),
            (
                "callback_url",
                callback.map(|callback| callback.url.clone()),
            ),
            (
                "run_token",
                callback
                    .map(|callback| &callback.run_token)
                    .or(self.report_key.as_ref())
                    .map(|token| token.expose().to_owned()),
            ),
            (
                "run_progress_token",
                callback
                    .map(|callback| callback.progress_token.clone())
                    .or_else(|| self.report_key.as_ref().map(upload_permit))
                    .map(|token| token.expose().to_owned()),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|text| !text.is_empty())?)))
        .collect()
    }

    /// Parses the inputs that a run was started with.
    ///
    /// # Errors
    /// A required input is missing, or an input is invalid.
    pub fn from_inputs(inputs: &RunInputs) -> Result<Self, RunConfigError> {
        let value = |name: &str| inputs.get(name).filter(|text| !text.is_empty()).cloned();
        let required = |name: &'static str| value(name).ok_or(RunConfigError::Missing(name));
        let lines = |name: &str| {
            value(name)
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default()
        };
        let phase = required("phase")?;
        let report_key = match value("callback_url") {
            Some(_) => None,
            None => value("run_token").map(Secret::new),
        };
        let callback = match (
            value("callback_url"),
            value("run_token"),
            value("run_progress_token"),
        ) {
            (Some(url), Some(run_token), Some(progress_token)) => Some(RunCallback {
                url,
                run_token: Secret::new(run_token),
                progress_token: Secret::new(progress_token),
            }),
            _ => None,
        };
        Ok(Self {
            dispatch_id: JobId::new(required("dispatch_id")?),
            issue_id: IssueId::new(required("issue_id")?),
            issue_key: IssueKey::new(required("issue_identifier")?),
            issue_title: required("issue_title")?,
            issue_description: value("issue_description").unwrap_or_default(),
            phase: RunPhase::parse(&phase).ok_or(RunConfigError::Invalid("phase", phase))?,
            pr_number: number(inputs, "pr_number")?,
            branch: required("branch")?,
            instruction: value("instruction"),
            findings: value("findings"),
            related: RelatedIssues {
                parent: value("parent"),
                siblings: lines("siblings"),
                dependencies: lines("dependencies"),
            },
            provider: match value("provider").as_deref() {
                None | Some("direct") => ModelProvider::Direct,
                Some("cloud") => ModelProvider::Cloud {
                    region: required("cloud_region")?,
                },
                Some(other) => return Err(RunConfigError::Invalid("provider", other.to_owned())),
            },
            runner_image: value("runner_image"),
            max_turns: number(inputs, "max_turns")?,
            max_iterations: number(inputs, "max_iterations")?,
            job_timeout_minutes: number(inputs, "job_timeout_minutes")?,
            session_mode: match value("session_mode") {
                None => None,
                Some(text) => Some(
                    SessionMode::parse(&text)
                        .ok_or(RunConfigError::Invalid("session_mode", text))?,
                ),
            },
            shadow: value("shadow").as_deref() == Some("true"),
            options: match value("options") {
                None => RunOptions::default(),
                Some(text) => {
                    RunOptions::from_input(&text).ok_or(RunConfigError::Invalid("options", text))?
                }
            },
            runs_on: match value("runs_on") {
                None => Vec::new(),
                Some(text) => serde_json::from_slice(text.as_bytes())
                    .map_err(|_| RunConfigError::Invalid("runs_on", text))?,
            },
            callback,
            report_key,
        })
    }
}

/// Size of a value as compact JSON: in characters as the host counts them, and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    chars: usize,
    bytes: usize,
}

impl Size {
    /// Maximum size of the inputs.
    const MAX: Self = Self {
        chars: MAX_INPUT_CHARS,
        bytes: MAX_INPUT_BYTES,
    };

    fn of(value: &impl serde::Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_default();
        Self {
            chars: json.chars().map(host_chars).sum(),
            bytes: json.len(),
        }
    }

    /// Returns the space that these inputs leave.
    fn free_beside(inputs: &RunInputs) -> Self {
        let used = Self::of(inputs);
        Self {
            chars: Self::MAX.chars.saturating_sub(used.chars),
            bytes: Self::MAX.bytes.saturating_sub(used.bytes),
        }
    }

    fn divided_by(self, divisor: usize) -> Self {
        Self {
            chars: self.chars / divisor,
            bytes: self.bytes / divisor,
        }
    }

    fn is_within(self, limit: Self) -> bool {
        self.chars <= limit.chars && self.bytes <= limit.bytes
    }

    fn fits(self) -> bool {
        self.is_within(Self::MAX)
    }
}

/// Returns the text, or its longest beginning that fits with the truncation mark. If nothing fits, the mark
/// alone.
fn longest_fitting(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_owned();
    }
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let truncated = |end: usize| format!("{}{TRUNCATION_MARK}", &text[..end]);
    // A shorter beginning never has a larger size.
    let fitting = ends.partition_point(|end| fits(&truncated(*end)));
    truncated(fitting.checked_sub(1).map_or(0, |last| ends[last]))
}

/// Returns how many characters the host counts for one character of compact JSON. Where its
/// counting may vary, the larger number is used: encoders escape characters with a meaning in HTML
/// or JavaScript (`\u003c`), and some count characters outside the basic plane as two.
fn host_chars(c: char) -> usize {
    match c {
        '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => 6,
        _ => c.len_utf16(),
    }
}

/// Parses a positive integer. Zero is rejected, because command-line tools may ignore a cap of
/// zero.
fn number<T: std::str::FromStr + PartialOrd + From<u8>>(
    inputs: &RunInputs,
    name: &'static str,
) -> Result<Option<T>, RunConfigError> {
    let Some(text) = inputs.get(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.parse::<T>() {
        Ok(number) if number >= T::from(1) => Ok(Some(number)),
        _ => Err(RunConfigError::Invalid(name, text.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RunConfig {
        RunConfig {
            dispatch_id: "01J".into(),
            issue_id: "uuid".into(),
            issue_key: "ENG-1".into(),
            issue_title: "A title".into(),
            issue_description: "Do it".into(),
            phase: RunPhase::Implementation,
            pr_number: None,
            branch: "agent-implement/eng-1-a-title".into(),
            instruction: None,
            findings: None,
            related: RelatedIssues {
                parent: None,
                siblings: vec!["ENG-2 b".into(), "ENG-3 c".into()],
                dependencies: vec![],
            },
            provider: ModelProvider::Cloud {
                region: "eu-west-1".into(),
            },
            runner_image: None,
            max_turns: Some(7),
            max_iterations: None,
            job_timeout_minutes: None,
            session_mode: None,
            shadow: false,
            options: RunOptions {
                agent: Some("codex".into()),
                model: None,
                program_sha256: Some("0".repeat(64)),
                program_url: Some("https://example.com/agent-implement".into()),
                ..RunOptions::default()
            },
            runs_on: vec!["self-hosted".into(), "linux".into()],
            callback: Some(RunCallback {
                url: "http://here".into(),
                run_token: Secret::new("a.b.c"),
                progress_token: Secret::new("d.e.f"),
            }),
            report_key: None,
        }
    }

    #[test]
    fn a_run_without_a_callback_gets_a_key_and_the_plan() {
        let mut config = config();
        config.callback = None;
        config.report_key = Some(Secret::new("key"));
        config.options.plan = Some("## Plan\n\n\"1\"".into());
        let inputs = config.to_inputs();
        assert_eq!(inputs["run_token"], "key");
        assert!(!inputs.contains_key("callback_url"));
        assert_eq!(RunConfig::from_inputs(&inputs), Ok(config));
    }

    #[test]
    fn truncates_the_plan_before_the_description_but_keeps_a_share_for_it() {
        let plan_of = |inputs: &RunInputs| RunOptions::from_input(&inputs["options"]).unwrap().plan;
        for (description, plan, whole_description) in [
            (20_000, 60_000, true),
            (45_000, 60_000, true),
            (70_000, 5_000, false),
            (70_000, 70_000, false),
        ] {
            for filler in ["x", "\n", "ä", "<"] {
                let length = |chars: usize| chars / Size::of(&filler).chars.max(3) * 3;
                let mut long = config();
                long.issue_description = filler.repeat(length(description));
                long.options.plan = Some(filler.repeat(length(plan)));
                let inputs = long.to_inputs();
                let size = Size::of(&inputs);
                assert!(size.fits(), "{filler:?} {description} {plan}");
                let plan = plan_of(&inputs).unwrap();
                let (plan, kept) = (Size::of(&plan).chars, &inputs["issue_description"]);
                assert!(plan > 3_000, "{filler:?}: {plan} characters of the plan");
                if filler == "x" {
                    let is_whole = *kept == long.issue_description;
                    assert_eq!(is_whole, whole_description, "{description}");
                    assert!(is_whole || plan < MAX_INPUT_CHARS / 3, "{plan}");
                }
            }
        }
    }

    #[test]
    fn parses_dispatched_inputs() {
        let inputs = config().to_inputs();
        assert!(inputs.len() <= 25);
        assert!(
            !inputs.contains_key("max_iterations"),
            "unset values are omitted"
        );
        assert_eq!(RunConfig::from_inputs(&inputs), Ok(config()));
    }

    #[test]
    fn empty_inputs_are_absent() {
        let mut inputs = config().to_inputs();
        inputs.insert("max_iterations".into(), String::new());
        inputs.insert("pr_number".into(), String::new());
        assert_eq!(RunConfig::from_inputs(&inputs), Ok(config()));
    }

    #[test]
    fn truncates_a_long_description_to_the_limit() {
        for filler in ["x", "\n", "\"", "ä", "𝄞", "<", "\u{1}"] {
            let mut long = config();
            long.issue_description = filler.repeat(70_000);
            let inputs = long.to_inputs();
            let Size { chars, bytes } = Size::of(&inputs);
            assert!(chars <= MAX_INPUT_CHARS, "{filler:?}");
            assert!(bytes <= MAX_INPUT_BYTES, "{filler:?}");
            assert!(
                chars > MAX_INPUT_CHARS - 10 || bytes > MAX_INPUT_BYTES - 10,
                "no more is removed than necessary: {filler:?}"
            );
            assert!(inputs["issue_description"].ends_with(TRUNCATION_MARK));
            assert_eq!(inputs["run_token"], "a.b.c");
        }
    }

    #[test]
    fn a_callback_goes_to_an_address_or_through_a_socket() {
        let callback = |url: &str| RunCallback {
            url: url.to_owned(),
            ..config().callback.unwrap()
        };
        let network = callback("https://agents.example.com/");
        assert_eq!(network.route("/a"), "https://agents.example.com/a");
        assert_eq!(network.socket(), None);
        let socket = callback(&run_socket::callback_url());
        assert_eq!(socket.route("/a"), "http://agent-implement/a");
        let path = Path::new("/run/agent-implement/service.sock");
        assert_eq!(socket.socket(), Some(path));
    }

    #[test]
    fn rejects_an_invalid_number() {
        for bad in ["0", "-1", "many"] {
            let mut inputs = config().to_inputs();
            inputs.insert("max_turns".into(), bad.into());
            assert_eq!(
                RunConfig::from_inputs(&inputs),
                Err(RunConfigError::Invalid("max_turns", bad.into()))
            );
        }
    }
}
