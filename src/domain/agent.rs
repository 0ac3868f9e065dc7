//! Coding agents by name.

/// Agent that repositories can choose by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedAgent {
    /// Name in the configuration of repositories.
    pub name: &'static str,
    /// Name of the product.
    pub product: &'static str,
}

/// Claude Code.
pub const CLAUDE: NamedAgent = NamedAgent {
    name: "claude",
    product: "Claude Code",
};

/// OpenAI Codex.
pub const CODEX: NamedAgent = NamedAgent {
    name: "codex",
    product: "OpenAI Codex",
};

/// Gemini CLI.
pub const GEMINI: NamedAgent = NamedAgent {
    name: "gemini",
    product: "Gemini CLI",
};

/// All agents that repositories can choose by name.
pub const NAMED_AGENTS: [NamedAgent; 3] = [CLAUDE, CODEX, GEMINI];

/// Agent of repositories that name none.
pub const DEFAULT: NamedAgent = CLAUDE;
