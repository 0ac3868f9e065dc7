//! The coding agent: a program that gets a prompt and works in a folder.
//!
//! Here is what all such programs share: folders, time limits, reading lines, ending them. What is
//! particular to one — flags, stream, verdict — stands in its own file; [`claude`] is the one there
//! is.

pub mod claude;
mod stream;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::child::{ChildEnv, ChildError, Running, Spec, Voice};
use super::console::Console;
use super::run::{Failure, Folders};
use super::text;
use crate::domain::report::{FailureCode, Usage};
use stream::Said;

/// How long may an agent take to say its first word? Some hang for ever on a bad folder.
const START_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// How long may it be silent afterwards? One command of the agent may run for ten minutes.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How long may it take to end after its result?
const END_GRACE: Duration = Duration::from_secs(10);

/// How long may one event be? Tools answer with whole files.
const MAX_EVENT: usize = 16 << 20;

/// How much of what it says on standard error is kept?
const MAX_SAID: usize = 1500;

/// The agent of this run.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The program and the arguments before ours.
    pub command: Vec<String>,
    /// Its environment: what any child gets, and its model key.
    pub env: ChildEnv,
    pub model: Option<String>,
}

/// What the agent is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Change the work tree.
    Implement,
    /// Read the work tree and judge.
    Review,
    /// Read the work tree and write below one folder of it.
    Plan {
        /// From the work tree's root.
        folder: &'static str,
    },
}

/// One call of the agent.
#[derive(Debug, Clone)]
pub struct Pass {
    pub role: Role,
    pub max_turns: u32,
    /// What the agent must follow.
    pub system: String,
    /// What it is asked.
    pub prompt: String,
}

/// What came of a pass that went well.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    pub text: String,
    /// The answer in the form that was asked for.
    pub structured: Option<Value>,
}

/// A pass that went wrong, in the run's own words.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFailure {
    pub code: Option<FailureCode>,
    pub reason: String,
}

impl From<AgentFailure> for Failure {
    fn from(failure: AgentFailure) -> Self {
        Self {
            code: failure.code,
            reason: failure.reason,
        }
    }
}

/// How the program ended, before it is judged.
#[derive(Debug, Default)]
struct Ending {
    result: Option<stream::ResultEvent>,
    /// Its exit code, if it ended by itself.
    exit_code: Option<i32>,
    stderr: String,
    /// Why we ended it.
    stopped: Option<String>,
    denied_access: bool,
}

impl Agent {
    /// Lets the agent work. What it used is counted even when it failed.
    pub async fn perform(
        &self,
        pass: &Pass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
    ) -> (Usage, Result<Answer, AgentFailure>) {
        let spec = match self.prepare(pass, folders) {
            Ok(spec) => spec,
            Err(error) => {
                let failure = claude::not_started(&format!("preparing its folders: {error}"));
                return (Usage::default(), Err(failure));
            }
        };
        match follow(&spec, console, deadline).await {
            Ok(ending) => {
                let usage = ending
                    .result
                    .as_ref()
                    .map(stream::ResultEvent::usage)
                    .unwrap_or_default();
                (usage, claude::judge(ending, pass))
            }
            Err(error) => (
                Usage::default(),
                Err(claude::not_started(&error.to_string())),
            ),
        }
    }

    fn prepare(&self, pass: &Pass, folders: &Folders) -> std::io::Result<Spec> {
        let home = folders.make("home")?;
        // Settings that a script or an earlier pass left would be obeyed.
        let settings = folders.make_empty("agent-settings")?;
        let system = folders.make_empty("agent-prompt")?.join("system.md");
        std::fs::write(&system, &pass.system)?;
        let temp = folders.make("agent-tmp")?;
        Ok(self.spec(pass, &folders.tree(), &home, &settings, &temp, &system))
    }

    fn spec(
        &self,
        pass: &Pass,
        tree: &Path,
        home: &Path,
        settings: &Path,
        temp: &Path,
        system: &Path,
    ) -> Spec {
        let (program, first) = match self.command.split_first() {
            Some((program, first)) => (program.as_str(), first),
            None => ("claude", &[][..]),
        };
        let mut args: Vec<std::ffi::OsString> = first.iter().map(Into::into).collect();
        args.extend(claude::arguments(pass, self.model.as_deref(), system));
        Spec {
            program: program.into(),
            args,
            dir: tree.to_owned(),
            env: claude::environment(self.env.clone(), home, settings, temp),
            input: pass.prompt.clone().into_bytes(),
        }
    }
}

/// Reads the program's events up to its result, and ends it.
async fn follow(spec: &Spec, console: &Console, deadline: Instant) -> Result<Ending, ChildError> {
    let mut running = Running::start(spec, MAX_EVENT)?;
    let mut ending = Ending::default();
    let mut patience = START_TIMEOUT;
    loop {
        let until = deadline.min(Instant::now() + patience);
        let line = match timeout_at(until, running.next()).await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => {
                ending.stopped = Some(if until >= deadline {
                    "the run's time was used up".to_owned()
                } else {
                    format!("no event for {} minutes", patience.as_secs() / 60)
                });
                break;
            }
        };
        match line.voice {
            Voice::Err => {
                console.child(&line.text);
                ending.stderr.push_str(&text::log_line(&line.text));
                ending.stderr.push('\n');
                let surplus = ending.stderr.len().saturating_sub(MAX_SAID);
                let from = (surplus..=ending.stderr.len())
                    .find(|at| ending.stderr.is_char_boundary(*at))
                    .unwrap_or_default();
                ending.stderr.drain(..from);
                continue;
            }
            Voice::Out => patience = SILENCE_TIMEOUT,
        }
        match stream::read(&line.text) {
            Said::Lines(lines) => lines.iter().for_each(|line| console.child(line)),
            Said::AccessDenied => {
                ending.denied_access = true;
                ending.stopped = Some("the provider does not accept the model credentials".into());
                break;
            }
            Said::Result(result) => {
                ending.result = Some(*result);
                break;
            }
        }
    }
    // Reading on would be in vain: some versions never close their output.
    let grace = if ending.stopped.is_some() {
        Duration::ZERO
    } else {
        END_GRACE
    };
    ending.exit_code = running.finish(grace).await.map(|exit| exit.code());
    Ok(ending)
}
