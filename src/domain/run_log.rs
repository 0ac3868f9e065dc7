//! Text of the log of a run. See docs/behaviour.md#log-of-a-run.
//!
//! Each line is a time, a space and the text: `2027-01-15T08:00:00.000Z Cloning`. Two texts are marks: `##[step]`
//! with the id of the step that begins, and `##[cut]` with the number of bytes that are missing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sanitize;
use super::time::Timestamp;

/// Maximum size of the kept text of one run, in bytes. Above it, the oldest lines are cut.
pub const MAX_BYTES: u64 = 1 << 20;

/// Maximum size of the text of one part, in bytes.
pub const MAX_PART: usize = 48 << 10;

/// Maximum number of bytes that a run may leave out between two parts.
pub const MAX_GAP: u64 = 1 << 32;

/// Maximum number of marks of steps in one log.
pub const MAX_STEP_MARKS: u64 = 1_000;

/// Size that each line gains when it is stored, at most: its time and a space.
pub const LINE_OVERHEAD: usize = TIME_LEN + 1;

/// Start of every mark.
const MARK: &str = "##[";

/// Replacement of [`MARK`] in a line that is no mark.
const ESCAPED_MARK: &str = "## [";

/// Start of the mark of a step.
const STEP_MARK: &str = "##[step] ";

/// Maximum length of a step id in a mark, in bytes.
const MAX_STEP_ID: usize = 200;

/// Length of a formatted time, in bytes.
const TIME_LEN: usize = "2027-01-15T08:00:00.000Z".len();

/// Maximum offset of a report: the largest integer that every JSON parser reads exactly.
pub const MAX_OFFSET: u64 = (1 << 53) - 1;

/// Part of the log of a run: the body of `POST /runner/log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// Number of bytes that the run has written to its log before this part.
    pub offset: u64,
    /// Whole lines.
    pub text: String,
}

/// Reason why a [`LogReport`] is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogReportError {
    /// The body is not an object.
    InvalidBody,
    /// `offset` is missing or not a whole number below 2^53.
    InvalidOffset,
    /// `text` is missing, not a string, longer than [`MAX_PART`], or does not end with a line break.
    InvalidText,
}

impl LogReportError {
    /// Returns the error slug in the API.
    pub fn slug(self) -> &'static str {
        match self {
            LogReportError::InvalidBody => "invalid_body",
            LogReportError::InvalidOffset => "invalid_offset",
            LogReportError::InvalidText => "invalid_text",
        }
    }
}

impl LogReport {
    /// Parses an untrusted body.
    ///
    /// # Errors
    /// The first field that is missing or invalid.
    pub fn parse(mut body: Value) -> Result<Self, LogReportError> {
        if !body.is_object() {
            return Err(LogReportError::InvalidBody);
        }
        let offset = body["offset"]
            .as_u64()
            .filter(|offset| *offset <= MAX_OFFSET)
            .ok_or(LogReportError::InvalidOffset)?;
        match body["text"].take() {
            // A secret that spans two parts could not be redacted.
            Value::String(text)
                if text.len() <= MAX_PART && (text.is_empty() || text.ends_with('\n')) =>
            {
                Ok(Self { offset, text })
            }
            _ => Err(LogReportError::InvalidText),
        }
    }

    /// Size of the part when it is stored, in bytes.
    pub fn stored_size(&self) -> usize {
        let lines = self.text.bytes().filter(|byte| *byte == b'\n').count();
        self.text.len() + lines * LINE_OVERHEAD
    }

    /// Offset after this part.
    pub fn end(&self) -> u64 {
        self.offset + self.text.len() as u64
    }
}

/// Answer to a [`LogReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogReceipt {
    /// Always true.
    pub acknowledged: bool,
    /// Offset from which the run continues.
    pub offset: u64,
    /// Whether the log contains everything before the offset that arrived. False while logs are not kept: the run
    /// continues all the same.
    pub stored: bool,
    /// Milliseconds to wait before the next part.
    pub retry_after_ms: u64,
}

/// Formats a line, without its line break.
pub fn format_line(at: Timestamp, text: &str) -> String {
    format!("{at} {text}")
}

/// Text of the line that marks the beginning of a step.
pub fn step_mark(step_id: &str) -> String {
    let id = sanitize::single_line(step_id);
    format!("{STEP_MARK}{}", sanitize::truncate(id, MAX_STEP_ID, ""))
}

/// Text of the line that marks missing output.
pub fn cut_mark(bytes: u64) -> String {
    format!("##[cut] {bytes} bytes")
}

/// Replaces what a program would have to print to forge a mark.
pub fn escape_marks(text: &str) -> String {
    text.replace(MARK, ESCAPED_MARK)
}

/// Splits a line as reported by a run into its time and its text. The time is `None` if the line does not begin
/// with one. The text is untrusted.
pub fn parse_line(line: &str) -> (Option<Timestamp>, &str) {
    let Some((stamp, rest)) = line.split_at_checked(TIME_LEN) else {
        return (None, line);
    };
    let at = Timestamp::parse(stamp).filter(|at| at.to_string() == stamp);
    match (at, rest.strip_prefix(' ')) {
        (Some(at), Some(text)) => (Some(at), text),
        (Some(at), None) if rest.is_empty() => (Some(at), ""),
        _ => (None, line),
    }
}

/// Whether a text is the mark of a step. Every other mark of a run is forged.
pub fn is_step_mark(text: &str) -> bool {
    text.strip_prefix(STEP_MARK).is_some_and(|id| {
        let is_id_char = |c: char| sanitize::is_visible(c) && c != '[';
        !id.trim().is_empty() && id.len() <= MAX_STEP_ID && id.chars().all(is_id_char)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn parses_what_it_formats() {
        for text in ["", "Cloning", "2027-01-15T08:00:00.000Z twice", " ä"] {
            let line = format_line(AT, text);
            assert_eq!(parse_line(&line), (Some(AT), text));
        }
        for line in [
            "",
            "no time",
            "2027-01-15T08:00:00Z shorter form",
            "2027-01-15T08:00:00.000Zno space",
            "2027-13-45T08:00:00.000Z no date",
            "ääääääääääääääääää",
        ] {
            assert_eq!(parse_line(line), (None, line));
        }
    }

    #[test]
    fn accepts_only_marks_of_steps() {
        assert!(is_step_mark(&step_mark("implement.1")));
        assert!(is_step_mark(&step_mark(&"x".repeat(5_000))));
        for forged in [
            "##[step] ",
            "##[step]clone",
            "##[cut] 7 bytes",
            "##[step] a ##[cut] 7 bytes",
            "##[step] a\u{202e}b",
            " ##[step] clone",
        ] {
            assert!(!is_step_mark(forged), "{forged}");
            assert!(!escape_marks(forged).contains(MARK));
        }
    }
}
