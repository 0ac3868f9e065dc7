//! Coding agents by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Agent that repositories can choose by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedAgent {
    /// Name in the configuration of repositories.
    pub name: &'static str,
    /// Name of the product.
    pub product: &'static str,
    /// Program that is started.
    pub program: &'static str,
    /// Package of the npm registry that contains the program.
    pub package: &'static str,
    /// Version of the package that the reader of its output was tested with. The only place that pins
    /// it; tests compare `packaging/docker/Dockerfile.runner` and `tests/agents/package.json` with it.
    pub version: &'static str,
    /// Script of the package that completes an installation without scripts.
    pub setup_script: Option<&'static str>,
    /// Variables with its credentials. Any of them is enough.
    pub credentials: &'static [&'static str],
}

/// Claude Code.
pub const CLAUDE: NamedAgent = NamedAgent {
    name: "claude",
    product: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.197",
    setup_script: Some("install.cjs"),
    credentials: &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
};

/// OpenAI Codex.
pub const CODEX: NamedAgent = NamedAgent {
    name: "codex",
    product: "OpenAI Codex",
    program: "codex",
    package: "@openai/codex",
    version: "0.169.0",
    setup_script: None,
    credentials: &["OPENAI_API_KEY", "CODEX_API_KEY"],
};

/// Gemini CLI.
pub const GEMINI: NamedAgent = NamedAgent {
    name: "gemini",
    product: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    version: "0.61.0",
    setup_script: None,
    credentials: &["GEMINI_API_KEY"],
};

/// All agents that repositories can choose by name.
pub const NAMED_AGENTS: [NamedAgent; 3] = [CLAUDE, CODEX, GEMINI];

/// Agent that a mapping or a label can choose.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum AgentName {
    /// Claude Code.
    Claude,
    /// OpenAI Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

impl AgentName {
    /// All agents.
    pub const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Gemini];

    /// Returns the agent with its names.
    pub fn named(self) -> NamedAgent {
        match self {
            Self::Claude => CLAUDE,
            Self::Codex => CODEX,
            Self::Gemini => GEMINI,
        }
    }

    /// Returns the name in the API and in the configuration of repositories.
    pub fn as_str(self) -> &'static str {
        self.named().name
    }

    /// Parses the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.as_str() == text)
    }

    /// Returns whether one of these variables holds a credential of the agent.
    pub fn has_credential<'v>(self, mut variables: impl Iterator<Item = &'v str>) -> bool {
        variables.any(|name| self.named().credentials.contains(&name))
    }

    /// Returns whether the agent can use a cloud provider.
    pub fn supports_cloud_provider(self) -> bool {
        self == Self::Claude
    }
}

/// Agent of repositories that name none.
pub const DEFAULT: NamedAgent = CLAUDE;
