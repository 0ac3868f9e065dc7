//! Outcome of an agent pass.

use super::output::PassError;
use super::pass::AgentAnswer;
use super::stream_reader::StreamReader;
use super::supervise::AgentExit;
use crate::failure::{OUT_OF_TIME, RunFailure};
use domain::report::FailureCode;

/// Evaluates a pass. Success requires a successful result, no contradicting exit code, and no more
/// turns than allowed. The caller checks whether the work tree changed.
pub(super) fn evaluate(
    agent_exit: AgentExit,
    reader: &StreamReader,
    turns: u64,
    max_turns: u32,
) -> Result<AgentAnswer, RunFailure> {
    let stderr = agent_exit.stderr.trim();
    let result = match (agent_exit.result, agent_exit.exit_code) {
        (None, Some(exit)) => reader.interpret_exit(exit, stderr),
        (result, _) => result,
    };
    // A program that was killed after its result has no exit code.
    let succeeded = matches!(result, Some(Ok(_)));
    let exit = agent_exit.exit_code.unwrap_or(i32::from(!succeeded));
    let error = match result {
        Some(Ok(_)) if turns > u64::from(max_turns) => PassError::TurnsExhausted,
        Some(Ok(_)) if exit != 0 => {
            PassError::Other("it exited with an error after its result".to_owned())
        }
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(error)) => error,
        None if stderr.is_empty() => PassError::missing_result(),
        None => PassError::Other(stderr.to_owned()),
    };
    let retry_at = match &error {
        PassError::RateLimited { until, .. } => Some(*until),
        PassError::TurnsExhausted
        | PassError::TimedOut
        | PassError::Provider(_)
        | PassError::Other(_) => None,
    };
    let (code, message) = match error {
        PassError::TurnsExhausted => (
            Some(FailureCode::MaxTurnsExhausted),
            format!("Reached max turns ({max_turns})"),
        ),
        PassError::RateLimited {
            message,
            until,
            is_reset_known,
        } => (
            Some(FailureCode::ProviderLimit),
            match is_reset_known {
                true => format!("{message}; the limit resets at {}", until.date_text()),
                false => format!(
                    "{message}; reset time unknown, next attempt at {}",
                    until.date_text()
                ),
            },
        ),
        PassError::TimedOut => (Some(FailureCode::TimedOut), OUT_OF_TIME.to_owned()),
        PassError::Provider(message) => (Some(FailureCode::ProviderUnavailable), message),
        PassError::Other(message) => (None, message),
    };
    Err(RunFailure {
        code,
        retry_at,
        reason: format!(
            "model invocation failed with exit code {}: {}",
            exit.max(1),
            message.trim()
        ),
    })
}
