//! Gemini CLI: how it is started and how its `stream-json` is read. (tried with 0.61.0)
//!
//! In a folder that it trusts (`GEMINI_CLI_TRUST_WORKSPACE=true`, or no notion of trust) it runs
//! the hooks, tool servers and discovery command of the repository's `.gemini/settings.json`; with
//! `--skip-trust` it still takes its address from `.env`, and the key went there. So it is told not
//! to trust the folder (`GEMINI_CLI_TRUST_WORKSPACE=false`), after which nothing of this was seen
//! to happen; that it then works without a person takes `security.folderTrust.enabled: false`, and
//! that it may use its tools a policy of the administrator. Its home is an empty one of our own.

use serde_json::{Value, json};

use super::reset;
use super::said::{Fault, Said, Turns, one_line, paragraphs, tool_line};
use super::{Agent, Answer, Call, Desk, Pass, REVIEW_SCHEMA, Role};
use crate::run::Run;
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

pub(super) fn call(agent: &Agent, pass: &Pass, desk: &Desk) -> std::io::Result<Call> {
    let own = desk.settings.join(".gemini");
    std::fs::create_dir_all(&own)?;
    std::fs::write(own.join("settings.json"), settings(agent, pass).to_string())?;
    std::fs::write(own.join(RULES), rules(pass))?;
    let policy = desk.paper("policy.toml", &policy(pass.role, desk))?;
    let mut args = vec!["--output-format".into(), "stream-json".into()];
    args.extend(["--admin-policy".into(), policy]);
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    let env = agent
        .base_env()
        .with("HOME", &desk.home)
        .with("TMPDIR", &desk.temp)
        .with("GEMINI_CLI_HOME", &desk.settings)
        .with("GEMINI_CLI_TRUST_WORKSPACE", "false");
    Ok(Call {
        args,
        env,
        input: pass.prompt.clone(),
    })
}

fn settings(agent: &Agent, pass: &Pass) -> Value {
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

fn rules(pass: &Pass) -> String {
    match pass.role {
        Role::Review => format!(
            "{}\n\nYour last message is JSON of this schema and nothing else:\n{REVIEW_SCHEMA}\n",
            pass.system
        ),
        Role::Implement | Role::Plan { .. } => pass.system.clone(),
    }
}

/// What the agent may do. The program refuses patterns that could be slow, so that names below the
/// planner's folder are of letters, digits and dashes; dots would allow a way out of it.
fn policy(role: Role, desk: &Desk) -> String {
    let allow = |tools: &str, more: &str| {
        format!("[[rule]]\ntoolName = {tools}\n{more}decision = \"allow\"\npriority = 900\n\n")
    };
    let nothing_else = "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 800\n";
    match role {
        Role::Implement => allow("\"*\"", "allowRedirection = true\n"),
        Role::Review => allow(READING, "") + nothing_else,
        Role::Plan { folder } => {
            let tree = regex::escape(&desk.tree.to_string_lossy());
            let place = format!("\"file_path\":\"({tree}/)?{folder}/[A-Za-z0-9_/-]+[.]md\"");
            let place = format!("argsPattern = {}\n", toml_text(&place));
            allow(READING, "") + &allow("\"write_file\"", &place) + nothing_else
        }
    }
}

/// A text as TOML has it in double quotes. JSON escapes all that TOML wants escaped but one.
pub(super) fn toml_text(text: &str) -> String {
    Value::from(text.replace('\u{7f}', "")).to_string()
}

/// Reads one run of the program.
#[derive(Debug, Default)]
pub(super) struct Reader {
    turns: Turns,
    /// What the model said since a tool last answered.
    text: String,
    /// How much of that was logged.
    logged: usize,
    stats: (u64, u64),
}

impl Reader {
    pub(super) fn usage(&self) -> Usage {
        Usage {
            turns: self.turns.begun,
            input_tokens: self.stats.0,
            output_tokens: self.stats.1,
            cost_usd: None,
        }
    }

    /// Reads one event.
    pub(super) fn read(&mut self, event: &Value) -> Said {
        match event["type"].as_str() {
            Some("init") => {
                let model = event["model"].as_str().unwrap_or("unknown");
                Said::Lines(vec![format!("agent started with model {model}")])
            }
            Some("message") if event["role"] == "assistant" => {
                self.turns.speaks();
                self.text
                    .push_str(event["content"].as_str().unwrap_or_default());
                Said::nothing()
            }
            Some("tool_use") => {
                self.turns.speaks();
                let name = event["tool_name"].as_str().unwrap_or("tool");
                let mut lines = self.unlogged();
                lines.push(tool_line(name, &event["parameters"]));
                Said::Lines(lines)
            }
            Some("tool_result") => {
                self.turns.tool_answered();
                self.text.clear();
                self.logged = 0;
                let failed = event["status"] == "error";
                let told = event["output"].as_str().unwrap_or("the tool failed");
                Said::Lines(failed.then(|| one_line(told)).into_iter().collect())
            }
            Some("error") => Said::Lines(paragraphs(event["message"].as_str().unwrap_or_default())),
            Some("result") => {
                let count = |name: &str| event["stats"][name].as_u64().unwrap_or_default();
                self.stats = (count("input_tokens"), count("output_tokens"));
                let unsaid = self.unlogged();
                let ended = match event["status"] == "success" {
                    true => Ok(Answer::of(&self.text)),
                    false => Err(fault(&event["error"])),
                };
                Said::Result { unsaid, ended }
            }
            _ => Said::nothing(),
        }
    }

    /// What the model said, once it is whole: a piece may end within a line.
    fn unlogged(&mut self) -> Vec<String> {
        let lines = paragraphs(self.text.get(self.logged..).unwrap_or_default());
        self.logged = self.text.len();
        lines
    }

    /// What an end without a result means.
    pub(super) fn at_end(&self, exit: i32, words: &str) -> Option<Fault> {
        match exit {
            EXIT_AUTHENTICATION => Some(Fault::Provider(words.to_owned())),
            EXIT_OUT_OF_TURNS => Some(Fault::OutOfTurns),
            _ => None,
        }
    }
}

fn fault(error: &Value) -> Fault {
    let words = error["message"].as_str().unwrap_or("unknown error");
    let denied = ["\"code\":401", "API_KEY_INVALID", "API key not valid"];
    match error["type"].as_str() {
        Some("FatalTurnLimitedError") => Fault::OutOfTurns,
        Some("FatalAuthenticationError") => Fault::Provider(words.to_owned()),
        _ if denied.iter().any(|mark| words.contains(mark)) => Fault::access_denied(),
        _ if words.to_ascii_lowercase().contains("quota") => {
            Fault::limited(words, reset::of_gemini(words, Run::now()))
        }
        _ if words.contains("API Error") => Fault::Provider(words.to_owned()),
        _ => Fault::Other(words.to_owned()),
    }
}
