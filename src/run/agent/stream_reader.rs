//! Reader of the output of any agent program.

use std::path::Path;

use serde_json::Value;

use super::output::{AgentOutput, PassError, non_empty_lines};
use super::pass::{AgentAnswer, AgentPass, AgentRole};
use super::{claude, codex, command, gemini};
use domain::report::Usage;

/// Reader of a program's output.
pub(super) enum StreamReader {
    /// Claude Code.
    Claude(claude::Reader),
    /// Codex.
    Codex(codex::Reader),
    /// Gemini CLI.
    Gemini(gemini::Reader),
    /// Program of the operator.
    Command(command::Reader),
}

impl StreamReader {
    /// Reads one line. A line that is not an event is logged.
    pub(super) fn read(&mut self, line: &str) -> AgentOutput {
        if let StreamReader::Command(reader) = self {
            return reader.read(line);
        }
        let Ok(event) = serde_json::from_slice::<Value>(line.as_bytes()) else {
            return AgentOutput::Log(non_empty_lines(line));
        };
        match self {
            StreamReader::Claude(reader) => reader.read(&event),
            StreamReader::Codex(reader) => reader.read(&event),
            StreamReader::Gemini(reader) => reader.read(&event),
            StreamReader::Command(_) => AgentOutput::empty(),
        }
    }

    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Usage {
        match self {
            StreamReader::Claude(reader) => reader.usage(),
            StreamReader::Codex(reader) => reader.usage(),
            StreamReader::Gemini(reader) => reader.usage(),
            StreamReader::Command(_) => Usage::default(),
        }
    }

    /// Returns the model that the program named.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            StreamReader::Claude(reader) => reader.model(),
            StreamReader::Gemini(reader) => reader.model(),
            StreamReader::Codex(_) | StreamReader::Command(_) => None,
        }
    }

    /// Interprets an exit without a result, if the program's exit codes have a meaning.
    pub(super) fn interpret_exit(
        &self,
        exit: i32,
        stderr: &str,
    ) -> Option<Result<AgentAnswer, PassError>> {
        match self {
            StreamReader::Claude(_) | StreamReader::Codex(_) => None,
            StreamReader::Gemini(reader) => reader.interpret_exit(exit, stderr).map(Err),
            StreamReader::Command(reader) => Some(reader.interpret_exit(exit, stderr)),
        }
    }
}

/// Fuzzing entry point: reads a stream as each agent program's output.
pub fn fuzz_streams(stream: &str) {
    let pass = AgentPass {
        role: AgentRole::Review,
        max_turns: 3,
        system: String::new(),
        prompt: String::new(),
    };
    let readers = [
        StreamReader::Claude(claude::Reader::new(pass.role)),
        StreamReader::Codex(codex::Reader::new(&pass, Path::new("/nonexistent"))),
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
