//! OpenAI Codex: invocation and `--json` output (tested with version 0.169.0).
//!
//! A repository's `.codex/` may configure tool servers, hooks, a notify command, a model and an
//! address. The program obeys it in trusted folders, so the work tree is declared untrusted; then
//! none of these were seen to run. Skills and `AGENTS.md` are read even so and are switched off:
//! the run reads team guidance from the base branch itself. All settings are in a separate
//! `CODEX_HOME`. The provider is configured explicitly, because the built-in one retries for
//! minutes on errors that should end the pass.
//!
//! The program has no turn limit, so the reader counts turns. A failed run does not report its usage;
//! then the usage is read from the session's records.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::configuration::Agent;
use super::credentials;
use super::gemini::toml_string;
use super::output::{
    AgentOutput, PassError, TurnCounter, format_tool_call, non_empty_lines, single_line,
};
use super::pass::{AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders, REVIEW_SCHEMA};
use super::rate_limit_reset;
use crate::clock;
use domain::report::Usage;

/// Default address of the provider.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// Returns arguments, environment and input of the program, and writes its settings files.
pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    pass_folders: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let settings = settings(agent, pass, pass_folders);
    std::fs::write(pass_folders.settings.join("config.toml"), settings)?;
    let mut args: Vec<std::ffi::OsString> =
        ["exec", "--json", "--ignore-rules", "--color", "never"]
            .map(Into::into)
            .into();
    args.extend(["--skip-git-repo-check".into(), "--cd".into()]);
    args.push(pass_folders.work_tree.clone().into());
    match pass.role {
        // The container is the sandbox. The program's own would keep builds and tests from the network.
        AgentRole::Implement => args.push("--dangerously-bypass-approvals-and-sandbox".into()),
        AgentRole::Review => {
            let schema = pass_folders.write_input_file("schema.json", REVIEW_SCHEMA)?;
            args.extend(["--sandbox".into(), "read-only".into()]);
            args.extend(["--output-schema".into(), schema]);
        }
        // Files outside the planner's folder and the scratch folder are ignored.
        AgentRole::Plan { .. } => args.extend(["--sandbox".into(), "workspace-write".into()]),
    }
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    args.push("-".into());
    let env = agent
        .base_env()
        .with("HOME", &pass_folders.home)
        .with("TMPDIR", &pass_folders.temp_dir)
        .with("CODEX_HOME", &pass_folders.settings)
        // Messages state the end of a rate limit in local time.
        .with("TZ", "UTC");
    Ok(AgentInvocation {
        args,
        env,
        input: pass.prompt.clone(),
    })
}

fn settings(agent: &Agent, pass: &AgentPass, pass_folders: &PassFolders) -> String {
    let base_url = agent.key("OPENAI_BASE_URL").unwrap_or(DEFAULT_BASE_URL);
    let key = match agent.key("CODEX_API_KEY") {
        Some(_) => "CODEX_API_KEY",
        None => "OPENAI_API_KEY",
    };
    let tree = toml_string(&pass_folders.work_tree.to_string_lossy());
    format!(
        "model_provider = \"direct\"\n\
         check_for_update_on_startup = false\n\
         project_doc_max_bytes = 0\n\
         developer_instructions = {rules}\n\
         [model_providers.direct]\n\
         name = \"OpenAI\"\n\
         base_url = {base_url}\n\
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
         writable_roots = [{scratch}]\n\
         [shell_environment_policy]\n\
         exclude = {keys}\n\
         [analytics]\n\
         enabled = false\n",
        rules = toml_string(&pass.system),
        scratch = toml_string(&pass_folders.scratch.path().to_string_lossy()),
        base_url = toml_string(base_url),
        retries = agent.retries,
        keys = json!(credentials::CODEX),
    )
}

/// Reader of one program run.
#[derive(Debug)]
pub(super) struct Reader {
    max_turns: u64,
    /// Settings folder, which holds the session records.
    home: PathBuf,
    turns: TurnCounter,
    text: String,
    used: Option<(u64, u64)>,
}

impl Reader {
    /// Creates the reader of a pass.
    pub(super) fn new(pass: &AgentPass, settings: &Path) -> Self {
        Self {
            max_turns: pass.max_turns.into(),
            home: settings.to_owned(),
            turns: TurnCounter::default(),
            text: String::new(),
            used: None,
        }
    }

    /// Returns the usage, from the session's records if the stream did not report it.
    pub(super) fn usage(&self) -> Usage {
        let used = self
            .used
            .or_else(|| recorded_usage(&self.home.join("sessions")));
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
        let message = |of: &Value| of["message"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("thread.started") => AgentOutput::Log(vec!["Agent started".to_owned()]),
            Some("item.started") => self.item_started(&event["item"]),
            Some("item.completed") => self.item_completed(&event["item"]),
            Some("turn.completed") => {
                self.used = Some(tokens(&event["usage"]));
                AgentOutput::finished(Ok(AgentAnswer::from_text(&self.text)))
            }
            Some("turn.failed") => {
                AgentOutput::finished(Err(pass_error(&message(&event["error"]))))
            }
            Some("error") => {
                let message = message(event);
                match pass_error(&message) {
                    denied if denied == PassError::access_denied() => AgentOutput::Abort(denied),
                    _ => AgentOutput::ProviderRetry(format!("Provider error: {message}")),
                }
            }
            _ => AgentOutput::empty(),
        }
    }

    fn item_started(&mut self, item: &Value) -> AgentOutput {
        match item["type"].as_str() {
            Some("command_execution") => self.model_output(vec![format_tool_call("command", item)]),
            Some("mcp_tool_call") => self.model_output(vec![format_tool_call("tool", item)]),
            Some("file_change" | "web_search") => self.model_output(Vec::new()),
            _ => AgentOutput::empty(),
        }
    }

    fn item_completed(&mut self, item: &Value) -> AgentOutput {
        match item["type"].as_str() {
            Some("agent_message") => {
                self.text = item["text"].as_str().unwrap_or_default().to_owned();
                let lines = non_empty_lines(&self.text);
                self.model_output(lines)
            }
            Some("command_execution") => {
                let lines = match item["exit_code"].as_i64() {
                    Some(code) if code != 0 => {
                        let output = item["aggregated_output"].as_str().unwrap_or_default();
                        let last = output.trim().lines().last().unwrap_or_default();
                        vec![format!("exit code {code}: {last}")]
                    }
                    _ => Vec::new(),
                };
                self.tool_completed(lines)
            }
            Some("file_change") => {
                let changes = item["changes"].as_array().into_iter().flatten();
                let paths = changes.filter_map(|change| change["path"].as_str());
                let lines = paths.map(|path| format!("changed: {path}")).collect();
                self.tool_completed(lines)
            }
            Some("mcp_tool_call" | "web_search") => self.tool_completed(Vec::new()),
            Some("error") => {
                let message = item["message"].as_str().unwrap_or_default();
                AgentOutput::Log(vec![single_line(message)])
            }
            _ => AgentOutput::empty(),
        }
    }

    /// Records output of the model; aborts if the turn limit is exceeded.
    fn model_output(&mut self, lines: Vec<String>) -> AgentOutput {
        self.turns.record_output();
        if self.turns.count > self.max_turns {
            return AgentOutput::Abort(PassError::TurnsExhausted);
        }
        AgentOutput::Log(lines)
    }

    /// Records a completed tool call. Some calls are only reported on completion; they count as
    /// output too.
    fn tool_completed(&mut self, lines: Vec<String>) -> AgentOutput {
        let output = self.model_output(lines);
        self.turns.record_tool_result();
        output
    }
}

fn tokens(usage: &Value) -> (u64, u64) {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    (count("input_tokens"), count("output_tokens"))
}

/// Returns the token counts of the newest session record below the folder.
fn recorded_usage(folder: &Path) -> Option<(u64, u64)> {
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
        let line: Value = serde_json::from_slice(line.as_bytes()).ok()?;
        let payload = &line["payload"];
        let total = payload["info"]["total_token_usage"].clone();
        (payload["type"] == "token_count" && total.is_object()).then_some(total)
    })?;
    Some(tokens(&counted))
}

fn pass_error(message: &str) -> PassError {
    let not_provider = ["context window", "interrupted"];
    if message.contains("unexpected status 401") {
        PassError::access_denied()
    } else if message.contains("usage limit") || message.contains("429 Too Many Requests") {
        PassError::rate_limited(
            message,
            rate_limit_reset::parse_codex(message, clock::now()),
        )
    } else if not_provider.iter().any(|text| message.contains(text)) {
        PassError::Other(message.to_owned())
    } else {
        // Every other error that ends a turn comes from the provider.
        PassError::Provider(message.to_owned())
    }
}
