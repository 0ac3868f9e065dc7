//! Agent programs by name.

use super::credentials;
use domain::agent::{self, NamedAgent};

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
const NAMED_AGENTS: [(NamedAgent, AgentCli); 3] = [
    (agent::CLAUDE, AgentCli::Claude),
    (agent::CODEX, AgentCli::Codex),
    (agent::GEMINI, AgentCli::Gemini),
];

impl AgentCli {
    /// Returns the agent of this name.
    ///
    /// # Errors
    /// If the name is unknown. The message lists the known names.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let mut named = NAMED_AGENTS.iter();
        let found = named.find(|(known, _)| known.name == name.trim());
        found.map(|(_, cli)| *cli).ok_or_else(|| {
            let names = NAMED_AGENTS.map(|(known, _)| known.name).join(", ");
            format!("unknown agent {:?}; known agents: {names}", name.trim())
        })
    }

    /// Returns the agent that repositories can name; `None` for a program of the operator.
    pub(super) fn named(self) -> Option<NamedAgent> {
        let found = NAMED_AGENTS.iter().find(|(_, cli)| *cli == self);
        found.map(|(named, _)| *named)
    }

    /// Returns the name of the agent.
    pub(super) fn name(self) -> &'static str {
        self.named().map_or("command", |known| known.name)
    }

    /// Returns the environment variables with credentials and address of the provider.
    pub(super) fn keys(self) -> Vec<&'static str> {
        match self {
            AgentCli::Claude => credentials::CLAUDE.to_vec(),
            AgentCli::Codex => credentials::CODEX.to_vec(),
            AgentCli::Gemini => credentials::GEMINI.to_vec(),
            AgentCli::Command => credentials::direct_key_names().collect(),
        }
    }
}
