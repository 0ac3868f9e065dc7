//! Claude Code: invocation and `stream-json` output (tested with version 2.1.197).
//!
//! `--setting-sources user --strict-mcp-config` keep a repository from running code and taking the
//! model key; fewer flags do not. Neither exit code nor subtype alone indicates success: a rejected
//! key ends with subtype `success`, an interrupted run with exit code 0.
//!
//! Events are logged. The result event holds result and usage. One message is split into several events
//! that repeat its usage, so usage is summed once per message, and only if there is no result event.

use std::collections::HashMap;
use std::ffi::OsString;

use serde::Deserialize;
use serde_json::Value;

use super::configuration::Agent;
use super::output::{AgentOutput, PassError, format_tool_call, non_empty_lines, single_line};
use super::pass::{AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders, REVIEW_SCHEMA};
use super::rate_limit_reset;
use crate::scratch::Scratch;
use domain::report::Usage;

/// Returns arguments, environment and input of the program, and writes its settings files.
pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    pass_folders: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let mut env = agent
        .base_env()
        .with("HOME", &pass_folders.home)
        .with("CLAUDE_CONFIG_DIR", &pass_folders.settings)
        .with("TMPDIR", &pass_folders.temp_dir)
        .with("CLAUDE_CODE_TMPDIR", &pass_folders.temp_dir)
        .with("CLAUDE_CODE_MAX_RETRIES", agent.retries.to_string())
        .with("DISABLE_AUTOUPDATER", "1")
        .with("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    if let Some(region) = &agent.cloud_region {
        env = env
            .with("CLAUDE_CODE_USE_BEDROCK", "1")
            .with("AWS_REGION", region);
    }
    if rustix::process::geteuid().is_root() {
        // Otherwise the program refuses to skip permission prompts as root. The container is the
        // sandbox.
        env = env.with("IS_SANDBOX", "1");
    }
    Ok(AgentInvocation {
        args: arguments(
            agent,
            pass,
            pass_folders.write_input_file("system.md", &pass.system)?,
            &pass_folders.scratch,
        ),
        env,
        input: pass.prompt.clone(),
    })
}

fn arguments(
    agent: &Agent,
    pass: &AgentPass,
    system: OsString,
    scratch: &Scratch,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources",
        "user",
        "--strict-mcp-config",
        "--no-session-persistence",
        "--max-turns",
    ]
    .map(Into::into)
    .into();
    args.push(pass.max_turns.to_string().into());
    args.extend(["--append-system-prompt-file".into(), system]);
    if let Some(model) = &agent.model {
        args.extend(["--model".into(), model.into()]);
    }
    args.extend(["--add-dir".into(), scratch.path().into()]);
    // Tools that are not listed are unavailable.
    let flags: Vec<String> = match pass.role {
        AgentRole::Implement => owned(["--permission-mode", "bypassPermissions"]),
        AgentRole::Review => owned([
            "--permission-mode",
            "bypassPermissions",
            "--tools",
            "Read,Grep,Glob",
            "--json-schema",
            REVIEW_SCHEMA,
        ]),
        // In this mode only reading inside the working directory and `--add-dir` needs no permission. A rule for `Read`
        // or `Grep` would open the whole disk. The `Edit` rule covers every tool that writes files.
        AgentRole::Plan { folder } => {
            let mut flags = owned(["--permission-mode", "dontAsk"]);
            flags.extend(owned(["--tools", "Read,Grep,Glob,Write", "--allowedTools"]));
            flags.push(format!("Edit(./{folder}/**)"));
            // An absolute path begins with two slashes.
            let questions = scratch.question_file();
            flags.push(format!("Edit(/{})", questions.to_string_lossy()));
            flags
        }
    };
    args.extend(flags.into_iter().map(Into::into));
    args
}

fn owned<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Prefix of diagnostic errors after an interrupted run, meant for the program's vendor.
const DIAGNOSTIC_PREFIX: &str = "[ede_diagnostic]";

/// Reader of one program run.
#[derive(Debug)]
pub(super) struct Reader {
    /// Whether denied permissions are accepted. A planner may try to write outside its folder; its
    /// files show what it achieved.
    may_be_denied: bool,
    /// Usage by message, for a run without a result event.
    messages: HashMap<String, TokenCounts>,
    result: Option<Usage>,
    /// End of the reported rate limit, in seconds since the epoch.
    reset: Option<u64>,
    /// Model in the first event.
    model: Option<String>,
}

/// Result event, the last event of a run.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ResultEvent {
    subtype: String,
    is_error: bool,
    num_turns: u64,
    result: Option<String>,
    errors: Vec<String>,
    api_error_status: Option<u16>,
    stop_reason: Option<String>,
    permission_denials: Vec<Value>,
    structured_output: Option<Value>,
    total_cost_usd: Option<f64>,
    usage: TokenCounts,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
struct TokenCounts {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

impl TokenCounts {
    fn input(&self) -> u64 {
        self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens
    }
}

impl Reader {
    /// Creates the reader of a pass.
    pub(super) fn new(role: AgentRole) -> Self {
        Self {
            may_be_denied: matches!(role, AgentRole::Plan { .. }),
            messages: HashMap::new(),
            result: None,
            reset: None,
            model: None,
        }
    }

    /// Returns the model that the program named.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Usage {
        self.result.unwrap_or_else(|| Usage {
            turns: self.messages.len() as u64,
            input_tokens: self.messages.values().map(TokenCounts::input).sum(),
            output_tokens: self.messages.values().map(|used| used.output_tokens).sum(),
            cost_usd: None,
        })
    }

    /// Reads one event.
    pub(super) fn read(&mut self, event: &Value) -> AgentOutput {
        match event["type"].as_str() {
            Some("result") => match ResultEvent::deserialize(event) {
                Ok(result) => AgentOutput::finished(self.evaluate(result)),
                Err(error) => AgentOutput::finished(Err(PassError::Other(format!(
                    "cannot parse its result: {error}"
                )))),
            },
            Some("system") => {
                if event["subtype"] == "init" {
                    self.model = event["model"].as_str().map(str::to_owned);
                }
                system(event)
            }
            Some("rate_limit_event") => {
                let limit = &event["rate_limit_info"];
                if limit["status"] == "rejected" {
                    self.reset = limit["resetsAt"].as_u64();
                }
                AgentOutput::empty()
            }
            Some("assistant") => {
                self.count(&event["message"]);
                AgentOutput::Log(contents(event).flat_map(log_lines).collect())
            }
            Some("user") => AgentOutput::Log(contents(event).filter_map(failed_tool).collect()),
            _ => AgentOutput::empty(),
        }
    }

    fn count(&mut self, message: &Value) {
        // Errors of the program itself are reported as messages of a synthetic model.
        let is_from_model = message["model"] != "<synthetic>";
        if let (Some(id), true) = (message["id"].as_str(), is_from_model) {
            let used = TokenCounts::deserialize(&message["usage"]).unwrap_or_default();
            self.messages.insert(id.to_owned(), used);
        }
    }

    fn evaluate(&mut self, result: ResultEvent) -> Result<AgentAnswer, PassError> {
        self.result = Some(Usage {
            turns: result.num_turns,
            input_tokens: result.usage.input(),
            output_tokens: result.usage.output_tokens,
            cost_usd: result.total_cost_usd,
        });
        let denied: Vec<&str> = result
            .permission_denials
            .iter()
            .filter_map(|denial| denial["tool_name"].as_str())
            .collect();
        match (result.subtype.as_str(), result.is_error) {
            ("success", false) if denied.is_empty() || self.may_be_denied => Ok(AgentAnswer {
                text: result.result.unwrap_or_default(),
                structured: result.structured_output,
            }),
            ("success", false) => Err(PassError::Other(format!(
                "it was denied permission to use {}",
                denied.join(", ")
            ))),
            // The provider failed: rejected, overloaded or unreachable.
            ("success", true) => Err(self.provider_error(&result)),
            ("error_max_turns", _) => Err(PassError::TurnsExhausted),
            (subtype, _) if result.errors.is_empty() => {
                Err(PassError::Other(subtype.replace('_', " ")))
            }
            _ => {
                let errors = result.errors.iter().map(String::as_str);
                let errors: Vec<&str> = errors
                    .filter(|error| !error.starts_with(DIAGNOSTIC_PREFIX))
                    .collect();
                Err(match errors.is_empty() {
                    true => PassError::missing_result(),
                    false => PassError::Other(errors.join("; ")),
                })
            }
        }
    }

    fn provider_error(&self, result: &ResultEvent) -> PassError {
        let message = result.result.as_deref().unwrap_or_default().trim();
        // Older versions append the end of the limit after a `|`.
        if let Some((text, epoch)) = message.split_once('|')
            && text.contains("limit reached")
        {
            return PassError::rate_limited(
                text,
                epoch
                    .trim()
                    .parse()
                    .ok()
                    .map(rate_limit_reset::from_epoch_seconds),
            );
        }
        // An answer that the model refused or could not complete is not a provider failure.
        let by_model =
            result.stop_reason.as_deref() == Some("refusal") || message.contains("output token");
        match result.api_error_status {
            Some(401) => PassError::access_denied(),
            // With an API key there is no reset event, but the provider's message may hold the time.
            Some(429) => {
                let reset = self.reset.map(rate_limit_reset::from_epoch_seconds);
                PassError::rate_limited(
                    message,
                    reset.or_else(|| rate_limit_reset::parse_claude(message)),
                )
            }
            Some(_) => PassError::Provider(message.to_owned()),
            None if message.contains("API Error") && !by_model => {
                PassError::Provider(message.to_owned())
            }
            None => PassError::Other(message.to_owned()),
        }
    }
}

fn system(event: &Value) -> AgentOutput {
    match event["subtype"].as_str() {
        Some("init") => {
            let model = event["model"].as_str().unwrap_or("unknown");
            AgentOutput::Log(vec![format!("Agent started with model {model}")])
        }
        // Retries would take minutes and fail too.
        Some("api_retry") if event["error"] == "authentication_failed" => {
            AgentOutput::Abort(PassError::access_denied())
        }
        Some("api_retry") => {
            let line = format!(
                "Provider error: {} (attempt {} of {})",
                event["error"].as_str().unwrap_or("unknown"),
                event["attempt"],
                event["max_retries"],
            );
            match event["error_status"] == 429 {
                true => AgentOutput::RateLimited(line),
                false => AgentOutput::ProviderRetry(line),
            }
        }
        _ => AgentOutput::empty(),
    }
}

fn contents(event: &Value) -> impl Iterator<Item = &Value> {
    event["message"]["content"].as_array().into_iter().flatten()
}

/// Returns the log lines of a message's content: text and tool calls.
fn log_lines(content: &Value) -> Vec<String> {
    match content["type"].as_str() {
        Some("text") => non_empty_lines(content["text"].as_str().unwrap_or_default()),
        Some("tool_use") => {
            let name = content["name"].as_str().unwrap_or("tool");
            vec![format_tool_call(name, &content["input"])]
        }
        _ => Vec::new(),
    }
}

fn failed_tool(content: &Value) -> Option<String> {
    (content["is_error"] == true)
        .then(|| single_line(content["content"].as_str().unwrap_or("the tool failed")))
}
