//! Whether a pass went well. (facts: the vendors' own rules, and a result that was read)

use super::output::PassError;
use super::supervise::AgentExit;
use super::{AgentAnswer, AgentFailure, StreamReader};
use crate::context::OUT_OF_TIME;
use domain::report::FailureCode;

/// Success takes a result that says so, an exit code that does not contradict it, and no more turns
/// than were allowed. Whether the work tree changed is for the caller to see.
pub(super) fn evaluate(
    ending: AgentExit,
    reader: &StreamReader,
    turns: u64,
    max_turns: u32,
) -> Result<AgentAnswer, AgentFailure> {
    let words = ending.stderr.trim();
    let last = match (ending.result, ending.exit_code) {
        (None, Some(exit)) => reader.interpret_exit(exit, words),
        (last, _) => last,
    };
    // What we ended after its result had nothing left to say with its exit code.
    let went_well = matches!(last, Some(Ok(_)));
    let exit = ending.exit_code.unwrap_or(i32::from(!went_well));
    let fault = match last {
        Some(Ok(_)) if turns > u64::from(max_turns) => PassError::TurnsExhausted,
        Some(Ok(_)) if exit != 0 => PassError::Other("it ended badly after its result".to_owned()),
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(fault)) => fault,
        None if words.is_empty() => PassError::missing_result(),
        None => PassError::Other(words.to_owned()),
    };
    let retry_at = match &fault {
        PassError::RateLimited { until, .. } => Some(*until),
        PassError::TurnsExhausted
        | PassError::TimedOut
        | PassError::Provider(_)
        | PassError::Other(_) => None,
    };
    let (code, words) = match fault {
        PassError::TurnsExhausted => (
            Some(FailureCode::MaxTurnsExhausted),
            format!("Reached max turns ({max_turns})"),
        ),
        PassError::RateLimited {
            message: words,
            until,
            is_reset_known: is_told,
        } => (
            Some(FailureCode::ProviderLimit),
            match is_told {
                true => format!("{words}; the limit is lifted at {until}"),
                false => format!("{words}; when it is lifted is not said, next try at {until}"),
            },
        ),
        PassError::TimedOut => (Some(FailureCode::TimedOut), OUT_OF_TIME.to_owned()),
        PassError::Provider(words) => (Some(FailureCode::ProviderUnavailable), words),
        PassError::Other(words) => (None, words),
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
