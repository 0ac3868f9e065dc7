//! Coding agent: a program that gets a prompt and works in a folder.
//!
//! This module holds what all agent programs share: folders, credentials and the call. `supervise` runs
//! a program to completion, `outcome` evaluates its result. Flags, settings and output format of one
//! program are in its own module.
//!
//! The repository may attack its own agent. Each program's module documents which repository
//! configuration would run code or redirect the model key, and how that is prevented.

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

/// Fuzzing entry point: reads a stream as each agent program's output.
pub fn fuzz_streams(stream: &str) {
    let pass = AgentPass {
        role: AgentRole::Review,
        max_turns: 3,
        system: String::new(),
        prompt: String::new(),
    };
    let missing = PathBuf::from("/nonexistent");
    let pass_folders = PassFolders {
        work_tree: missing.clone(),
        home: missing.clone(),
        settings: missing.clone(),
        input_files: missing.clone(),
        temp_dir: missing,
    };
    let readers = [
        StreamReader::Claude(claude::Reader::new(pass.role)),
        StreamReader::Codex(codex::Reader::new(&pass, &pass_folders)),
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

/// JSON schema of a review result.
const REVIEW_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["approved","blocking"],"properties":{"approved":{"type":"boolean"},"blocking":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["title","location","problem","requiredFix"],"properties":{"title":{"type":"string"},"location":{"type":"string"},"problem":{"type":"string"},"requiredFix":{"type":"string"}}}}}}"#;

/// Number of request retries at the provider before a pass fails. With backoff about two minutes.
pub const RETRIES: u32 = 8;

/// Maximum length of program output quoted in a failure reason, in bytes.
const MAX_REASON: usize = 600;

/// Agent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentCli {
    /// Claude Code.
    Claude,
    /// OpenAI Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Program configured by the operator.
    Command,
}

/// Agents by name. Repositories can choose among these.
const NAMED_AGENTS: [(&str, AgentCli); 3] = [
    ("claude", AgentCli::Claude),
    ("codex", AgentCli::Codex),
    ("gemini", AgentCli::Gemini),
];

impl AgentCli {
    /// Returns the agent of this name.
    ///
    /// # Errors
    /// If the name is unknown. The message lists the known names.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let found = NAMED_AGENTS.iter().find(|(known, _)| *known == name.trim());
        found.map(|(_, cli)| *cli).ok_or_else(|| {
            let names = NAMED_AGENTS.map(|(name, _)| name).join(", ");
            format!("unknown agent {:?}; known agents: {names}", name.trim())
        })
    }

    fn name(self) -> &'static str {
        let found = NAMED_AGENTS.iter().find(|(_, cli)| *cli == self);
        found.map_or("command", |(name, _)| *name)
    }

    /// Returns the environment variables with credentials and address of the provider.
    fn keys(self) -> Vec<&'static str> {
        match self {
            AgentCli::Claude => claude::KEYS.to_vec(),
            AgentCli::Codex => codex::KEYS.to_vec(),
            AgentCli::Gemini => gemini::KEYS.to_vec(),
            AgentCli::Command => direct_key_names().collect(),
        }
    }
}

/// Returns every variable for direct access to a model provider.
pub fn direct_key_names() -> impl Iterator<Item = &'static str> {
    [claude::KEYS, codex::KEYS, gemini::KEYS]
        .into_iter()
        .flatten()
        .copied()
}

/// Returns every variable for the cloud provider.
pub fn cloud_key_names() -> impl Iterator<Item = &'static str> {
    claude::CLOUD_KEYS.iter().copied()
}

/// Whether a variable holds an address. It belongs to the credentials but is not secret.
pub fn is_base_url(variable: &str) -> bool {
    variable.ends_with("_BASE_URL")
}

/// Agent of a run.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Agent program.
    pub cli: AgentCli,
    /// Program and arguments configured by the operator, for [`AgentCli::Command`].
    pub command: Vec<String>,
    /// Located program, or the error. Located on first use if `None`.
    pub program: Option<Result<Program, ProgramError>>,
    /// Base environment of every child.
    pub env: ChildEnv,
    /// Every model credential of the run, by variable. A program gets only its own.
    pub keys: Vec<(String, Secret)>,
    /// Region of the cloud provider, if the run uses it.
    pub cloud_region: Option<String>,
    /// Model of the next pass; `None` leaves the choice to the program.
    pub model: Option<String>,
    /// Number of request retries at the provider.
    pub retries: u32,
}

/// Task of an agent pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRole {
    /// Changes the work tree.
    Implement,
    /// Reads the work tree and returns a verdict.
    Review,
    /// Reads the work tree and writes to one folder.
    Plan {
        /// Folder, relative to the work tree.
        folder: &'static str,
    },
}

/// One call of the agent.
#[derive(Debug, Clone)]
pub struct AgentPass {
    /// Task of the pass.
    pub role: AgentRole,
    /// Maximum number of model turns.
    pub max_turns: u32,
    /// System prompt.
    pub system: String,
    /// User prompt.
    pub prompt: String,
}

/// Answer of a successful pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentAnswer {
    /// Last message.
    pub text: String,
    /// Result in the requested schema, if the program supports one.
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

/// Failed pass.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFailure {
    /// Machine-readable cause, if any.
    pub code: Option<FailureCode>,
    /// Reason for people.
    pub reason: String,
    /// Time at which the provider accepts requests again, if it is rate limited.
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

/// Folders of one call. All but the work tree and the home are recreated, because the program would
/// obey settings left by a script or an earlier pass.
#[derive(Debug)]
struct PassFolders {
    work_tree: PathBuf,
    /// Home folder, shared with the repository's scripts for their caches.
    home: PathBuf,
    /// Settings folder of the program.
    settings: PathBuf,
    /// Input files for the program.
    input_files: PathBuf,
    /// Folder for temporary files.
    temp_dir: PathBuf,
}

impl PassFolders {
    fn create(folders: &Folders) -> std::io::Result<Self> {
        Ok(Self {
            work_tree: folders.work_tree(),
            home: folders.make("home")?,
            settings: folders.make_empty("agent-settings")?,
            input_files: folders.make_empty("agent-input")?,
            temp_dir: folders.make("agent-tmp")?,
        })
    }

    /// Writes an input file and returns its path.
    fn write_input_file(&self, name: &str, text: &str) -> std::io::Result<OsString> {
        let path = self.input_files.join(name);
        std::fs::write(&path, text)?;
        Ok(path.into())
    }
}

/// Arguments, environment and input of a program call.
struct AgentInvocation {
    args: Vec<OsString>,
    env: ChildEnv,
    input: String,
}

/// Adds the usage of a reader to the meter on drop, so that an interrupted pass is counted too.
struct MeteredReader<'m> {
    reader: StreamReader,
    meter: &'m UsageMeter,
}

impl Drop for MeteredReader<'_> {
    fn drop(&mut self) {
        self.meter.add(self.reader.usage());
    }
}

/// Reader of a program's output.
enum StreamReader {
    Claude(claude::Reader),
    Codex(codex::Reader),
    Gemini(gemini::Reader),
    Command(command::Reader),
}

impl Agent {
    /// Validates that this agent can work in this run.
    ///
    /// # Errors
    /// The missing configuration, for the operator.
    pub fn validate(&self) -> Result<(), String> {
        let name = self.cli.name();
        if self.cli == AgentCli::Command && self.command.is_empty() {
            return Err(
                "AGENT_IMPLEMENT_AGENT is command, but AGENT_IMPLEMENT_AGENT_COMMAND is empty"
                    .to_owned(),
            );
        }
        let is_cloud = self.cloud_region.is_some();
        if is_cloud && matches!(self.cli, AgentCli::Codex | AgentCli::Gemini) {
            return Err(format!("agent {name} does not support the provider cloud"));
        }
        // In the cloud, a machine may have a role of its own. A custom command may need no key.
        let keys: Vec<&str> = self.cli.keys();
        let has_key = keys
            .iter()
            .any(|key| !is_base_url(key) && self.key(key).is_some());
        if has_key || is_cloud || self.cli == AgentCli::Command {
            return Ok(());
        }
        let credentials: Vec<&str> = keys.into_iter().filter(|key| !is_base_url(key)).collect();
        Err(format!(
            "agent {name} has no model credential: set {} in the secrets of the repository",
            credentials.join(" or ")
        ))
    }

    /// Returns the value of a provider variable.
    fn key(&self, name: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(known, _)| known == name);
        found.map(|(_, key)| key.expose())
    }

    /// Returns the base environment plus the program's own credentials.
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

    /// Runs a pass and returns its usage and result.
    pub async fn run_pass(
        &self,
        pass: &AgentPass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
    ) -> (Usage, Result<AgentAnswer, AgentFailure>) {
        let meter = UsageMeter::default();
        let result = self
            .run_pass_metered(pass, folders, console, deadline, &meter)
            .await;
        (meter.total(), result)
    }

    /// Runs a pass. Usage is added to the meter also if the pass fails or is interrupted.
    pub async fn run_pass_metered(
        &self,
        pass: &AgentPass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
        meter: &UsageMeter,
    ) -> Result<AgentAnswer, AgentFailure> {
        let result = match self.prepare(pass, folders) {
            Ok((spec, reader)) => {
                let mut metered = MeteredReader { reader, meter };
                let reader = &mut metered.reader;
                match supervise::run_to_completion(&spec, reader, console, deadline).await {
                    Ok(exit) => {
                        let turns = reader.usage().turns;
                        outcome::evaluate(exit, reader, turns, pass.max_turns)
                    }
                    Err(error) => Err(AgentFailure::not_started(&error.to_string())),
                }
            }
            Err(cause) => Err(AgentFailure::not_started(&cause)),
        };
        // Redacted before it is cut: half a secret would no longer be recognized.
        result.map_err(|failure| AgentFailure {
            reason: text::truncate(&console.redact(&failure.reason), MAX_REASON),
            ..failure
        })
    }

    fn prepare(
        &self,
        pass: &AgentPass,
        folders: &Folders,
    ) -> Result<(ChildSpec, StreamReader), String> {
        let program = self.verified_program().map_err(|error| error.to_string())?;
        self.child_spec(&program, pass, folders)
            .map_err(|error| format!("cannot prepare its folders: {error}"))
    }

    fn child_spec(
        &self,
        program: &Program,
        pass: &AgentPass,
        folders: &Folders,
    ) -> std::io::Result<(ChildSpec, StreamReader)> {
        let pass_folders = PassFolders::create(folders)?;
        let (call, reader) = match self.cli {
            AgentCli::Claude => (
                claude::build_invocation(self, pass, &pass_folders)?,
                StreamReader::Claude(claude::Reader::new(pass.role)),
            ),
            AgentCli::Codex => (
                codex::build_invocation(self, pass, &pass_folders)?,
                StreamReader::Codex(codex::Reader::new(pass, &pass_folders)),
            ),
            AgentCli::Gemini => (
                gemini::build_invocation(self, pass, &pass_folders)?,
                StreamReader::Gemini(gemini::Reader::default()),
            ),
            AgentCli::Command => (
                command::build_invocation(self, pass, &pass_folders),
                StreamReader::Command(command::Reader::default()),
            ),
        };
        let (program, mut args) = program.command();
        args.extend(call.args);
        let spec = ChildSpec {
            program,
            args,
            dir: pass_folders.work_tree,
            env: call.env,
            input: call.input.into_bytes(),
        };
        Ok((spec, reader))
    }
}

impl StreamReader {
    /// Reads one line. A line that is not an event is logged.
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

    /// Returns the usage so far.
    fn usage(&self) -> Usage {
        match self {
            StreamReader::Claude(reader) => reader.usage(),
            StreamReader::Codex(reader) => reader.usage(),
            StreamReader::Gemini(reader) => reader.usage(),
            StreamReader::Command(_) => Usage::default(),
        }
    }

    /// Interprets an exit without a result, if the program's exit codes have a meaning.
    fn interpret_exit(
        &self,
        exit: i32,
        stderr: &str,
    ) -> Option<Result<AgentAnswer, output::PassError>> {
        match self {
            StreamReader::Claude(_) | StreamReader::Codex(_) => None,
            StreamReader::Gemini(reader) => reader.interpret_exit(exit, stderr).map(Err),
            StreamReader::Command(reader) => Some(reader.interpret_exit(exit, stderr)),
        }
    }
}
