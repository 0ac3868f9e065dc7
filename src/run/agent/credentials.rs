//! Variables with the credentials and the address of each model provider.
//!
//! A program gets only its own. An address is not secret but belongs to the credentials.

/// Variables of Claude Code.
pub(super) const CLAUDE: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
];

/// Variables of Codex.
pub(super) const CODEX: &[&str] = &["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"];

/// Variables of Gemini CLI.
pub(super) const GEMINI: &[&str] = &["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"];

/// Variables of the cloud provider, which Claude Code supports.
const CLOUD: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "ANTHROPIC_BEDROCK_BASE_URL",
];

/// Returns every variable for direct access to a model provider.
pub fn direct_key_names() -> impl Iterator<Item = &'static str> {
    [CLAUDE, CODEX, GEMINI].into_iter().flatten().copied()
}

/// Returns every variable for the cloud provider.
pub fn cloud_key_names() -> impl Iterator<Item = &'static str> {
    CLOUD.iter().copied()
}

/// Whether a variable holds an address. It belongs to the credentials but is not secret.
pub fn is_base_url(variable: &str) -> bool {
    variable.ends_with("_BASE_URL")
}
