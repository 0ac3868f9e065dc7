//! Questions of a run to people, and their answers.
//!
//! The agent ends a pass by writing a question file. The run ends with its work kept as a patch, and the issue waits
//! until a person answers. The next run continues with the patch, the questions and the answer. See
//! docs/behaviour.md#questions.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{JobId, TeamKey};
use super::issue::{IssueRef, Phase};
use super::sanitize;
use super::stage::Stage;
use super::time::Timestamp;

/// Maximum number of questions that a run may ask.
pub const MAX_QUESTIONS: usize = 3;

/// Maximum number of rounds of questions per issue and phase.
pub const MAX_ROUNDS: u32 = 2;

/// Maximum length of a question, in characters.
const MAX_TEXT: usize = 1_000;

/// Maximum number of choices of a question.
const MAX_CHOICES: usize = 8;

/// Maximum length of a choice or a default, in characters.
const MAX_CHOICE: usize = 200;

/// Maximum size of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 8 * 1024;

/// End of a truncated answer.
const TRUNCATION_MARK: &str = "\n[… answer truncated]";

/// Time after the last edit of an answer until it counts.
pub const QUIET_TIME: Duration = Duration::from_secs(60);

/// Time after which people are reminded once of a question or a plan.
pub const REMINDER_DELAY: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// Question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Text of the question.
    pub text: String,
    /// Answers that the agent proposes.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Answer that the work goes on with if nobody answers in time.
    #[serde(default)]
    pub default: Option<String>,
}

impl Question {
    /// Returns the question with each of its texts changed.
    pub fn map_texts(&self, change: impl Fn(&str) -> String) -> Self {
        Self {
            text: change(&self.text),
            choices: self.choices.iter().map(|choice| change(choice)).collect(),
            default: self.default.as_deref().map(change),
        }
    }
}

/// Parses the questions of a result or of a question file, which an agent wrote: the array, or an object with the
/// array in `questions`. What is too much or invalid is left out. Empty if nothing can be asked.
pub fn parse_questions(value: &Value) -> Vec<Question> {
    let list = value.get("questions").unwrap_or(value).as_array();
    let parsed = list.into_iter().flatten().filter_map(parse_question);
    parsed.take(MAX_QUESTIONS).collect()
}

fn parse_question(value: &Value) -> Option<Question> {
    let text = value.as_str().or_else(|| value["text"].as_str())?;
    let choices = value["choices"].as_array().into_iter().flatten();
    Some(Question {
        text: bounded(text, MAX_TEXT)?,
        choices: choices
            .filter_map(Value::as_str)
            .filter_map(|choice| bounded(choice, MAX_CHOICE))
            .take(MAX_CHOICES)
            .collect(),
        default: value["default"]
            .as_str()
            .and_then(|default| bounded(default, MAX_CHOICE)),
    })
}

/// Returns a visible, bounded text; `None` if nothing is left.
fn bounded(text: &str, max: usize) -> Option<String> {
    let text = sanitize::strip_invisible(text);
    let text = sanitize::truncate_chars(text.trim(), max, sanitize::ELLIPSIS);
    (!text.is_empty()).then(|| text.into_owned())
}

/// How an answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerSource {
    /// Comment on the ticket.
    Comment,
    /// An operator, by API, command line or panel.
    Operator,
    /// Nobody answered in time: the defaults count.
    Timeout,
}

/// Questions of one round with their answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exchange {
    /// Phase of the run that asked.
    pub phase: Phase,
    /// Questions.
    pub questions: Vec<Question>,
    /// Answer in Markdown.
    pub answer: String,
    /// Name of the person who answered. Empty if nobody did.
    pub answered_by: String,
    /// How the answer arrived.
    pub source: AnswerSource,
    /// Time of the answer.
    pub at: Timestamp,
}

/// Open questions of an issue.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenQuestion {
    /// Issue that waits.
    pub issue: IssueRef,
    /// Key of the mapping.
    pub team: TeamKey,
    /// Job that asked.
    pub job: JobId,
    /// Phase of the job.
    pub phase: Phase,
    /// Number of the round in this phase, from 1.
    pub round: u32,
    /// Questions.
    pub questions: Vec<Question>,
    /// Time at which the run ended with the questions.
    pub asked_at: Timestamp,
    /// Time of the reminder on the ticket.
    #[serde(default)]
    pub reminded_at: Option<Timestamp>,
    /// Time at which the work goes on without an answer.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// Id of the effect that posts the questions on the ticket.
    pub comment: String,
    /// Comment that becomes the answer when it has not been edited for [`QUIET_TIME`].
    #[serde(default)]
    pub candidate: Option<AnswerCandidate>,
    /// Stage that the marker shows again after the answer.
    pub resume_stage: Stage,
    /// Whether a poll has found the trigger on the issue while it waited. From then on, its removal ends the wait.
    #[serde(default)]
    pub trigger_seen: bool,
    /// Time of the first of the latest polls that did not find the issue.
    #[serde(default)]
    pub absent_since: Option<Timestamp>,
}

/// Comment that becomes the answer to a question.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerCandidate {
    /// Id of the comment.
    pub comment: String,
    /// Time of its last edit, by the clock of the ticketing system.
    pub edited_at: Timestamp,
    /// Time at which the service first saw this version.
    pub seen_at: Timestamp,
    /// Name of the author.
    pub author: String,
    /// Text in Markdown.
    pub body: String,
}

impl OpenQuestion {
    /// Returns the exchange that an answer makes of the questions.
    pub fn answered(
        &self,
        answer: &str,
        answered_by: String,
        source: AnswerSource,
        at: Timestamp,
    ) -> Exchange {
        let answer = sanitize::strip_invisible(answer);
        let answer = sanitize::truncate(answer.trim(), MAX_ANSWER_BYTES, TRUNCATION_MARK);
        Exchange {
            phase: self.phase,
            questions: self.questions.clone(),
            answer: answer.into_owned(),
            answered_by,
            source,
            at,
        }
    }

    /// Returns the exchange of a question that nobody answered in time.
    pub fn timed_out(&self, at: Timestamp) -> Exchange {
        let line = |question: &Question| match &question.default {
            Some(default) => format!("- {}: {default}", question.text),
            None => format!(
                "- {}: decide yourself, and state what you assumed",
                question.text
            ),
        };
        let lines: Vec<String> = self.questions.iter().map(line).collect();
        Exchange {
            phase: self.phase,
            questions: self.questions.clone(),
            answer: lines.join("\n"),
            answered_by: String::new(),
            source: AnswerSource::Timeout,
            at,
        }
    }

    /// Returns whether people are to be reminded now.
    pub fn is_reminder_due(&self, now: Timestamp) -> bool {
        self.reminded_at.is_none() && now.since(self.asked_at) >= REMINDER_DELAY
    }

    /// Returns whether the time for an answer is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_questions_as_far_as_they_are_valid() {
        let file = json!({"questions": [
            {"text": " Which currency? ", "choices": ["EUR", 7, "USD"], "default": "EUR", "more": 1},
            {"text": ""}, {"no": "text"}, "Plain text?", 7,
            {"text": "\u{202e}Third?", "choices": "none", "default": 3},
            {"text": "Fourth?"},
        ]});
        let expected = [
            Question {
                text: "Which currency?".into(),
                choices: vec!["EUR".into(), "USD".into()],
                default: Some("EUR".into()),
            },
            Question {
                text: "Plain text?".into(),
                choices: vec![],
                default: None,
            },
            Question {
                text: "Third?".into(),
                choices: vec![],
                default: None,
            },
        ];
        assert_eq!(parse_questions(&file), expected);
        assert_eq!(parse_questions(&file["questions"]), expected);
        for nothing in [json!(null), json!({}), json!({"questions": 7}), json!("x")] {
            assert_eq!(parse_questions(&nothing), [], "{nothing}");
        }
    }

    #[test]
    fn long_questions_are_truncated() {
        let choices = vec!["ä".repeat(5_000); 50];
        let file = json!([{"text": "x".repeat(1 << 20), "choices": choices}]);
        let [question] = &parse_questions(&file)[..] else {
            panic!("one question")
        };
        assert_eq!(question.text.chars().count(), MAX_TEXT);
        assert_eq!(question.choices.len(), MAX_CHOICES);
        assert_eq!(question.choices[0].chars().count(), MAX_CHOICE);
    }
}
