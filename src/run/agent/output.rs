//! What a program says while it works, in the words that all programs share.

use std::time::Duration;

use serde_json::Value;

use super::AgentAnswer;
use crate::context::RunContext;
use domain::time::Timestamp;

/// How long is waited for a limit of which the program does not print when it is lifted? Those of API
/// keys are refilled every minute, and the program has asked for minutes or was told of a wait that is
/// longer; five such waits in a row outlast the windows of some hours that providers have as well.
const UNTOLD_WAIT: Duration = Duration::from_secs(30 * 60);

/// A line of a program's stream, understood.
#[derive(Debug)]
pub(super) enum AgentOutput {
    /// Something to log.
    Log(Vec<String>),
    /// The provider is asked once more, for this reason. That alone is no sign of life.
    ProviderRetry(String),
    /// The same, because more is asked of the provider than is allowed.
    RateLimited(String),
    /// Going on would be in vain.
    Abort(PassError),
    /// The program's last word, and what was not logged before it.
    Finished {
        unlogged_lines: Vec<String>,
        result: Result<AgentAnswer, PassError>,
    },
}

impl AgentOutput {
    pub(super) fn empty() -> Self {
        AgentOutput::Log(Vec::new())
    }

    pub(super) fn finished(result: Result<AgentAnswer, PassError>) -> Self {
        let unlogged_lines = Vec::new();
        AgentOutput::Finished {
            unlogged_lines,
            result,
        }
    }
}

/// What went wrong, before it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PassError {
    TurnsExhausted,
    /// It was still at work when the run's time was used up.
    TimedOut,
    /// The provider refused, is overloaded, or cannot be reached.
    Provider(String),
    /// What we were allowed to use is used up until then.
    RateLimited {
        message: String,
        until: Timestamp,
        /// Whether the program has printed when the limit is lifted.
        is_reset_known: bool,
    },
    Other(String),
}

impl PassError {
    pub(super) fn access_denied() -> Self {
        PassError::Provider("the provider does not accept the model credentials".to_owned())
    }

    pub(super) fn missing_result() -> Self {
        PassError::Other("it ended without a result".to_owned())
    }

    /// What we were allowed to use is used up. Until when is not always told; then a while is waited.
    pub(super) fn rate_limited(words: &str, until: Option<Timestamp>) -> Self {
        PassError::RateLimited {
            message: words.to_owned(),
            until: until.unwrap_or_else(|| RunContext::now() + UNTOLD_WAIT),
            is_reset_known: until.is_some(),
        }
    }
}

/// Counts a model's answers where the stream does not: an answer begins with the first thing said
/// or done after a tool has answered.
#[derive(Debug, Default)]
pub(super) struct TurnCounter {
    pub(super) count: u64,
    is_open: bool,
}

impl TurnCounter {
    pub(super) fn record_output(&mut self) {
        self.count += u64::from(!self.is_open);
        self.is_open = true;
    }

    pub(super) fn record_tool_result(&mut self) {
        self.is_open = false;
    }
}

/// The lines of a text that hold anything.
pub(super) fn non_empty_lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

/// A call of a tool as one line: its name and what tells most of its input.
pub(super) fn format_tool_call(name: &str, input: &Value) -> String {
    let told = ["command", "file_path", "pattern", "path", "url"]
        .iter()
        .find_map(|key| input[*key].as_str().map(str::to_owned))
        .unwrap_or_else(|| input.to_string());
    single_line(&format!("{name}: {told}"))
}

/// A text as one line, its breaks visible.
pub(super) fn single_line(text: &str) -> String {
    text.trim_end().replace('\n', " ⏎ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_between_two_answers_of_tools_is_one_turn() {
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
    fn a_limit_of_which_no_end_is_told_is_waited_for_as_well() {
        let until = Timestamp::from_millis(1_795_300_000_000);
        let told = PassError::RateLimited {
            message: "enough".to_owned(),
            until,
            is_reset_known: true,
        };
        assert_eq!(PassError::rate_limited("enough", Some(until)), told);
        let before = RunContext::now();
        let PassError::RateLimited {
            until,
            is_reset_known: is_told,
            ..
        } = PassError::rate_limited("enough", None)
        else {
            panic!("it is no limit");
        };
        assert!(!is_told);
        assert!((before + UNTOLD_WAIT..=RunContext::now() + UNTOLD_WAIT).contains(&until));
    }
}
