//! Coding agents by name.

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
}

/// Claude Code.
pub const CLAUDE: NamedAgent = NamedAgent {
    name: "claude",
    product: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.197",
};

/// OpenAI Codex.
pub const CODEX: NamedAgent = NamedAgent {
    name: "codex",
    product: "OpenAI Codex",
    program: "codex",
    package: "@openai/codex",
    version: "0.169.0",
};

/// Gemini CLI.
pub const GEMINI: NamedAgent = NamedAgent {
    name: "gemini",
    product: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    version: "0.61.0",
};

/// All agents that repositories can choose by name.
pub const NAMED_AGENTS: [NamedAgent; 3] = [CLAUDE, CODEX, GEMINI];

/// Agent of repositories that name none.
pub const DEFAULT: NamedAgent = CLAUDE;
