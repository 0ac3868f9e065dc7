//! Gemini CLI: invocation and `stream-json` output (tested with version 0.61.0).
//!
//! In a trusted folder (`GEMINI_CLI_TRUST_WORKSPACE=true`, or folder trust disabled) it runs the
//! hooks, tool servers and discovery command of the repository's `.gemini/settings.json`. With
//! `--skip-trust` it still takes the provider's address from `.env`, which leaked the key. So the
//! folder is declared untrusted (`GEMINI_CLI_TRUST_WORKSPACE=false`); then none of this was seen to
//! happen. `security.folderTrust.enabled: false` lets it work unattended all the same, and an admin
//! policy allows its tools. Its home is an empty folder.

use serde_json::{Value, json};

use super::configuration::Agent;
use super::output::{
    AgentOutput, PassError, TurnCounter, format_tool_call, non_empty_lines, single_line,
};
use super::pass::{AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders, REVIEW_SCHEMA};
use super::rate_limit_reset;
use crate::clock;
use domain::report::Usage;

/// File with the system prompt in the program's home. The program reads no other context file.
const RULES: &str = "rules-of-this-run.md";

/// Read-only tools.
const READ_TOOLS: &str =
    r#"["read_file", "read_many_files", "glob", "grep_search", "list_directory"]"#;

/// Exit code of an authentication failure, which no event reports.
const EXIT_AUTHENTICATION: i32 = 41;
/// Exit code of a reached turn limit.
const EXIT_OUT_OF_TURNS: i32 = 53;

/// Returns arguments, environment and input of the program, and writes its settings files.
pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    pass_folders: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let config_dir = pass_folders.settings.join(".gemini");
    std::fs::create_dir_all(&config_dir)?;
    std::fs::write(
        config_dir.join("settings.json"),
        settings(agent, pass).to_string(),
    )?;
    std::fs::write(config_dir.join(RULES), rules(pass))?;
    let policy = pass_folders.write_input_file("policy.toml", &policy(pass.role, pass_folders))?;
    let mut args = vec!["--output-format".into(), "stream-json".into()];
    args.extend(["--admin-policy".into(), policy]);
    args.push("--include-directories".into());
    args.push(pass_folders.scratch.path().into());
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    let env = agent
        .base_env()
        .with("HOME", &pass_folders.home)
        .with("TMPDIR", &pass_folders.temp_dir)
        .with("GEMINI_CLI_HOME", &pass_folders.settings)
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

/// Returns the tool policy. The program rejects patterns that could be slow, so file names below
/// the planner's folder consist of letters, digits, `_` and `-`. Dots could lead out of the folder.
fn policy(role: AgentRole, pass_folders: &PassFolders) -> String {
    let allow = |tools: &str, more: &str| {
        format!("[[rule]]\ntoolName = {tools}\n{more}decision = \"allow\"\npriority = 900\n\n")
    };
    let deny_rest = "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 800\n";
    match role {
        AgentRole::Implement => allow("\"*\"", "allowRedirection = true\n"),
        AgentRole::Review => allow(READ_TOOLS, "") + deny_rest,
        AgentRole::Plan { folder } => {
            let tree = regex::escape(&pass_folders.work_tree.to_string_lossy());
            let path = format!("\"file_path\":\"({tree}/)?{folder}/[A-Za-z0-9_/-]+[.]md\"");
            let questions = pass_folders.scratch.question_file();
            let questions = regex::escape(&questions.to_string_lossy());
            let questions = format!("\"file_path\":\"{questions}\"");
            let allow_write = |pattern: &str| {
                let pattern = format!("argsPattern = {}\n", toml_string(pattern));
                allow("\"write_file\"", &pattern)
            };
            allow(READ_TOOLS, "") + &allow_write(&path) + &allow_write(&questions) + deny_rest
        }
    }
}

/// Returns a TOML basic string. JSON escapes everything that TOML requires except DEL.
pub(super) fn toml_string(text: &str) -> String {
    Value::from(text.replace('\u{7f}', "")).to_string()
}

/// Reader of one program run.
#[derive(Debug, Default)]
pub(super) struct Reader {
    turns: TurnCounter,
    /// Text of the model since the last tool result.
    text: String,
    /// Number of bytes of that text already logged.
    logged: usize,
    stats: (u64, u64),
    /// Model in the first event.
    model: Option<String>,
}

impl Reader {
    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            turns: self.turns.count,
            input_tokens: self.stats.0,
            output_tokens: self.stats.1,
            cost_usd: None,
        }
    }

    /// Returns the model that the program named.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Reads one event.
    pub(super) fn read(&mut self, event: &Value) -> AgentOutput {
        match event["type"].as_str() {
            Some("init") => {
                self.model = event["model"].as_str().map(str::to_owned);
                let model = self.model.as_deref().unwrap_or("unknown");
                AgentOutput::Log(vec![format!("Agent started with model {model}")])
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
                let output = event["output"].as_str().unwrap_or("the tool failed");
                AgentOutput::Log(failed.then(|| single_line(output)).into_iter().collect())
            }
            Some("error") => AgentOutput::Log(non_empty_lines(
                event["message"].as_str().unwrap_or_default(),
            )),
            Some("result") => {
                let count = |name: &str| event["stats"][name].as_u64().unwrap_or_default();
                self.stats = (count("input_tokens"), count("output_tokens"));
                let unlogged_lines = self.unlogged();
                let result = match event["status"] == "success" {
                    true => Ok(AgentAnswer::from_text(&self.text)),
                    false => Err(pass_error(&event["error"])),
                };
                AgentOutput::Finished {
                    unlogged_lines,
                    result,
                }
            }
            _ => AgentOutput::empty(),
        }
    }

    /// Returns the text not logged yet, in whole lines: an event may end within a line.
    fn unlogged(&mut self) -> Vec<String> {
        let lines = non_empty_lines(self.text.get(self.logged..).unwrap_or_default());
        self.logged = self.text.len();
        lines
    }

    /// Interprets an exit without a result.
    pub(super) fn interpret_exit(&self, exit: i32, message: &str) -> Option<PassError> {
        match exit {
            EXIT_AUTHENTICATION => Some(PassError::Provider(message.to_owned())),
            EXIT_OUT_OF_TURNS => Some(PassError::TurnsExhausted),
            _ => None,
        }
    }
}

fn pass_error(error: &Value) -> PassError {
    let message = error["message"].as_str().unwrap_or("unknown error");
    let denied = ["\"code\":401", "API_KEY_INVALID", "API key not valid"];
    match error["type"].as_str() {
        Some("FatalTurnLimitedError") => PassError::TurnsExhausted,
        Some("FatalAuthenticationError") => PassError::Provider(message.to_owned()),
        _ if denied.iter().any(|mark| message.contains(mark)) => PassError::access_denied(),
        _ if message.to_ascii_lowercase().contains("quota") => PassError::rate_limited(
            message,
            rate_limit_reset::parse_gemini(message, clock::now()),
        ),
        _ if message.contains("API Error") => PassError::Provider(message.to_owned()),
        _ => PassError::Other(message.to_owned()),
    }
}
