//! Agent programs by name.

use super::credentials;

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

    /// Returns the name of the agent.
    pub(super) fn name(self) -> &'static str {
        let found = NAMED_AGENTS.iter().find(|(_, cli)| *cli == self);
        found.map_or("command", |(name, _)| *name)
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
