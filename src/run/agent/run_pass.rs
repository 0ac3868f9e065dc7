//! A pass of the agent, from the program call to the evaluated result.

use tokio::time::Instant;

use super::cli::AgentCli;
use super::configuration::Agent;
use super::pass::{AgentAnswer, AgentPass, PassFolders};
use super::stream_reader::StreamReader;
use super::{claude, codex, command, gemini, outcome, supervise};
use crate::child::ChildSpec;
use crate::console::Console;
use crate::failure::RunFailure;
use crate::folders::Folders;
use crate::programs::Program;
use crate::scratch;
use crate::usage_meter::UsageMeter;
use domain::report::Usage;
use domain::sanitize;

/// Maximum length of program output quoted in a failure reason, in bytes.
const MAX_REASON: usize = 600;

/// Adds the usage of a reader to the meter on drop, so that an interrupted pass is counted too.
struct MeteredReader<'m> {
    reader: StreamReader,
    meter: &'m UsageMeter,
    agent: &'m Agent,
}

impl Drop for MeteredReader<'_> {
    fn drop(&mut self) {
        self.meter.add(self.reader.usage());
        // The name in the program's output is exact; a configured one may be an alias.
        let model = self.reader.model().or(self.agent.model.as_deref());
        self.meter.record_agent(self.agent.cli.name(), model);
    }
}

impl Agent {
    /// Runs a pass and returns its usage and result.
    pub async fn run_pass(
        &self,
        pass: &AgentPass,
        folders: &Folders,
        console: &Console,
        deadline: Instant,
    ) -> (Usage, Result<AgentAnswer, RunFailure>) {
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
    ) -> Result<AgentAnswer, RunFailure> {
        let result = match self.prepare(pass, folders) {
            Ok((spec, reader)) => {
                let mut metered = MeteredReader {
                    reader,
                    meter,
                    agent: self,
                };
                let reader = &mut metered.reader;
                match supervise::run_to_completion(&spec, reader, console, deadline).await {
                    Ok(exit) => {
                        let turns = reader.usage().turns;
                        outcome::evaluate(exit, reader, turns, pass.max_turns)
                    }
                    Err(error) => Err(not_started(&error.to_string())),
                }
            }
            Err(cause) => Err(not_started(&cause)),
        };
        // Redacted before it is cut: half a secret would no longer be recognized.
        result.map_err(|failure| {
            let reason = console.redact(&failure.reason);
            RunFailure {
                reason: sanitize::truncate(reason, MAX_REASON, sanitize::ELLIPSIS).into_owned(),
                ..failure
            }
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
                StreamReader::Codex(codex::Reader::new(pass, &pass_folders.settings)),
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
            env: call
                .env
                .with(scratch::VARIABLE, pass_folders.scratch.path()),
            input: call.input.into_bytes(),
        };
        Ok((spec, reader))
    }
}

fn not_started(cause: &str) -> RunFailure {
    RunFailure::other(format!("model invocation failed: {cause}"))
}
