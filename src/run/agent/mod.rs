//! The coding agent: a program that gets a prompt and works in a folder.
//!
//! Here is what all such programs share: folders, credentials, the call. Reading on to the end of
//! one is in [`follow`], how its end is judged in [`judge`]. What is particular to one program —
//! flags, settings, stream — stands in its own file.
//!
//! A repository is hostile to its own agent, too: each file says what of a repository's
//! configuration would run code or move the key, and how that is shut.

mod claude;
mod codex;
mod command;
mod gemini;
#[cfg(test)]
mod others_tests;
mod outcome;
mod output;
mod program;
mod rate_limit_reset;
mod supervise;
/// For the fuzzer: a program's whole stream, read as each of them would be.
pub fn fuzz_streams(stream: &str) {
    let pass = AgentPass {
        role: AgentRole::Review,
        max_turns: 3,
        system: String::new(),
        prompt: String::new(),
    };
    let nowhere = PathBuf::from("/nonexistent");
    let desk = PassFolders {
        work_tree: nowhere.clone(),
        home: nowhere.clone(),
        settings: nowhere.clone(),
        input_files: nowhere.clone(),
        temp_dir: nowhere,
    };
    let readers = [
        StreamReader::Claude(claude::Reader::new(pass.role)),
        StreamReader::Codex(codex::Reader::new(&pass, &desk)),
        StreamReader::Gemini(gemini::Reader::default()),
        StreamReader::Command(command::Reader::default()),
    ];
    for mut reader in readers {
        for line in stream.lines() {
            let _ = reader.read(line);
        }
        let _ = (reader.usage(), reader.interpret_exit(1, stream));
    }
}

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;
use tokio::time::Instant;

use super::child::{ChildEnv, ChildSpec};
use super::console::Console;
use super::context::{Folders, RunFailure};
use super::programs::{Program, ProgramError};
use super::text;
use super::usage_meter::UsageMeter;
use domain::report::{FailureCode, Usage};
use domain::secret::Secret;
use domain::time::Timestamp;
use output::AgentOutput;

/// The form of a review's answer.
const REVIEW_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["approved","blocking"],"properties":{"approved":{"type":"boolean"},"blocking":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["title","location","problem","requiredFix"],"properties":{"title":{"type":"string"},"location":{"type":"string"},"problem":{"type":"string"},"requiredFix":{"type":"string"}}}}}}"#;

/// How often is a request to the provider repeated before a pass is given up? About two minutes of
/// growing pauses.
pub const RETRIES: u32 = 8;

/// How much of the program's own words stands in a reason?
const MAX_WORDS: usize = 600;

/// The programs that can be the agent. (design: *Agent CLIs*)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentCli {
    Claude,
    Codex,
    Gemini,
    /// A program of the operator's own.
    Command,
}

/// Those that are known by name. A repository may choose among these.
const NAMED: [(&str, AgentCli); 3] = [
    ("claude", AgentCli::Claude),
    ("codex", AgentCli::Codex),
    ("gemini", AgentCli::Gemini),
];

impl AgentCli {
    /// The program of this name.
    ///
    /// # Errors
    /// A name that is not known; the message says which are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let found = NAMED.iter().find(|(known, _)| *known == name.trim());
        found.map(|(_, cli)| *cli).ok_or_else(|| {
            let names = NAMED.map(|(name, _)| name).join(", ");
            format!(
                "the agent {:?} is not known; there are {names}",
                name.trim()
            )
        })
    }

    fn name(self) -> &'static str {
        let found = NAMED.iter().find(|(_, cli)| *cli == self);
        found.map_or("command", |(name, _)| *name)
    }

    /// The variables that it reaches its provider with.
    fn keys(self) -> Vec<&'static str> {
        match self {
            AgentCli::Claude => claude::KEYS.to_vec(),
            AgentCli::Codex => codex::KEYS.to_vec(),
            AgentCli::Gemini => gemini::KEYS.to_vec(),
            AgentCli::Command => direct_key_names().collect(),
        }
    }
}

/// Every variable that a model provider is reached with directly.
pub fn direct_key_names() -> impl Iterator<Item = &'static str> {
    [claude::KEYS, codex::KEYS, gemini::KEYS]
        .into_iter()
        .flatten()
        .copied()
}

/// Every variable that the cloud provider is reached with.
pub fn cloud_key_names() -> impl Iterator<Item = &'static str> {
    claude::CLOUD_KEYS.iter().copied()
}

/// Whether a variable is an address: it travels with the credentials and is none.
pub fn is_base_url(variable: &str) -> bool {
    variable.ends_with("_BASE_URL")
}

/// The agent of this run.
#[derive(Debug, Clone)]
pub struct Agent {
    pub cli: AgentCli,
    /// The operator's own program and its arguments; used by [`Cli::Command`] alone.
    pub command: Vec<String>,
    /// Its program as it was found, or why there is none; looked for at the first call at the latest.
    pub program: Option<Result<Program, ProgramError>>,
    /// What any child gets.
    pub env: ChildEnv,
    /// Every model credential of the run, by variable. A program gets its own ones only.
    pub keys: Vec<(String, Secret)>,
    /// The region of the cloud provider, when the run uses that.
    pub cloud_region: Option<String>,
    pub model: Option<String>,
    /// How often a request to the provider is repeated.
    pub retries: u32,
}

/// What the agent is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRole {
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
pub struct AgentPass {
    pub role: AgentRole,
    pub max_turns: u32,
    /// What the agent must follow.
    pub system: String,
    /// What it is asked.
    pub prompt: String,
}

/// What came of a pass that went well.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentAnswer {
    pub text: String,
    /// The answer in the form that was asked for.
    pub structured: Option<Value>,
}

impl AgentAnswer {
    fn from_text(text: &str) -> Self {
        Self {
            text: text.trim().to_owned(),
            structured: None,
        }
    }
}

/// A pass that went wrong, in the run's own words.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFailure {
    pub code: Option<FailureCode>,
    pub reason: String,
    /// When the provider will take requests again, if it refused them until then.
    pub retry_at: Option<Timestamp>,
}

impl AgentFailure {
    fn not_started(cause: &str) -> Self {
        Self {
            code: None,
            reason: format!("model invocation failed: {cause}"),
            retry_at: None,
        }
    }
}

impl From<AgentFailure> for RunFailure {
    fn from(failure: AgentFailure) -> Self {
        Self {
            code: failure.code,
            reason: failure.reason,
            retry_at: failure.retry_at,
        }
    }
}

/// The folders of one call. All but the tree and the home are made afresh for it: settings that a
/// script or an earlier pass left would be obeyed.
#[derive(Debug)]
struct PassFolders {
    work_tree: PathBuf,
    /// Shared with the repository's scripts, for what tools keep there.
    home: PathBuf,
    /// Where the program finds its settings, and nobody else's.
    settings: PathBuf,
    /// What we hand to the program as files.
    input_files: PathBuf,
    temp_dir: PathBuf,
}

impl PassFolders {
    fn create(folders: &Folders) -> std::io::Result<Self> {
        Ok(Self {
            work_tree: folders.work_tree(),
            home: folders.make("home")?,
            settings: folders.make_empty("agent-settings")?,
            input_files: folders.make_empty("agent-papers")?,
            temp_dir: folders.make("agent-tmp")?,
        })
    }

    /// Puts a text into a file and answers where it is.
    fn write_input_file(&self, name: &str, text: &str) -> std::io::Result<OsString> {
        let path = self.input_files.join(name);
        std::fs::write(&path, text)?;
        Ok(path.into())
    }
}

/// How a program is called.
struct AgentInvocation {
    args: Vec<OsString>,
    env: ChildEnv,
    input: String,
}

/// Counts what a reader has read of when it is let go: at its end, or when the run is cut short in the
/// middle of a pass.
struct Counted<'m> {
    reader: StreamReader,
    meter: &'m UsageMeter,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.meter.add(self.reader.usage());
    }
}

/// What reads a program's stream.
enum StreamReader {
    Claude(claude::Reader),
    Codex(codex::Reader),
    Gemini(gemini::Reader),
    Command(command::Reader),
}

impl Agent {
    /// Whether this agent can work at all in this run.
    ///
    /// # Errors
    /// What is missing, for the operator.
    pub fn validate(&self) -> Result<(), String> {
        let name = self.cli.name();
        if self.cli == AgentCli::Command && self.command.is_empty() {
            return Err("the agent's command is empty".to_owned());
        }
        let is_cloud = self.cloud_region.is_some();
        if is_cloud && matches!(self.cli, AgentCli::Codex | AgentCli::Gemini) {
            return Err(format!(
                "the provider cloud is not possible with the agent {name}"
            ));
        }
        // In the cloud a machine may have a role of its own, and a command may need no key.
        let keys: Vec<&str> = self.cli.keys();
        let has_key = keys
            .iter()
            .any(|key| !is_base_url(key) && self.key(key).is_some());
        if has_key || is_cloud || self.cli == AgentCli::Command {
            return Ok(());
        }
        let credentials: Vec<&str> = keys.into_iter().filter(|key| !is_base_url(key)).collect();
        Err(format!(
            "the agent {name} has no model credential: set {} among the secrets of the repository",
            credentials.join(" or ")
        ))
    }

    /// A variable that the provider is reached with.
    fn key(&self, name: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(known, _)| known == name);
        found.map(|(_, key)| key.expose())
    }

    /// What any child gets, and the program's own credentials.
    fn base_env(&self) -> ChildEnv {
        let mut names = self.cli.keys();
        if self.cloud_region.is_some() {
            names = cloud_key_names().collect();
        }
        let own = names
            .into_iter()
            .filter_map(|name| Some((name, self.key(name)?)));
        own.fold(self.env.clone(), |env, (name, key)| env.with(name, key))
    }

    /// Lets the agent work, and answers what it used as well.
    pub async fn run_pass(
        &self,
        pass: &AgentPass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
    ) -> (Usage, Result<AgentAnswer, AgentFailure>) {
        let meter = UsageMeter::default();
        let ended = self
            .run_pass_metered(pass, folders, console, deadline, &meter)
            .await;
        (meter.total(), ended)
    }

    /// Lets the agent work. What it used is counted even when it failed, or is never waited for to its
    /// end.
    pub async fn run_pass_metered(
        &self,
        pass: &AgentPass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
        meter: &UsageMeter,
    ) -> Result<AgentAnswer, AgentFailure> {
        let ended = match self.prepare(pass, folders) {
            Ok((spec, reader)) => {
                let mut counted = Counted { reader, meter };
                let reader = &mut counted.reader;
                match supervise::run_to_completion(&spec, reader, console, deadline).await {
                    Ok(ending) => {
                        let turns = reader.usage().turns;
                        outcome::evaluate(ending, reader, turns, pass.max_turns)
                    }
                    Err(error) => Err(AgentFailure::not_started(&error.to_string())),
                }
            }
            Err(cause) => Err(AgentFailure::not_started(&cause)),
        };
        // What is cut first could hold half a secret that is not known for one any more.
        ended.map_err(|failure| AgentFailure {
            reason: text::truncate(&console.redact(&failure.reason), MAX_WORDS),
            ..failure
        })
    }

    fn prepare(
        &self,
        pass: &AgentPass,
        folders: &Folders,
    ) -> Result<(ChildSpec, StreamReader), String> {
        let program = self.verified_program().map_err(|error| error.to_string())?;
        self.call(&program, pass, folders)
            .map_err(|error| format!("preparing its folders: {error}"))
    }

    fn call(
        &self,
        program: &Program,
        pass: &AgentPass,
        folders: &Folders,
    ) -> std::io::Result<(ChildSpec, StreamReader)> {
        let desk = PassFolders::create(folders)?;
        let (call, reader) = match self.cli {
            AgentCli::Claude => (
                claude::build_invocation(self, pass, &desk)?,
                StreamReader::Claude(claude::Reader::new(pass.role)),
            ),
            AgentCli::Codex => (
                codex::build_invocation(self, pass, &desk)?,
                StreamReader::Codex(codex::Reader::new(pass, &desk)),
            ),
            AgentCli::Gemini => (
                gemini::build_invocation(self, pass, &desk)?,
                StreamReader::Gemini(gemini::Reader::default()),
            ),
            AgentCli::Command => (
                command::build_invocation(self, pass, &desk),
                StreamReader::Command(command::Reader::default()),
            ),
        };
        let (program, mut args) = program.command();
        args.extend(call.args);
        let spec = ChildSpec {
            program,
            args,
            dir: desk.work_tree,
            env: call.env,
            input: call.input.into_bytes(),
        };
        Ok((spec, reader))
    }
}

impl StreamReader {
    /// Reads one line. What is no event is something to log.
    fn read(&mut self, line: &str) -> AgentOutput {
        if let StreamReader::Command(reader) = self {
            return reader.read(line);
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return AgentOutput::Log(output::non_empty_lines(line));
        };
        match self {
            StreamReader::Claude(reader) => reader.read(&event),
            StreamReader::Codex(reader) => reader.read(&event),
            StreamReader::Gemini(reader) => reader.read(&event),
            StreamReader::Command(_) => AgentOutput::empty(),
        }
    }

    /// What was used up to now.
    fn usage(&self) -> Usage {
        match self {
            StreamReader::Claude(reader) => reader.usage(),
            StreamReader::Codex(reader) => reader.usage(),
            StreamReader::Gemini(reader) => reader.usage(),
            StreamReader::Command(_) => Usage::default(),
        }
    }

    /// What an end means before which no result was read, if this program's exit codes tell.
    fn interpret_exit(
        &self,
        exit: i32,
        words: &str,
    ) -> Option<Result<AgentAnswer, output::PassError>> {
        match self {
            StreamReader::Claude(_) | StreamReader::Codex(_) => None,
            StreamReader::Gemini(reader) => reader.interpret_exit(exit, words).map(Err),
            StreamReader::Command(reader) => Some(reader.interpret_exit(exit, words)),
        }
    }
}
