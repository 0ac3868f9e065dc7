//! Reports of a run: step progress and the one result.
//!
//! Both ends of the connection use these types. The run serializes them. The service parses
//! untrusted JSON into them and returns the documented error slugs. See
//! docs/behaviour.md#run-results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::AgentName;
use super::agent_identity::parse_agent_name;
use super::limits;
use super::merge_report::MergeReport;
use super::question::{Question, parse_questions};
use super::time::Timestamp;

/// Phase of a run. A run token is valid for one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPhase {
    /// Planning run.
    Planning,
    /// Implementation run.
    Implementation,
    /// Gap-fill or follow-up run on an open pull request.
    GapAnalysis,
}

impl RunPhase {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            RunPhase::Planning => "planning",
            RunPhase::Implementation => "implementation",
            RunPhase::GapAnalysis => "gap-analysis",
        }
    }

    /// Parses the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [
            RunPhase::Planning,
            RunPhase::Implementation,
            RunPhase::GapAnalysis,
        ]
        .into_iter()
        .find(|phase| phase.as_str() == text)
    }
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// The run succeeded.
    Success,
    /// The run failed.
    Failure,
}

/// Machine-readable reason of a failed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureCode {
    /// The sensitive-file guard blocked the push.
    SensitiveFilesBlocked,
    /// The limit of model turns is reached.
    MaxTurnsExhausted,
    /// The run changed no files.
    NoChanges,
    /// The installation of dependencies failed.
    InstallFailed,
    /// The settings of the repository are invalid, or its `setup` script failed.
    SetupFailed,
    /// The `verify` script failed.
    VerifyFailed,
    /// The repository could not be cloned.
    CloneFailed,
    /// The push or the pull request was rejected.
    PushRejected,
    /// The review after the push left blocking findings open.
    ReviewUnapproved,
    /// The model provider is unavailable.
    ProviderUnavailable,
    /// The usage limit of the model provider is reached.
    ///
    /// [`ResultReport::retry_at`] is the time at which it resets.
    ProviderLimit,
    /// The time budget is used up. The run ended itself to be able to report.
    TimedOut,
    /// The run was cancelled.
    Cancelled,
    /// The run asked people a question.
    NeedsInput,
}

/// Model usage and cost of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Model turns.
    #[serde(default)]
    pub turns: u64,
    /// Input tokens.
    #[serde(default)]
    pub input_tokens: u64,
    /// Output tokens.
    #[serde(default)]
    pub output_tokens: u64,
    /// Cost in US dollars. `None` if it is unknown.
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (left, right) => Some(left.unwrap_or_default() + right.unwrap_or_default()),
        };
    }
}

/// Comment that a run asks the service to post on its ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunComment {
    /// Markdown text.
    pub body: String,
}

/// Result of a run: the body of `POST /runner/result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultReport {
    /// Phase of the run.
    pub phase: RunPhase,
    /// Outcome of the run.
    pub outcome: RunOutcome,
    /// Address of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr_url: Option<String>,
    /// Comments to post on the ticket, in order.
    pub comments: Vec<RunComment>,
    /// Failure reason, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Failure reason for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<FailureCode>,
    /// Last message of the agent, for a failed run.
    #[serde(rename = "lastWords", default, skip_serializing_if = "Option::is_none")]
    pub last_agent_message: Option<String>,
    /// Time at which a retry makes sense, for a run that reached the usage limit of the model
    /// provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// One line per blocking finding that the review left open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// Model usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Name of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Name of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Agents for which the run has credentials, if it reached the usage limit of the model provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents_with_credentials: Vec<AgentName>,
    /// Agent that continues the work. Decided by the service; runs do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_agent: Option<AgentName>,
    /// Whether the plan waits for an approval. Decided by the service; runs do not report it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_approval: bool,
    /// Work that could not be pushed, as a git patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Outcome of merging the base branch, of a run that resolves conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Box<MergeReport>>,
    /// Questions to people, of a run that failed with [`FailureCode::NeedsInput`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// Whether the work before a question did not apply any more, so that the run started over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patch_dropped: bool,
    /// Id of the CI run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// Reason why a result body is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultReportError {
    /// The body is not an object.
    InvalidBody,
    /// `phase` is missing or unknown.
    InvalidPhase,
    /// `outcome` is missing or unknown.
    InvalidOutcome,
    /// `comments` is missing or not an array.
    InvalidComments,
    /// A comment has no string `body`.
    InvalidCommentShape,
}

impl ResultReportError {
    /// Returns the error slug in the API.
    pub fn slug(self) -> &'static str {
        match self {
            ResultReportError::InvalidBody => "invalid_body",
            ResultReportError::InvalidPhase => "invalid_phase",
            ResultReportError::InvalidOutcome => "invalid_outcome",
            ResultReportError::InvalidComments => "invalid_comments",
            ResultReportError::InvalidCommentShape => "invalid_comment_shape",
        }
    }
}

impl ResultReport {
    /// Parses an untrusted body. Optional fields of the wrong type are dropped and named in the
    /// returned warnings, so that a malformed detail does not lose the outcome.
    ///
    /// # Errors
    /// The first required field that is missing or invalid.
    pub fn parse(body: &Value) -> Result<(Self, Vec<String>), ResultReportError> {
        let fields = body.as_object().ok_or(ResultReportError::InvalidBody)?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let phase = text("phase")
            .and_then(RunPhase::parse)
            .ok_or(ResultReportError::InvalidPhase)?;
        let outcome = match text("outcome") {
            Some("success") => RunOutcome::Success,
            Some("failure") => RunOutcome::Failure,
            _ => return Err(ResultReportError::InvalidOutcome),
        };
        let comments = fields
            .get("comments")
            .and_then(Value::as_array)
            .ok_or(ResultReportError::InvalidComments)?
            .iter()
            .map(
                |comment| match comment.get("body").and_then(Value::as_str) {
                    Some(body) => Ok(RunComment {
                        body: body.to_owned(),
                    }),
                    None => Err(ResultReportError::InvalidCommentShape),
                },
            )
            .collect::<Result<Vec<_>, _>>()?;
        let mut details = Details {
            fields,
            warnings: Vec::new(),
        };
        let report = Self {
            phase,
            outcome,
            pr_url: details
                .read::<String>("prUrl")
                .filter(|url| !url.is_empty()),
            comments,
            failure_reason: details.read("failureReason"),
            failure_code: details.read("failureCode"),
            last_agent_message: details.read("lastWords"),
            retry_at: details.read("retryAt"),
            unresolved: details.read("unresolved").unwrap_or_default(),
            usage: details.read("usage"),
            agent: details.read_name("agent"),
            model: details.read_name("model"),
            agents_with_credentials: details.read("agentsWithCredentials").unwrap_or_default(),
            next_agent: None,
            awaits_approval: false,
            patch: details
                .read::<String>("patch")
                .filter(|patch| patch.len() <= limits::MAX_PATCH_BYTES),
            merge: details
                .read::<MergeReport>("merge")
                .map(|merge| Box::new(merge.bounded())),
            questions: fields
                .get("questions")
                .map_or_else(Vec::new, parse_questions),
            patch_dropped: details.read("patchDropped").unwrap_or_default(),
            run_id: details.read("runId"),
        };
        Ok((report, details.warnings))
    }
}

/// Optional fields of a result body, and the warnings about them.
struct Details<'a> {
    fields: &'a serde_json::Map<String, Value>,
    warnings: Vec<String>,
}

impl Details<'_> {
    fn read<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        let parsed = T::deserialize(value).ok();
        if parsed.is_none() {
            self.warn(name);
        }
        parsed
    }

    /// Reads the name of an agent program or a model.
    fn read_name(&mut self, name: &str) -> Option<String> {
        let text = self.read::<String>(name)?;
        let parsed = parse_agent_name(&text);
        if parsed.is_none() {
            self.warn(name);
        }
        parsed
    }

    fn warn(&mut self, name: &str) {
        self.warnings
            .push(format!("Ignored {name}: invalid value."));
    }
}

/// Step of a run, as stored and returned by the API. Field names are in snake case. See
/// docs/behaviour.md#steps.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct StepRecord {
    /// Identifier of the step, unique in its run.
    pub id: String,
    /// Type of the step.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status: `running`, `passed`, `failed`, `skipped` or `cancelled`. Unknown statuses are kept.
    pub status: String,
    /// Start time, as reported.
    pub started_at: String,
    /// End time, as reported.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// Elapsed time, in milliseconds.
    #[serde(default)]
    pub elapsed_ms: Option<u64>,
    /// Identifier of the enclosing step.
    #[serde(default)]
    pub parent_step_id: Option<String>,
    /// Structured output.
    #[serde(default)]
    pub outputs: Option<Value>,
    /// Address of the step's log.
    #[serde(default)]
    pub logs_url: Option<String>,
}

/// Reason why a step is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRecordError {
    /// The step is missing or not an object.
    NotAnObject,
    /// This required field is missing or not a string. The first such field is returned.
    Field(&'static str),
}

impl StepRecord {
    /// Parses an untrusted step. `elapsed` (milliseconds) is accepted instead of `elapsed_ms`.
    ///
    /// # Errors
    /// The first required field that is missing or invalid.
    pub fn parse(step: Option<Value>) -> Result<Self, StepRecordError> {
        let Some(Value::Object(mut fields)) = step else {
            return Err(StepRecordError::NotAnObject);
        };
        let elapsed = ["elapsed_ms", "elapsed"]
            .iter()
            .find_map(|name| fields.get(*name))
            .and_then(Value::as_f64);
        let mut take = |name: &str| fields.get_mut(name).map(Value::take);
        let outputs = take("outputs").filter(|value| !value.is_null());
        let mut text = |name: &str| match take(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let mut required = |name: &'static str| text(name).ok_or(StepRecordError::Field(name));
        Ok(Self {
            id: required("id")?,
            kind: required("type")?,
            status: required("status")?,
            started_at: required("started_at")?,
            ended_at: text("ended_at"),
            elapsed_ms: elapsed.map(|millis| millis.max(0.0) as u64),
            parent_step_id: text("parent_step_id"),
            outputs,
            logs_url: text("logs_url"),
        })
    }
}

/// End that an ended job gives its open steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEnd {
    /// Status of the steps.
    pub status: &'static str,
    /// End time of the steps.
    pub at: Timestamp,
}

impl StepRecord {
    /// Returns whether the step has not ended, as far as the run reported.
    pub fn is_open(&self) -> bool {
        match self.status.as_str() {
            "running" => true,
            "passed" | "failed" | "skipped" | "cancelled" => false,
            _ => self.ended_at.is_none(),
        }
    }

    /// Closes the step if it is open.
    pub fn close(&mut self, end: StepEnd) {
        if !self.is_open() {
            return;
        }
        end.status.clone_into(&mut self.status);
        self.ended_at = Some(end.at.to_string());
        if let Some(started_at) = Timestamp::parse(&self.started_at) {
            self.elapsed_ms = u64::try_from(end.at.since(started_at).as_millis()).ok();
        }
    }
}

/// Body of `POST /runner/progress`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReport {
    /// Step that started, changed or ended.
    pub step: StepRecord,
    /// Id of the CI run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
    /// Total usage of the run so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Name of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Name of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Lines of live output, already redacted by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rejects_a_result_with_the_slug_of_its_first_error() {
        let rows = [
            (json!(null), "invalid_body"),
            (json!([]), "invalid_body"),
            (
                json!({"outcome": "success", "comments": []}),
                "invalid_phase",
            ),
            (
                json!({"phase": "cooking", "outcome": "success", "comments": []}),
                "invalid_phase",
            ),
            (
                json!({"phase": "planning", "outcome": "maybe", "comments": []}),
                "invalid_outcome",
            ),
            (
                json!({"phase": "planning", "outcome": "success"}),
                "invalid_comments",
            ),
            (
                json!({"phase": "planning", "outcome": "success", "comments": {}}),
                "invalid_comments",
            ),
            (
                json!({"phase": "planning", "outcome": "success", "comments": ["x"]}),
                "invalid_comment_shape",
            ),
            (
                json!({"phase": "planning", "outcome": "success", "comments": [{"body": 1}]}),
                "invalid_comment_shape",
            ),
        ];
        for (body, slug) in rows {
            assert_eq!(
                ResultReport::parse(&body).unwrap_err().slug(),
                slug,
                "{body}"
            );
        }
    }

    #[test]
    fn drops_a_malformed_optional_field_with_a_warning() {
        let body = json!({"phase": "implementation", "outcome": "failure", "comments": [],
            "failureReason": "tests failed", "failureCode": "NO_SUCH", "usage": {"turns": 3}, "runId": "x",
            "agent": "claude", "model": "<script>"});
        let (report, warnings) = ResultReport::parse(&body).unwrap();
        assert_eq!(report.failure_reason.as_deref(), Some("tests failed"));
        assert_eq!(report.failure_code, None);
        assert_eq!(report.usage.unwrap().turns, 3);
        assert_eq!(
            (report.agent.as_deref(), report.model),
            (Some("claude"), None)
        );
        assert_eq!(warnings.len(), 3);
    }

    #[test]
    fn parses_a_serialized_result() {
        let sent = ResultReport {
            phase: RunPhase::GapAnalysis,
            outcome: RunOutcome::Success,
            pr_url: Some("https://host/o/r/pull/7".into()),
            comments: vec![RunComment {
                body: "hello".into(),
            }],
            failure_reason: None,
            failure_code: Some(FailureCode::ReviewUnapproved),
            last_agent_message: Some("I did what I could.".into()),
            retry_at: None,
            unresolved: vec!["a race".into()],
            usage: Some(Usage {
                turns: 2,
                input_tokens: 10,
                output_tokens: 5,
                cost_usd: Some(0.25),
            }),
            agent: Some("claude".into()),
            model: Some("claude-opus-4-8".into()),
            agents_with_credentials: vec![AgentName::Claude, AgentName::Gemini],
            next_agent: None,
            awaits_approval: false,
            merge: None,
            patch: Some("diff --git a/x b/x\n".into()),
            questions: vec![Question {
                text: "Which?".into(),
                choices: vec!["a".into()],
                default: None,
            }],
            patch_dropped: true,
            run_id: Some(9),
        };
        let body = serde_json::to_value(&sent).unwrap();
        assert_eq!(ResultReport::parse(&body).unwrap(), (sent, vec![]));
    }

    #[test]
    fn rejects_a_step_by_its_first_missing_field() {
        let valid = json!({"id": "push", "type": "push", "status": "passed", "started_at": "t", "elapsed": 12.7});
        assert_eq!(
            StepRecord::parse(Some(valid.clone())).unwrap().elapsed_ms,
            Some(12)
        );
        assert_eq!(StepRecord::parse(None), Err(StepRecordError::NotAnObject));
        for name in ["id", "type", "status", "started_at"] {
            let mut invalid = valid.clone();
            invalid[name] = json!(7);
            assert_eq!(
                StepRecord::parse(Some(invalid)),
                Err(StepRecordError::Field(name))
            );
        }
    }
}
