//! OpenAI Codex: how it is started and how its `--json` stream is read. (tried with 0.169.0)
//!
//! A repository's `.codex/` may name tool servers, hooks, a notify command, another model and
//! another address; the program obeys it once the folder is trusted, so that this one is declared
//! untrusted, and none of it was seen to run or to be asked. Skills and `AGENTS.md` are read even
//! so, and are switched off: what the team wants is read by us, from the base branch. All settings
//! stand in a home of our own (`CODEX_HOME`); the provider is spelled out there, because the
//! built-in one tries for minutes what we want to end at once.
//!
//! It knows no turn cap: we count. A run that did not end well does not tell what it used; then the
//! session's own records are read.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::gemini::toml_string;
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
pub(super) const KEYS: &[&str] = &["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"];

/// Where the provider is, if nothing else is said.
const ADDRESS: &str = "https://api.openai.com/v1";

pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    desk: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let settings = settings(agent, pass, desk);
    std::fs::write(desk.settings.join("config.toml"), settings)?;
    let mut args: Vec<std::ffi::OsString> =
        ["exec", "--json", "--ignore-rules", "--color", "never"]
            .map(Into::into)
            .into();
    args.extend(["--skip-git-repo-check".into(), "--cd".into()]);
    args.push(desk.work_tree.clone().into());
    match pass.role {
        // A run is a sandbox; the program's own would keep builds and tests from the network.
        AgentRole::Implement => args.push("--dangerously-bypass-approvals-and-sandbox".into()),
        AgentRole::Review => {
            let schema = desk.write_input_file("schema.json", REVIEW_SCHEMA)?;
            args.extend(["--sandbox".into(), "read-only".into()]);
            args.extend(["--output-schema".into(), schema]);
        }
        // Of what a planner writes outside of its folder, nothing is ever taken.
        AgentRole::Plan { .. } => args.extend(["--sandbox".into(), "workspace-write".into()]),
    }
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    args.push("-".into());
    let env = agent
        .base_env()
        .with("HOME", &desk.home)
        .with("TMPDIR", &desk.temp_dir)
        .with("CODEX_HOME", &desk.settings)
        // It tells people when a limit is lifted, by the clock on their wall.
        .with("TZ", "UTC");
    Ok(AgentInvocation {
        args,
        env,
        input: pass.prompt.clone(),
    })
}

fn settings(agent: &Agent, pass: &AgentPass, desk: &PassFolders) -> String {
    let address = agent.key("OPENAI_BASE_URL").unwrap_or(ADDRESS);
    let key = match agent.key("CODEX_API_KEY") {
        Some(_) => "CODEX_API_KEY",
        None => "OPENAI_API_KEY",
    };
    let tree = toml_string(&desk.work_tree.to_string_lossy());
    format!(
        "model_provider = \"direct\"\n\
         check_for_update_on_startup = false\n\
         project_doc_max_bytes = 0\n\
         developer_instructions = {rules}\n\
         [model_providers.direct]\n\
         name = \"OpenAI\"\n\
         base_url = {address}\n\
         env_key = \"{key}\"\n\
         wire_api = \"responses\"\n\
         request_max_retries = {retries}\n\
         stream_max_retries = {retries}\n\
         [projects.{tree}]\n\
         trust_level = \"untrusted\"\n\
         [skills]\n\
         include_instructions = false\n\
         [sandbox_workspace_write]\n\
         exclude_slash_tmp = true\n\
         [shell_environment_policy]\n\
         exclude = {keys}\n\
         [analytics]\n\
         enabled = false\n",
        rules = toml_string(&pass.system),
        address = toml_string(address),
        retries = agent.retries,
        keys = json!(KEYS),
    )
}

/// Reads one run of the program.
#[derive(Debug)]
pub(super) struct Reader {
    max_turns: u64,
    /// Where the program keeps its records.
    home: PathBuf,
    turns: TurnCounter,
    text: String,
    used: Option<(u64, u64)>,
}

impl Reader {
    pub(super) fn new(pass: &AgentPass, desk: &PassFolders) -> Self {
        Self {
            max_turns: pass.max_turns.into(),
            home: desk.settings.clone(),
            turns: TurnCounter::default(),
            text: String::new(),
            used: None,
        }
    }

    /// What was used. Reads the session's records where the stream did not say.
    pub(super) fn usage(&self) -> Usage {
        let used = self.used.or_else(|| recorded(&self.home.join("sessions")));
        let (input_tokens, output_tokens) = used.unwrap_or_default();
        Usage {
            turns: self.turns.count,
            input_tokens,
            output_tokens,
            cost_usd: None,
        }
    }

    /// Reads one event.
    pub(super) fn read(&mut self, event: &Value) -> AgentOutput {
        let words = |of: &Value| of["message"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("thread.started") => AgentOutput::Log(vec!["agent started".to_owned()]),
            Some("item.started") => self.begun(&event["item"]),
            Some("item.completed") => self.done(&event["item"]),
            Some("turn.completed") => {
                self.used = Some(tokens(&event["usage"]));
                AgentOutput::finished(Ok(AgentAnswer::from_text(&self.text)))
            }
            Some("turn.failed") => AgentOutput::finished(Err(fault(&words(&event["error"])))),
            Some("error") => {
                let words = words(event);
                match fault(&words) {
                    denied if denied == PassError::access_denied() => AgentOutput::Abort(denied),
                    _ => AgentOutput::ProviderRetry(format!("provider: {words}")),
                }
            }
            _ => AgentOutput::empty(),
        }
    }

    fn begun(&mut self, item: &Value) -> AgentOutput {
        match item["type"].as_str() {
            Some("command_execution") => self.speaks(vec![format_tool_call("command", item)]),
            Some("mcp_tool_call") => self.speaks(vec![format_tool_call("tool", item)]),
            Some("file_change" | "web_search") => self.speaks(Vec::new()),
            _ => AgentOutput::empty(),
        }
    }

    fn done(&mut self, item: &Value) -> AgentOutput {
        match item["type"].as_str() {
            Some("agent_message") => {
                self.text = item["text"].as_str().unwrap_or_default().to_owned();
                let lines = non_empty_lines(&self.text);
                self.speaks(lines)
            }
            Some("command_execution") => {
                let said = match item["exit_code"].as_i64() {
                    Some(code) if code != 0 => {
                        let output = item["aggregated_output"].as_str().unwrap_or_default();
                        let last = output.trim().lines().last().unwrap_or_default();
                        vec![format!("exit code {code}: {last}")]
                    }
                    _ => Vec::new(),
                };
                self.tool_answered(said)
            }
            Some("file_change") => {
                let changes = item["changes"].as_array().into_iter().flatten();
                let paths = changes.filter_map(|change| change["path"].as_str());
                let lines = paths.map(|path| format!("changed: {path}")).collect();
                self.tool_answered(lines)
            }
            Some("mcp_tool_call" | "web_search") => self.tool_answered(Vec::new()),
            Some("error") => {
                let words = item["message"].as_str().unwrap_or_default();
                AgentOutput::Log(vec![single_line(words)])
            }
            _ => AgentOutput::empty(),
        }
    }

    /// The model speaks or acts: one turn too many is where it is stopped.
    fn speaks(&mut self, lines: Vec<String>) -> AgentOutput {
        self.turns.record_output();
        if self.turns.count > self.max_turns {
            return AgentOutput::Abort(PassError::TurnsExhausted);
        }
        AgentOutput::Log(lines)
    }

    /// A tool is done. One that is told of only then was the model's turn all the same.
    fn tool_answered(&mut self, lines: Vec<String>) -> AgentOutput {
        let said = self.speaks(lines);
        self.turns.record_tool_result();
        said
    }
}

fn tokens(usage: &Value) -> (u64, u64) {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    (count("input_tokens"), count("output_tokens"))
}

/// The tokens that the newest record below the folder counts, if there is one.
fn recorded(folder: &Path) -> Option<(u64, u64)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let record = std::fs::read_to_string(files.into_iter().max()?).ok()?;
    let counted = record.lines().rev().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let payload = &line["payload"];
        let total = payload["info"]["total_token_usage"].clone();
        (payload["type"] == "token_count" && total.is_object()).then_some(total)
    })?;
    Some(tokens(&counted))
}

fn fault(words: &str) -> PassError {
    let by_us = ["context window", "interrupted"];
    if words.contains("unexpected status 401") {
        PassError::access_denied()
    } else if words.contains("usage limit") || words.contains("429 Too Many Requests") {
        PassError::rate_limited(
            words,
            rate_limit_reset::parse_codex(words, RunContext::now()),
        )
    } else if by_us.iter().any(|mark| words.contains(mark)) {
        PassError::Other(words.to_owned())
    } else {
        // All else that ends a turn is the interface: refused, limited, overloaded, out of reach.
        PassError::Provider(words.to_owned())
    }
}
