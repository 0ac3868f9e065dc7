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

/// End of a truncated description.
const TRUNCATION_MARK: &str = "\n\n[… description truncated: too long for a dispatch]";

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
    /// Callback settings. `None` if the run cannot report.
    pub callback: Option<RunCallback>,
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
    /// Returns the inputs of a dispatch. Unset values are omitted. The description is truncated and
    /// marked if the inputs exceed the limit of the host or of the environment.
    pub fn to_inputs(&self) -> RunInputs {
        let mut inputs = self.inputs_with(&self.issue_description);
        let total = Size::of(&inputs);
        let excess = Size {
            chars: total.chars.saturating_sub(MAX_INPUT_CHARS),
            bytes: total.bytes.saturating_sub(MAX_INPUT_BYTES),
        };
        if excess != Size::default() {
            inputs.insert(
                "issue_description".into(),
                self.shortened_description(excess),
            );
        }
        inputs
    }

    fn inputs_with(&self, description: &str) -> RunInputs {
        let number = |value: Option<u32>| value.map(|number| number.to_string());
        let lines = |lines: &[String]| (!lines.is_empty()).then(|| lines.join("\n"));
        let (provider, region) = match &self.provider {
            ModelProvider::Direct => ("direct", None),
            ModelProvider::Cloud { region } => ("cloud", Some(region.clone())),
        };
        let callback = self.callback.as_ref();
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
            ("options", self.options.to_input()),
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
                callback.map(|callback| callback.run_token.expose().to_owned()),
            ),
            (
                "run_progress_token",
                callback.map(|callback| callback.progress_token.expose().to_owned()),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|text| !text.is_empty())?)))
        .collect()
    }

    /// Truncates the description. Counts each character as JSON, where a line break or a quote
    /// takes two.
    fn shortened_description(&self, excess: Size) -> String {
        let mark = Size::of(&TRUNCATION_MARK);
        let mut to_free = Size {
            chars: excess.chars + mark.chars,
            bytes: excess.bytes + mark.bytes,
        };
        let mut kept = self.issue_description.as_str();
        while let Some((at, last)) = kept.char_indices().next_back()
            && to_free != Size::default()
        {
            let freed = Size::of(&last);
            to_free.chars = to_free.chars.saturating_sub(freed.chars - QUOTES);
            to_free.bytes = to_free.bytes.saturating_sub(freed.bytes - QUOTES);
            kept = &kept[..at];
        }
        format!("{kept}{TRUNCATION_MARK}")
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
                Some(text) => serde_json::from_str(&text)
                    .map_err(|_| RunConfigError::Invalid("runs_on", text))?,
            },
            callback,
        })
    }
}

/// Size of a value as compact JSON: in characters as the host counts them, and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    chars: usize,
    bytes: usize,
}

/// Number of quotes around a JSON string.
const QUOTES: usize = 2;

impl Size {
    fn of(value: &impl serde::Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_default();
        Self {
            chars: json.chars().map(host_chars).sum(),
            bytes: json.len(),
        }
    }
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
            },
            runs_on: vec!["self-hosted".into(), "linux".into()],
            callback: Some(RunCallback {
                url: "http://here".into(),
                run_token: Secret::new("a.b.c"),
                progress_token: Secret::new("d.e.f"),
            }),
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
