//! Gemini CLI: how it is started and how its `stream-json` is read. (tried with 0.61.0)
//!
//! In a folder that it trusts (`GEMINI_CLI_TRUST_WORKSPACE=true`, or no notion of trust) it runs
//! the hooks, tool servers and discovery command of the repository's `.gemini/settings.json`; with
//! `--skip-trust` it still takes its address from `.env`, and the key went there. So it is told not
//! to trust the folder (`GEMINI_CLI_TRUST_WORKSPACE=false`), after which nothing of this was seen
//! to happen; that it then works without a person takes `security.folderTrust.enabled: false`, and
//! that it may use its tools a policy of the administrator. Its home is an empty one of our own.

use serde_json::{Value, json};

use super::output::{
    AgentOutput, PassError, TurnCounter, format_tool_call, non_empty_lines, single_line,
};
use super::rate_limit_reset;
use super::{
    Agent, AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders, REVIEW_SCHEMA,
};
use crate::context::RunContext;
use domain::report::Usage;

/// What the provider is reached with.
pub(super) const KEYS: &[&str] = &["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"];

/// The name that our rules have in the program's home; files of other names are no rules.
const RULES: &str = "rules-of-this-run.md";

/// The tools that only read.
const READING: &str =
    r#"["read_file", "read_many_files", "glob", "grep_search", "list_directory"]"#;

/// Exit codes that tell what no event does.
const EXIT_AUTHENTICATION: i32 = 41;
const EXIT_OUT_OF_TURNS: i32 = 53;

pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    desk: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let own = desk.settings.join(".gemini");
    std::fs::create_dir_all(&own)?;
    std::fs::write(own.join("settings.json"), settings(agent, pass).to_string())?;
    std::fs::write(own.join(RULES), rules(pass))?;
    let policy = desk.write_input_file("policy.toml", &policy(pass.role, desk))?;
    let mut args = vec!["--output-format".into(), "stream-json".into()];
    args.extend(["--admin-policy".into(), policy]);
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    let env = agent
        .base_env()
        .with("HOME", &desk.home)
        .with("TMPDIR", &desk.temp_dir)
        .with("GEMINI_CLI_HOME", &desk.settings)
        .with("GEMINI_CLI_TRUST_WORKSPACE", "false");
    Ok(AgentInvocation {
        args,
        env,
        input: pass.prompt.clone(),
    })
}

fn settings(agent: &Agent, pass: &AgentPass) -> Value {
    json!({
        "security": {
            "auth": { "selectedType": "gemini-api-key" },
            "folderTrust": { "enabled": false },
        },
        "advanced": { "ignoreLocalEnv": true },
        "general": { "enableAutoUpdate": false, "maxAttempts": agent.retries + 1 },
        "privacy": { "usageStatisticsEnabled": false },
        "context": { "fileName": [RULES] },
        "model": { "maxSessionTurns": pass.max_turns },
    })
}

fn rules(pass: &AgentPass) -> String {
    match pass.role {
        AgentRole::Review => format!(
            "{}\n\nYour last message is JSON of this schema and nothing else:\n{REVIEW_SCHEMA}\n",
            pass.system
        ),
        AgentRole::Implement | AgentRole::Plan { .. } => pass.system.clone(),
    }
}

/// What the agent may do. The program refuses patterns that could be slow, so that names below the
/// planner's folder are of letters, digits and dashes; dots would allow a way out of it.
fn policy(role: AgentRole, desk: &PassFolders) -> String {
    let allow = |tools: &str, more: &str| {
        format!("[[rule]]\ntoolName = {tools}\n{more}decision = \"allow\"\npriority = 900\n\n")
    };
    let nothing_else = "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 800\n";
    match role {
        AgentRole::Implement => allow("\"*\"", "allowRedirection = true\n"),
        AgentRole::Review => allow(READING, "") + nothing_else,
        AgentRole::Plan { folder } => {
            let tree = regex::escape(&desk.work_tree.to_string_lossy());
            let place = format!("\"file_path\":\"({tree}/)?{folder}/[A-Za-z0-9_/-]+[.]md\"");
            let place = format!("argsPattern = {}\n", toml_string(&place));
            allow(READING, "") + &allow("\"write_file\"", &place) + nothing_else
        }
    }
}

/// A text as TOML has it in double quotes. JSON escapes all that TOML wants escaped but one.
pub(super) fn toml_string(text: &str) -> String {
    Value::from(text.replace('\u{7f}', "")).to_string()
}

/// Reads one run of the program.
#[derive(Debug, Default)]
pub(super) struct Reader {
    turns: TurnCounter,
    /// What the model said since a tool last answered.
    text: String,
    /// How much of that was logged.
    logged: usize,
    stats: (u64, u64),
}

impl Reader {
    pub(super) fn usage(&self) -> Usage {
        Usage {
            turns: self.turns.count,
            input_tokens: self.stats.0,
            output_tokens: self.stats.1,
            cost_usd: None,
        }
    }

    /// Reads one event.
    pub(super) fn read(&mut self, event: &Value) -> AgentOutput {
        match event["type"].as_str() {
            Some("init") => {
                let model = event["model"].as_str().unwrap_or("unknown");
                AgentOutput::Log(vec![format!("agent started with model {model}")])
            }
            Some("message") if event["role"] == "assistant" => {
                self.turns.record_output();
                self.text
                    .push_str(event["content"].as_str().unwrap_or_default());
                AgentOutput::empty()
            }
            Some("tool_use") => {
                self.turns.record_output();
                let name = event["tool_name"].as_str().unwrap_or("tool");
                let mut lines = self.unlogged();
                lines.push(format_tool_call(name, &event["parameters"]));
                AgentOutput::Log(lines)
            }
            Some("tool_result") => {
                self.turns.record_tool_result();
                self.text.clear();
                self.logged = 0;
                let failed = event["status"] == "error";
                let told = event["output"].as_str().unwrap_or("the tool failed");
                AgentOutput::Log(failed.then(|| single_line(told)).into_iter().collect())
            }
            Some("error") => AgentOutput::Log(non_empty_lines(
                event["message"].as_str().unwrap_or_default(),
            )),
            Some("result") => {
                let count = |name: &str| event["stats"][name].as_u64().unwrap_or_default();
                self.stats = (count("input_tokens"), count("output_tokens"));
                let unsaid = self.unlogged();
                let ended = match event["status"] == "success" {
                    true => Ok(AgentAnswer::from_text(&self.text)),
                    false => Err(fault(&event["error"])),
                };
                AgentOutput::Finished {
                    unlogged_lines: unsaid,
                    result: ended,
                }
            }
            _ => AgentOutput::empty(),
        }
    }

    /// What the model said, once it is whole: a piece may end within a line.
    fn unlogged(&mut self) -> Vec<String> {
        let lines = non_empty_lines(self.text.get(self.logged..).unwrap_or_default());
        self.logged = self.text.len();
        lines
    }

    /// What an end without a result means.
    pub(super) fn interpret_exit(&self, exit: i32, words: &str) -> Option<PassError> {
        match exit {
            EXIT_AUTHENTICATION => Some(PassError::Provider(words.to_owned())),
            EXIT_OUT_OF_TURNS => Some(PassError::TurnsExhausted),
            _ => None,
        }
    }
}

fn fault(error: &Value) -> PassError {
    let words = error["message"].as_str().unwrap_or("unknown error");
    let denied = ["\"code\":401", "API_KEY_INVALID", "API key not valid"];
    match error["type"].as_str() {
        Some("FatalTurnLimitedError") => PassError::TurnsExhausted,
        Some("FatalAuthenticationError") => PassError::Provider(words.to_owned()),
        _ if denied.iter().any(|mark| words.contains(mark)) => PassError::access_denied(),
        _ if words.to_ascii_lowercase().contains("quota") => PassError::rate_limited(
            words,
            rate_limit_reset::parse_gemini(words, RunContext::now()),
        ),
        _ if words.contains("API Error") => PassError::Provider(words.to_owned()),
        _ => PassError::Other(words.to_owned()),
    }
}
