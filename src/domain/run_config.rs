//! What we hand to a run: one flat JSON object of strings.
//!
//! CI takes it as `workflow_dispatch` inputs, machines and containers as the variable
//! `RUN_CONFIG`; the run reads it back with [`RunConfig::from_inputs`]. A host fills inputs that
//! were left out with empty strings, so an empty string always means absent.

use std::collections::BTreeMap;

use super::ids::{IssueId, IssueKey, JobId};
use super::issue::RelatedIssues;
use super::mapping::{ModelProvider, SessionMode};
use super::report::RunPhase;
use super::secret::Secret;

/// Flat inputs, by name.
pub type RunInputs = BTreeMap<String, String>;

/// Characters of the inputs of one dispatch as compact JSON: the host's limit of 65,535 (facts 2), less
/// 1 KiB for what it may count differently.
pub const MAX_INPUT_CHARS: usize = 65_535 - 1_024;

/// What a Linux program takes in one variable of its environment, 128 KiB, less some room for its
/// name and for the spaces that a host sets between the inputs. A run gets all of them in one.
const MAX_INPUT_BYTES: usize = (128 << 10) - (4 << 10);

/// Told in place of what was cut from a description.
const CUT_MARK: &str =
    "\n\n[… the description was cut here: it is longer than a dispatch may carry]";

/// Everything a run needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    pub dispatch_id: JobId,
    pub issue_id: IssueId,
    pub issue_key: IssueKey,
    pub issue_title: String,
    pub issue_description: String,
    pub phase: RunPhase,
    /// The open pull request that a gap-fill or follow-up works on.
    pub pr_number: Option<u64>,
    pub branch: String,
    pub instruction: Option<String>,
    pub findings: Option<String>,
    pub related: RelatedIssues,
    pub provider: ModelProvider,
    pub runner_image: Option<String>,
    pub max_turns: Option<u32>,
    pub max_iterations: Option<u32>,
    pub job_timeout_minutes: Option<u32>,
    /// Of sessions alone; workflows know no such input.
    pub session_mode: Option<SessionMode>,
    /// Whether it runs beside the run that counts: it pushes its branch and opens nothing.
    pub shadow: bool,
    pub callback: Option<RunCallback>,
}

/// Where a run reports, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCallback {
    pub url: String,
    /// Good for one result.
    pub run_token: Secret,
    /// Good for any number of progress reports.
    pub progress_token: Secret,
}

/// Why inputs do not make a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunConfigError {
    #[error("the run's input {0} is missing")]
    Missing(&'static str),
    #[error("the run's input {0} is not valid: {1}")]
    Invalid(&'static str, String),
}

impl RunConfig {
    /// The inputs of a dispatch. What is not set is left out; the description is cut, with a
    /// visible mark, until the whole fits the host's limit and that of the run's environment.
    pub fn to_inputs(&self) -> RunInputs {
        let mut inputs = self.inputs_with(&self.issue_description);
        let whole = Size::of(&inputs);
        let excess = Size {
            chars: whole.chars.saturating_sub(MAX_INPUT_CHARS),
            bytes: whole.bytes.saturating_sub(MAX_INPUT_BYTES),
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

    /// Cuts by what a character costs in JSON, where a line break or a quote counts twice.
    fn shortened_description(&self, excess: Size) -> String {
        let mark = Size::of(&CUT_MARK);
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
        format!("{kept}{CUT_MARK}")
    }

    /// Reads the inputs that a run was started with.
    pub fn from_inputs(inputs: &RunInputs) -> Result<Self, RunConfigError> {
        let given = |name: &str| inputs.get(name).filter(|text| !text.is_empty()).cloned();
        let required = |name: &'static str| given(name).ok_or(RunConfigError::Missing(name));
        let lines = |name: &str| {
            given(name)
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default()
        };
        let phase = required("phase")?;
        let callback = match (
            given("callback_url"),
            given("run_token"),
            given("run_progress_token"),
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
            issue_description: given("issue_description").unwrap_or_default(),
            phase: RunPhase::parse(&phase).ok_or(RunConfigError::Invalid("phase", phase))?,
            pr_number: number(inputs, "pr_number")?,
            branch: required("branch")?,
            instruction: given("instruction"),
            findings: given("findings"),
            related: RelatedIssues {
                parent: given("parent"),
                siblings: lines("siblings"),
                dependencies: lines("dependencies"),
            },
            provider: match given("provider").as_deref() {
                None | Some("direct") => ModelProvider::Direct,
                Some("cloud") => ModelProvider::Cloud {
                    region: required("cloud_region")?,
                },
                Some(other) => return Err(RunConfigError::Invalid("provider", other.to_owned())),
            },
            runner_image: given("runner_image"),
            max_turns: number(inputs, "max_turns")?,
            max_iterations: number(inputs, "max_iterations")?,
            job_timeout_minutes: number(inputs, "job_timeout_minutes")?,
            session_mode: match given("session_mode") {
                None => None,
                Some(text) => Some(
                    SessionMode::parse(&text)
                        .ok_or(RunConfigError::Invalid("session_mode", text))?,
                ),
            },
            shadow: given("shadow").as_deref() == Some("true"),
            callback,
        })
    }
}

/// How long a value is as compact JSON: in characters, as the host counts, and in bytes, as the
/// system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    chars: usize,
    bytes: usize,
}

/// What stands around a text in JSON.
const QUOTES: usize = 2;

impl Size {
    fn of(value: &impl serde::Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_default();
        Self {
            chars: json.chars().map(counted).sum(),
            bytes: json.len(),
        }
    }
}

/// Returns how many characters the host counts for one of compact JSON, where it may differ the larger
/// number: encoders escape what HTML or JavaScript would take for its own (`\u003c`), and characters
/// outside of the basic plane are two to some. Other letters count as one. (facts 2)
fn counted(c: char) -> usize {
    match c {
        '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => 6,
        _ => c.len_utf16(),
    }
}

/// A positive whole number; a command-line tool may silently ignore a zero cap, so none passes.
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
            callback: Some(RunCallback {
                url: "http://here".into(),
                run_token: Secret::new("a.b.c"),
                progress_token: Secret::new("d.e.f"),
            }),
        }
    }

    #[test]
    fn a_run_reads_back_what_was_dispatched() {
        let inputs = config().to_inputs();
        assert!(inputs.len() <= 25);
        assert!(
            !inputs.contains_key("max_iterations"),
            "what is not set is left out"
        );
        assert_eq!(RunConfig::from_inputs(&inputs), Ok(config()));
    }

    #[test]
    fn inputs_that_the_host_filled_with_nothing_are_absent() {
        let mut inputs = config().to_inputs();
        inputs.insert("max_iterations".into(), String::new());
        inputs.insert("pr_number".into(), String::new());
        assert_eq!(RunConfig::from_inputs(&inputs), Ok(config()));
    }

    #[test]
    fn a_long_description_is_cut_to_the_limit_with_a_mark_and_tokens_stay() {
        for filler in ["x", "\n", "\"", "ä", "𝄞", "<", "\u{1}"] {
            let mut long = config();
            long.issue_description = filler.repeat(70_000);
            let inputs = long.to_inputs();
            let Size { chars, bytes } = Size::of(&inputs);
            assert!(chars <= MAX_INPUT_CHARS, "{filler:?}");
            assert!(bytes <= MAX_INPUT_BYTES, "{filler:?}");
            assert!(
                chars > MAX_INPUT_CHARS - 10 || bytes > MAX_INPUT_BYTES - 10,
                "no more is cut than must be: {filler:?}"
            );
            assert!(inputs["issue_description"].ends_with(CUT_MARK));
            assert_eq!(inputs["run_token"], "a.b.c");
        }
    }

    #[test]
    fn a_bad_number_is_refused_by_name() {
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
