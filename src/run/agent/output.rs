//! Program-independent events of an agent program.

use std::time::Duration;

use serde_json::Value;

use super::pass::AgentAnswer;
use crate::clock;
use domain::time::Timestamp;

/// Wait for a rate limit whose reset time is unknown. Limits of API keys refill every minute, and
/// the program retried for minutes or received a longer wait. Five such waits also outlast limits
/// of a few hours.
const UNKNOWN_RESET_WAIT: Duration = Duration::from_secs(30 * 60);

/// Event of a program's stream.
#[derive(Debug)]
pub(super) enum AgentOutput {
    /// Lines to log.
    Log(Vec<String>),
    /// The program retries a request to the provider. Not counted as activity.
    ProviderRetry(String),
    /// The program retries a request because of a rate limit.
    RateLimited(String),
    /// The pass cannot succeed; the program is stopped.
    Abort(PassError),
    /// Result, and lines not logged before it.
    Finished {
        unlogged_lines: Vec<String>,
        result: Result<AgentAnswer, PassError>,
    },
}

impl AgentOutput {
    /// Returns an event without log lines.
    pub(super) fn empty() -> Self {
        AgentOutput::Log(Vec::new())
    }

    /// Returns the final event without unlogged lines.
    pub(super) fn finished(result: Result<AgentAnswer, PassError>) -> Self {
        let unlogged_lines = Vec::new();
        AgentOutput::Finished {
            unlogged_lines,
            result,
        }
    }
}

/// Error of an agent pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PassError {
    /// The turn limit was reached.
    TurnsExhausted,
    /// The run's time limit was reached during the pass.
    TimedOut,
    /// The provider rejected the request, is overloaded or unreachable.
    Provider(String),
    /// The provider's rate limit is exceeded.
    RateLimited {
        message: String,
        until: Timestamp,
        /// Whether the program reported the reset time.
        is_reset_known: bool,
    },
    /// Any other error.
    Other(String),
}

impl PassError {
    /// Returns the error of rejected credentials.
    pub(super) fn access_denied() -> Self {
        PassError::Provider("the provider rejected the model credentials".to_owned())
    }

    /// Returns the error of a program that exited without a result.
    pub(super) fn missing_result() -> Self {
        PassError::Other("it exited without a result".to_owned())
    }

    /// Creates a rate-limit error. Without a reset time, a fixed wait is assumed.
    pub(super) fn rate_limited(message: &str, until: Option<Timestamp>) -> Self {
        PassError::RateLimited {
            message: message.to_owned(),
            until: until.unwrap_or_else(|| clock::now() + UNKNOWN_RESET_WAIT),
            is_reset_known: until.is_some(),
        }
    }
}

/// Counter of model turns for streams that do not report them. A turn starts with the first output
/// after a tool result.
#[derive(Debug, Default)]
pub(super) struct TurnCounter {
    /// Number of turns.
    pub(super) count: u64,
    is_open: bool,
}

impl TurnCounter {
    /// Records output of the model.
    pub(super) fn record_output(&mut self) {
        self.count += u64::from(!self.is_open);
        self.is_open = true;
    }

    /// Records a tool result.
    pub(super) fn record_tool_result(&mut self) {
        self.is_open = false;
    }
}

/// Returns the lines that are not blank.
pub(super) fn non_empty_lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

/// Formats a tool call as one line: name and most relevant argument.
pub(super) fn format_tool_call(name: &str, input: &Value) -> String {
    let argument = ["command", "file_path", "pattern", "path", "url"]
        .iter()
        .find_map(|key| input[*key].as_str().map(str::to_owned))
        .unwrap_or_else(|| input.to_string());
    single_line(&format!("{name}: {argument}"))
}

/// Formats a text as one line with visible line breaks.
pub(super) fn single_line(text: &str) -> String {
    text.trim_end().replace('\n', " ⏎ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_output_between_tool_results_as_one_turn() {
        let mut turns = TurnCounter::default();
        for _ in 0..3 {
            turns.record_output();
        }
        assert_eq!(turns.count, 1);
        turns.record_tool_result();
        turns.record_tool_result();
        turns.record_output();
        assert_eq!(turns.count, 2);
    }

    #[test]
    fn waits_for_a_limit_with_unknown_reset_time() {
        let until = Timestamp::from_millis(1_795_300_000_000);
        let expected = PassError::RateLimited {
            message: "enough".to_owned(),
            until,
            is_reset_known: true,
        };
        assert_eq!(PassError::rate_limited("enough", Some(until)), expected);
        let before = clock::now();
        let PassError::RateLimited {
            until,
            is_reset_known,
            ..
        } = PassError::rate_limited("enough", None)
        else {
            panic!("not a rate limit");
        };
        assert!(!is_reset_known);
        let expected = before + UNKNOWN_RESET_WAIT..=clock::now() + UNKNOWN_RESET_WAIT;
        assert!(expected.contains(&until));
    }
}
