//! Whether a pass went well. (facts: the vendors' own rules, and a result that was read)

use super::follow::Ending;
use super::said::Fault;
use super::{AgentFailure, Answer, Reader};
use crate::run::OUT_OF_TIME;
use domain::report::FailureCode;

/// Success takes a result that says so, an exit code that does not contradict it, and no more turns
/// than were allowed. Whether the work tree changed is for the caller to see.
pub(super) fn judge(
    ending: Ending,
    reader: &Reader,
    turns: u64,
    max_turns: u32,
) -> Result<Answer, AgentFailure> {
    let words = ending.stderr.trim();
    let last = match (ending.last, ending.exit_code) {
        (None, Some(exit)) => reader.at_end(exit, words),
        (last, _) => last,
    };
    // What we ended after its result had nothing left to say with its exit code.
    let went_well = matches!(last, Some(Ok(_)));
    let exit = ending.exit_code.unwrap_or(i32::from(!went_well));
    let fault = match last {
        Some(Ok(_)) if turns > u64::from(max_turns) => Fault::OutOfTurns,
        Some(Ok(_)) if exit != 0 => Fault::Other("it ended badly after its result".to_owned()),
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(fault)) => fault,
        None if words.is_empty() => Fault::without_result(),
        None => Fault::Other(words.to_owned()),
    };
    let retry_at = match &fault {
        Fault::Limited { until, .. } => Some(*until),
        Fault::OutOfTurns | Fault::OutOfTime | Fault::Provider(_) | Fault::Other(_) => None,
    };
    let (code, words) = match fault {
        Fault::OutOfTurns => (
            Some(FailureCode::MaxTurnsExhausted),
            format!("Reached max turns ({max_turns})"),
        ),
        Fault::Limited {
            words,
            until,
            is_told,
        } => (
            Some(FailureCode::ProviderLimit),
            match is_told {
                true => format!("{words}; the limit is lifted at {until}"),
                false => format!("{words}; when it is lifted is not said, next try at {until}"),
            },
        ),
        Fault::OutOfTime => (Some(FailureCode::TimedOut), OUT_OF_TIME.to_owned()),
        Fault::Provider(words) => (Some(FailureCode::ProviderUnavailable), words),
        Fault::Other(words) => (None, words),
    };
    Err(AgentFailure {
        code,
        retry_at,
        reason: format!(
            "model invocation failed with exit code {}: {}",
            exit.max(1),
            words.trim()
        ),
    })
}
