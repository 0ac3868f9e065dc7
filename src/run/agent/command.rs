//! A program of the operator's own: rules and prompt on its standard input, its last words on its
//! standard output, success by its exit code. What it used is not known.
//!
//! It comes from the environment alone. What kind of work is asked for stands in its environment
//! (`AGENT_IMPLEMENT_ROLE`, `…_MODEL`, `…_MAX_TURNS`); keeping to it, and keeping the repository
//! from taking it over, is up to the program.

use super::output::{AgentOutput, PassError};
use super::{Agent, AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders};

/// How much of what it says is taken for its answer?
const MAX_ANSWER: usize = 256 << 10;

pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    desk: &PassFolders,
) -> AgentInvocation {
    let role = match pass.role {
        AgentRole::Implement => "implement",
        AgentRole::Review => "review",
        AgentRole::Plan { .. } => "plan",
    };
    let mut env = agent
        .base_env()
        .with("HOME", &desk.home)
        .with("TMPDIR", &desk.temp_dir)
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

/// Reads one run of the program.
#[derive(Debug, Default)]
pub(super) struct Reader {
    answer: String,
}

impl Reader {
    pub(super) fn read(&mut self, line: &str) -> AgentOutput {
        if self.answer.len() + line.len() < MAX_ANSWER {
            self.answer.push_str(line);
            self.answer.push('\n');
        }
        AgentOutput::Log(vec![line.to_owned()])
    }

    /// What its end means.
    pub(super) fn interpret_exit(&self, exit: i32, words: &str) -> Result<AgentAnswer, PassError> {
        let last = self.answer.trim().lines().last().unwrap_or_default();
        match (exit, words) {
            (0, _) => Ok(AgentAnswer::from_text(&self.answer)),
            (_, "") => Err(PassError::Other(last.to_owned())),
            (_, words) => Err(PassError::Other(words.to_owned())),
        }
    }
}
