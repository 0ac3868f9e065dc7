//! What a program says while it works, in the words that all programs share.

use std::time::Duration;

use serde_json::Value;

use super::Answer;
use crate::run::Run;
use domain::time::Timestamp;

/// How long is waited for a limit of which the program does not print when it is lifted? Those of API
/// keys are refilled every minute, and the program has asked for minutes or was told of a wait that is
/// longer; five such waits in a row outlast the windows of some hours that providers have as well.
const UNTOLD_WAIT: Duration = Duration::from_secs(30 * 60);

/// A line of a program's stream, understood.
#[derive(Debug)]
pub(super) enum Said {
    /// Something to log.
    Lines(Vec<String>),
    /// The provider is asked once more, for this reason. That alone is no sign of life.
    Trouble(String),
    /// The same, because more is asked of the provider than is allowed.
    Throttled(String),
    /// Going on would be in vain.
    Stop(Fault),
    /// The program's last word, and what was not logged before it.
    Result {
        unsaid: Vec<String>,
        ended: Result<Answer, Fault>,
    },
}

impl Said {
    pub(super) fn nothing() -> Self {
        Said::Lines(Vec::new())
    }

    pub(super) fn ended(ended: Result<Answer, Fault>) -> Self {
        let unsaid = Vec::new();
        Said::Result { unsaid, ended }
    }
}

/// What went wrong, before it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    OutOfTurns,
    /// It was still at work when the run's time was used up.
    OutOfTime,
    /// The provider refused, is overloaded, or cannot be reached.
    Provider(String),
    /// What we were allowed to use is used up until then.
    Limited {
        words: String,
        until: Timestamp,
        /// Whether the program has printed when the limit is lifted.
        is_told: bool,
    },
    Other(String),
}

impl Fault {
    pub(super) fn access_denied() -> Self {
        Fault::Provider("the provider does not accept the model credentials".to_owned())
    }

    pub(super) fn without_result() -> Self {
        Fault::Other("it ended without a result".to_owned())
    }

    /// What we were allowed to use is used up. Until when is not always told; then a while is waited.
    pub(super) fn limited(words: &str, until: Option<Timestamp>) -> Self {
        Fault::Limited {
            words: words.to_owned(),
            until: until.unwrap_or_else(|| Run::now() + UNTOLD_WAIT),
            is_told: until.is_some(),
        }
    }
}

/// Counts a model's answers where the stream does not: an answer begins with the first thing said
/// or done after a tool has answered.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) begun: u64,
    is_open: bool,
}

impl Turns {
    pub(super) fn speaks(&mut self) {
        self.begun += u64::from(!self.is_open);
        self.is_open = true;
    }

    pub(super) fn tool_answered(&mut self) {
        self.is_open = false;
    }
}

/// The lines of a text that hold anything.
pub(super) fn paragraphs(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

/// A call of a tool as one line: its name and what tells most of its input.
pub(super) fn tool_line(name: &str, input: &Value) -> String {
    let told = ["command", "file_path", "pattern", "path", "url"]
        .iter()
        .find_map(|key| input[*key].as_str().map(str::to_owned))
        .unwrap_or_else(|| input.to_string());
    one_line(&format!("{name}: {told}"))
}

/// A text as one line, its breaks visible.
pub(super) fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', " ⏎ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_between_two_answers_of_tools_is_one_turn() {
        let mut turns = Turns::default();
        for _ in 0..3 {
            turns.speaks();
        }
        assert_eq!(turns.begun, 1);
        turns.tool_answered();
        turns.tool_answered();
        turns.speaks();
        assert_eq!(turns.begun, 2);
    }

    #[test]
    fn a_limit_of_which_no_end_is_told_is_waited_for_as_well() {
        let until = Timestamp::from_millis(1_795_300_000_000);
        let told = Fault::Limited {
            words: "enough".to_owned(),
            until,
            is_told: true,
        };
        assert_eq!(Fault::limited("enough", Some(until)), told);
        let before = Run::now();
        let Fault::Limited { until, is_told, .. } = Fault::limited("enough", None) else {
            panic!("it is no limit");
        };
        assert!(!is_told);
        assert!((before + UNTOLD_WAIT..=Run::now() + UNTOLD_WAIT).contains(&until));
    }
}
