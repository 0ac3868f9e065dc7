//! Agent program configured by the operator: system prompt and prompt on standard input, answer on
//! standard output, success by exit code. Its usage is unknown.
//!
//! The program is configured by the environment alone. The role is passed in
//! `AGENT_IMPLEMENT_ROLE`, the model in `AGENT_IMPLEMENT_MODEL`, the turn limit in
//! `AGENT_IMPLEMENT_MAX_TURNS`. The program must respect them and protect itself from the
//! repository's configuration.

use super::configuration::Agent;
use super::output::{AgentOutput, PassError};
use super::pass::{AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders};

/// Maximum length of the answer, in bytes.
const MAX_ANSWER: usize = 256 << 10;

/// Returns arguments, environment and input of the program.
pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    pass_folders: &PassFolders,
) -> AgentInvocation {
    let role = match pass.role {
        AgentRole::Implement => "implement",
        AgentRole::Review => "review",
        AgentRole::Plan { .. } => "plan",
    };
    let mut env = agent
        .base_env()
        .with("HOME", &pass_folders.home)
        .with("TMPDIR", &pass_folders.temp_dir)
        .with("AGENT_IMPLEMENT_ROLE", role)
        .with("AGENT_IMPLEMENT_MAX_TURNS", pass.max_turns.to_string());
    if let Some(model) = &agent.model {
        env = env.with("AGENT_IMPLEMENT_MODEL", model);
    }
    AgentInvocation {
        args: agent.command.iter().skip(1).map(Into::into).collect(),
        env,
        input: format!("{}\n\n{}", pass.system, pass.prompt),
    }
}

/// Reader of one program run.
#[derive(Debug, Default)]
pub(super) struct Reader {
    answer: String,
}

impl Reader {
    /// Reads one line.
    pub(super) fn read(&mut self, line: &str) -> AgentOutput {
        if self.answer.len() + line.len() < MAX_ANSWER {
            self.answer.push_str(line);
            self.answer.push('\n');
        }
        AgentOutput::Log(vec![line.to_owned()])
    }

    /// Interprets the exit.
    pub(super) fn interpret_exit(&self, exit: i32, stderr: &str) -> Result<AgentAnswer, PassError> {
        let last = self.answer.trim().lines().last().unwrap_or_default();
        match (exit, stderr) {
            (0, _) => Ok(AgentAnswer::from_text(&self.answer)),
            (_, "") => Err(PassError::Other(last.to_owned())),
            (_, stderr) => Err(PassError::Other(stderr.to_owned())),
        }
    }
}
