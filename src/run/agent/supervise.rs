//! Following a program up to its last word, and ending it.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::AgentAnswer;
use super::StreamReader;
use super::output::{AgentOutput, PassError};
use crate::child::{ChildError, ChildSpec, OutputStream, RunningChild};
use crate::console::Console;
use crate::text;

/// How long may an agent take to say its first word? Some hang for ever on a bad folder.
const START_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// How long may it be silent afterwards? One command of the agent may run for ten minutes.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How long may it do nothing but ask its provider again? Some do so without end.
const TROUBLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long may it take to end after its result?
const END_GRACE: Duration = Duration::from_secs(10);

/// How long may one event be? Tools answer with whole files.
const MAX_EVENT: usize = 16 << 20;

/// How much of what it says on standard error is kept?
const MAX_STDERR: usize = 1500;

/// How much of one thing the agent says is logged?
const MAX_LOGGED: usize = 400;

/// How the program ended, before it is judged.
#[derive(Debug, Default)]
pub(super) struct AgentExit {
    /// Its last word, or why we ended it.
    pub result: Option<Result<AgentAnswer, PassError>>,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    pub stderr: String,
}

/// How long we go on waiting.
struct Patience {
    begun: Instant,
    /// When something last happened.
    alive: Option<Instant>,
    /// Since when nothing but trouble is heard of.
    troubled: Option<Instant>,
    /// Whether the last trouble was that too much is asked of the provider.
    is_throttled: bool,
}

impl Patience {
    fn hears(&mut self, said: &AgentOutput) {
        let now = Instant::now();
        self.is_throttled = matches!(said, AgentOutput::RateLimited(_));
        if matches!(
            said,
            AgentOutput::ProviderRetry(_) | AgentOutput::RateLimited(_)
        ) {
            self.troubled.get_or_insert(now);
        } else {
            self.troubled = None;
            self.alive = Some(now);
        }
    }

    /// When it ends, and what is said then.
    fn end(&self) -> (Instant, String) {
        let silent = |span: Duration| format!("no event for {} minutes", span.as_secs() / 60);
        match (self.troubled, self.alive) {
            (Some(since), _) => {
                let trouble = match self.is_throttled {
                    true => "limited the rate of requests",
                    false => "could not be reached",
                };
                let minutes = TROUBLE_TIMEOUT.as_secs() / 60;
                let words = format!("the provider {trouble} for {minutes} minutes");
                (since + TROUBLE_TIMEOUT, words)
            }
            (None, Some(since)) => (since + SILENCE_TIMEOUT, silent(SILENCE_TIMEOUT)),
            (None, None) => (self.begun + START_TIMEOUT, silent(START_TIMEOUT)),
        }
    }

    /// What an end by impatience is.
    fn fault(&self, words: String) -> PassError {
        match self.troubled {
            Some(_) if self.is_throttled => PassError::rate_limited(&words, None),
            Some(_) => PassError::Provider(words),
            None => PassError::Other(words),
        }
    }
}

/// Reads the program's stream up to its result, and ends it: reading on would be in vain, some
/// versions never close their output.
pub(super) async fn run_to_completion(
    spec: &ChildSpec,
    reader: &mut StreamReader,
    console: &Console,
    deadline: Instant,
) -> Result<AgentExit, ChildError> {
    let mut running = RunningChild::start(spec, MAX_EVENT)?;
    let mut ending = AgentExit::default();
    let mut patience = Patience {
        begun: Instant::now(),
        alive: None,
        troubled: None,
        is_throttled: false,
    };
    let log = |line: &str| console.log_child(&shown(line, &spec.dir, console));
    let mut grace = END_GRACE;
    loop {
        let (until, impatient) = patience.end();
        let line = match timeout_at(deadline.min(until), running.next_line()).await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => {
                grace = Duration::ZERO;
                ending.result = Some(Err(if until >= deadline {
                    PassError::TimedOut
                } else {
                    patience.fault(impatient)
                }));
                break;
            }
        };
        if line.stream == OutputStream::Stderr {
            log(&line.text);
            keep(&mut ending.stderr, &console.redact(&line.text));
            continue;
        }
        let said = reader.read(&line.text);
        patience.hears(&said);
        match said {
            AgentOutput::Log(lines) => lines.iter().for_each(|line| log(line)),
            AgentOutput::ProviderRetry(line) | AgentOutput::RateLimited(line) => log(&line),
            AgentOutput::Abort(fault) => {
                grace = Duration::ZERO;
                ending.result = Some(Err(fault));
                break;
            }
            AgentOutput::Finished {
                unlogged_lines: unsaid,
                result: ended,
            } => {
                unsaid.iter().for_each(|line| log(line));
                ending.result = Some(ended);
                break;
            }
        }
    }
    ending.exit_code = running.wait_or_kill(grace).await.map(|exit| exit.code());
    Ok(ending)
}

/// A line as it is logged: without secrets, with paths from the work tree's root, not too long.
fn shown(line: &str, tree: &Path, console: &Console) -> String {
    let line = console.redact(line);
    let tree = tree.to_string_lossy();
    let line = line.replace(&format!("{tree}/"), "").replace(&*tree, ".");
    text::truncate(&line, MAX_LOGGED)
}

/// Keeps the last of what was said on standard error.
fn keep(stderr: &mut String, line: &str) {
    stderr.push_str(&text::sanitize_log_line(line));
    stderr.push('\n');
    let surplus = stderr.len().saturating_sub(MAX_STDERR);
    let from = (surplus..=stderr.len())
        .find(|at| stderr.is_char_boundary(*at))
        .unwrap_or_default();
    stderr.drain(..from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_asked_again_without_end_is_no_sign_of_life() {
        let begun = Instant::now();
        let mut patience = Patience {
            begun,
            alive: None,
            troubled: None,
            is_throttled: false,
        };
        assert_eq!(patience.end().0, begun + START_TIMEOUT);
        patience.hears(&AgentOutput::empty());
        assert!(patience.end().0 >= begun + SILENCE_TIMEOUT);
        patience.hears(&AgentOutput::ProviderRetry("once".into()));
        let (end, words) = patience.end();
        assert_eq!(words, "the provider could not be reached for 5 minutes");
        patience.hears(&AgentOutput::ProviderRetry("and again".into()));
        assert_eq!(patience.end().0, end);
        assert_eq!(patience.fault(words.clone()), PassError::Provider(words));
        patience.hears(&AgentOutput::RateLimited("slow down".into()));
        let (until, words) = patience.end();
        assert_eq!(until, end);
        assert!(matches!(
            patience.fault(words),
            PassError::RateLimited { .. }
        ));
        patience.hears(&AgentOutput::empty());
        assert!(patience.end().0 > end);
        assert_eq!(
            patience.fault("silent".into()),
            PassError::Other("silent".into())
        );
    }
}
