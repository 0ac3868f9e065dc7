//! Supervision of an agent program: reads its stream up to the result and stops it.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::output::{AgentOutput, PassError};
use super::pass::AgentAnswer;
use super::stream_reader::StreamReader;
use crate::child::running::{OutputStream, RunningChild};
use crate::child::{ChildError, ChildSpec};
use crate::console::Console;
use domain::sanitize;

/// Maximum time until the first event. Some programs hang on an invalid folder.
const START_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Maximum time between events. One command of the agent may run for ten minutes.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Maximum time of nothing but retries at the provider. Some programs retry endlessly.
const RETRY_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Time to exit after the result.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// Maximum length of one event, in bytes. Tool results hold whole files.
const MAX_EVENT: usize = 16 << 20;

/// Maximum length of the standard error kept, in bytes.
const MAX_STDERR: usize = 1500;

/// Maximum length of one logged line, in bytes.
const MAX_LOGGED_LINE: usize = 400;

/// Raw outcome of an agent program.
#[derive(Debug, Default)]
pub(super) struct AgentExit {
    /// Result, or the reason why the program was stopped.
    pub result: Option<Result<AgentAnswer, PassError>>,
    /// Exit code, if the program exited by itself.
    pub exit_code: Option<i32>,
    /// Last part of the standard error.
    pub stderr: String,
}

/// Timeout that depends on the program's activity.
struct ActivityTimeout {
    started: Instant,
    /// Time of the last event.
    last_event: Option<Instant>,
    /// Start of the current series of retries at the provider.
    retrying_since: Option<Instant>,
    /// Whether the last retry was caused by a rate limit.
    is_rate_limited: bool,
}

impl ActivityTimeout {
    fn record(&mut self, output: &AgentOutput) {
        let now = Instant::now();
        self.is_rate_limited = matches!(output, AgentOutput::RateLimited(_));
        if matches!(
            output,
            AgentOutput::ProviderRetry(_) | AgentOutput::RateLimited(_)
        ) {
            self.retrying_since.get_or_insert(now);
        } else {
            self.retrying_since = None;
            self.last_event = Some(now);
        }
    }

    /// Records a line of the standard error, which is the only log of a program whose standard output is its answer.
    fn record_stderr(&mut self, reader: &StreamReader) {
        if matches!(reader, StreamReader::Command(_)) {
            self.record(&AgentOutput::empty());
        }
    }

    /// Returns the time at which the program is stopped, and the reason.
    fn deadline(&self) -> (Instant, String) {
        let silent = |limit: Duration| format!("no event for {} minutes", limit.as_secs() / 60);
        match (self.retrying_since, self.last_event) {
            (Some(since), _) => {
                let problem = match self.is_rate_limited {
                    true => "limited the rate of requests",
                    false => "could not be reached",
                };
                let minutes = RETRY_LIMIT.as_secs() / 60;
                let reason = format!("the provider {problem} for {minutes} minutes");
                (since + RETRY_LIMIT, reason)
            }
            (None, Some(since)) => (since + SILENCE_TIMEOUT, silent(SILENCE_TIMEOUT)),
            (None, None) => (self.started + START_TIMEOUT, silent(START_TIMEOUT)),
        }
    }

    /// Returns the error of a pass that was stopped for this reason.
    fn error(&self, reason: String) -> PassError {
        match self.retrying_since {
            Some(_) if self.is_rate_limited => PassError::rate_limited(&reason, None),
            Some(_) => PassError::Provider(reason),
            None => PassError::Other(reason),
        }
    }
}

/// Reads the program's stream up to its result and then stops it: some versions never close their
/// output.
///
/// # Errors
/// If the program cannot be started.
pub(super) async fn run_to_completion(
    spec: &ChildSpec,
    reader: &mut StreamReader,
    console: &Console,
    deadline: Instant,
) -> Result<AgentExit, ChildError> {
    let mut running = RunningChild::start(spec, MAX_EVENT)?;
    let mut exit = AgentExit::default();
    let mut timeout = ActivityTimeout {
        started: Instant::now(),
        last_event: None,
        retrying_since: None,
        is_rate_limited: false,
    };
    let log = |line: &str| console.log_child(&format_line(line, &spec.dir, console));
    let mut grace = EXIT_GRACE;
    loop {
        let (until, reason) = timeout.deadline();
        let line = match timeout_at(deadline.min(until), running.next_line()).await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => {
                grace = Duration::ZERO;
                exit.result = Some(Err(if until >= deadline {
                    PassError::TimedOut
                } else {
                    timeout.error(reason)
                }));
                break;
            }
        };
        if line.stream == OutputStream::Stderr {
            log(&line.text);
            append_stderr(&mut exit.stderr, &console.redact(&line.text));
            timeout.record_stderr(reader);
            continue;
        }
        let output = reader.read(&line.text);
        timeout.record(&output);
        match output {
            AgentOutput::Log(lines) => lines.iter().for_each(|line| log(line)),
            AgentOutput::ProviderRetry(line) | AgentOutput::RateLimited(line) => log(&line),
            AgentOutput::Abort(error) => {
                grace = Duration::ZERO;
                exit.result = Some(Err(error));
                break;
            }
            AgentOutput::Finished {
                unlogged_lines,
                result,
            } => {
                unlogged_lines.iter().for_each(|line| log(line));
                exit.result = Some(result);
                break;
            }
        }
    }
    exit.exit_code = running.wait_or_kill(grace).await.map(|exit| exit.code());
    Ok(exit)
}

/// Formats a line for the log: without secrets, with paths relative to the work tree, cut.
fn format_line(line: &str, tree: &Path, console: &Console) -> String {
    let line = console.redact(line);
    let tree = tree.to_string_lossy();
    let line = line.replace(&format!("{tree}/"), "").replace(&*tree, ".");
    sanitize::truncate(line, MAX_LOGGED_LINE, sanitize::ELLIPSIS).into_owned()
}

/// Appends a line to the kept standard error and drops its beginning.
fn append_stderr(stderr: &mut String, line: &str) {
    stderr.push_str(&sanitize::log_line(line));
    stderr.push('\n');
    let surplus = stderr.len().saturating_sub(MAX_STDERR);
    stderr.drain(..stderr.ceil_char_boundary(surplus));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::pass::AgentRole;
    use crate::agent::{claude, command};

    #[test]
    fn the_standard_error_of_a_command_is_activity() {
        let started = Instant::now();
        let claude = StreamReader::Claude(claude::Reader::new(AgentRole::Implement));
        let command = StreamReader::Command(command::Reader::default());
        for (reader, timeout_from_start) in [(claude, START_TIMEOUT), (command, SILENCE_TIMEOUT)] {
            let mut timeout = ActivityTimeout {
                started,
                last_event: None,
                retrying_since: None,
                is_rate_limited: false,
            };
            timeout.record_stderr(&reader);
            let (deadline, reason) = timeout.deadline();
            assert!(deadline >= started + timeout_from_start, "{reason}");
        }
    }

    #[test]
    fn endless_retries_do_not_count_as_activity() {
        let started = Instant::now();
        let mut timeout = ActivityTimeout {
            started,
            last_event: None,
            retrying_since: None,
            is_rate_limited: false,
        };
        assert_eq!(timeout.deadline().0, started + START_TIMEOUT);
        timeout.record(&AgentOutput::empty());
        assert!(timeout.deadline().0 >= started + SILENCE_TIMEOUT);
        timeout.record(&AgentOutput::ProviderRetry("once".into()));
        let (deadline, reason) = timeout.deadline();
        assert_eq!(reason, "the provider could not be reached for 5 minutes");
        timeout.record(&AgentOutput::ProviderRetry("and again".into()));
        assert_eq!(timeout.deadline().0, deadline);
        assert_eq!(timeout.error(reason.clone()), PassError::Provider(reason));
        timeout.record(&AgentOutput::RateLimited("slow down".into()));
        let (until, reason) = timeout.deadline();
        assert_eq!(until, deadline);
        assert!(matches!(
            timeout.error(reason),
            PassError::RateLimited { .. }
        ));
        timeout.record(&AgentOutput::empty());
        assert!(timeout.deadline().0 > deadline);
        assert_eq!(
            timeout.error("silent".into()),
            PassError::Other("silent".into())
        );
    }
}
