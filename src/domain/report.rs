//! What a run tells us: its progress, step by step, and its one result.
//!
//! Both ends of the wire use this file. The run serializes these types; the HTTP floor parses
//! untrusted JSON into them with the exact error slugs of the spec. (spec: *POST /runner/result*)

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits;
use super::time::Timestamp;

/// What a run does; a token is good for one of these only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPhase {
    Planning,
    Implementation,
    /// A gap-fill or follow-up run on an open pull request.
    GapAnalysis,
}

impl RunPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            RunPhase::Planning => "planning",
            RunPhase::Implementation => "implementation",
            RunPhase::GapAnalysis => "gap-analysis",
        }
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    Success,
    Failure,
}

/// Why a run failed, as a word that programs may branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureCode {
    SensitiveFilesBlocked,
    MaxTurnsExhausted,
    NoChanges,
    InstallFailed,
    SetupFailed,
    VerifyFailed,
    CloneFailed,
    PushRejected,
    ReviewUnapproved,
    ProviderUnavailable,
    /// The provider's usage limit is reached; [`ResultReport::retry_at`] says until when.
    ProviderLimit,
    /// The run's time was used up; it ended itself to be able to say so.
    TimedOut,
    Cancelled,
}

/// What a run cost. (spec is silent; api: *Job*)
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(default)]
    pub turns: u64,
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
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
            (mine, theirs) => Some(mine.unwrap_or_default() + theirs.unwrap_or_default()),
        };
    }
}

/// A comment that a run wants posted on its ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunComment {
    pub body: String,
}

/// The one result of a run: the body of `POST /runner/result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultReport {
    pub phase: RunPhase,
    pub outcome: RunOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr_url: Option<String>,
    pub comments: Vec<RunComment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<FailureCode>,
    /// What the agent said last: of a run that failed.
    #[serde(rename = "lastWords", default, skip_serializing_if = "Option::is_none")]
    pub last_agent_message: Option<String>,
    /// When it makes sense to try again: of a run that met the provider's usage limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// One line for each blocking finding that the review left open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Work that could not be pushed, as git applies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// Why a result body is refused. The names are the spec's slugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultReportError {
    InvalidBody,
    InvalidPhase,
    InvalidOutcome,
    InvalidComments,
    InvalidCommentShape,
}

impl ResultReportError {
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
    /// Reads an untrusted body. Optional fields of the wrong shape are dropped and named in the
    /// warnings: a run's outcome must not be lost to a malformed detail.
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
            patch: details
                .read::<String>("patch")
                .filter(|patch| patch.len() <= limits::MAX_PATCH_BYTES),
            run_id: details.read("runId"),
        };
        Ok((report, details.warnings))
    }
}

struct Details<'a> {
    fields: &'a serde_json::Map<String, Value>,
    warnings: Vec<String>,
}

impl Details<'_> {
    fn read<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        let read = T::deserialize(value).ok();
        if read.is_none() {
            self.warnings
                .push(format!("{name} was not understood and is ignored"));
        }
        read
    }
}

/// One step of a run, as stored and shown. Keeps the spec's snake case. (spec: *Job and step record*)
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// `running`, `passed`, `failed`, `skipped`, `cancelled`; other words are kept as they are.
    pub status: String,
    pub started_at: String,
    #[serde(default)]
    pub ended_at: Option<String>,
    #[serde(default)]
    pub elapsed_ms: Option<u64>,
    #[serde(default)]
    pub parent_step_id: Option<String>,
    #[serde(default)]
    pub outputs: Option<Value>,
    #[serde(default)]
    pub logs_url: Option<String>,
}

/// The first required string field of a step that is missing or no string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRecordError {
    NotAnObject,
    Field(&'static str),
}

impl StepRecord {
    /// Reads an untrusted step. `elapsed` (milliseconds) is an accepted spelling of `elapsed_ms`.
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

/// The body of `POST /runner/progress`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReport {
    pub step: StepRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
    /// What the run has used up to now, all in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Lines of live output, already redacted by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_refused_with_the_slug_of_its_first_fault() {
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
    fn a_malformed_detail_is_dropped_with_a_warning() {
        let body = json!({"phase": "implementation", "outcome": "failure", "comments": [],
            "failureReason": "tests failed", "failureCode": "NO_SUCH", "usage": {"turns": 3}, "runId": "x"});
        let (report, warnings) = ResultReport::parse(&body).unwrap();
        assert_eq!(report.failure_reason.as_deref(), Some("tests failed"));
        assert_eq!(report.failure_code, None);
        assert_eq!(report.usage.unwrap().turns, 3);
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn what_a_run_serializes_is_what_we_parse() {
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
            patch: Some("diff --git a/x b/x\n".into()),
            run_id: Some(9),
        };
        let body = serde_json::to_value(&sent).unwrap();
        assert_eq!(ResultReport::parse(&body).unwrap(), (sent, vec![]));
    }

    #[test]
    fn a_step_names_its_first_missing_field() {
        let whole = json!({"id": "push", "type": "push", "status": "passed", "started_at": "t", "elapsed": 12.7});
        assert_eq!(
            StepRecord::parse(Some(whole.clone())).unwrap().elapsed_ms,
            Some(12)
        );
        assert_eq!(StepRecord::parse(None), Err(StepRecordError::NotAnObject));
        for name in ["id", "type", "status", "started_at"] {
            let mut broken = whole.clone();
            broken[name] = json!(7);
            assert_eq!(
                StepRecord::parse(Some(broken)),
                Err(StepRecordError::Field(name))
            );
        }
    }
}
