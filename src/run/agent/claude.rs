//! Claude Code: how it is started and how its `stream-json` is read. (tried with 2.1.197)
//!
//! The two flags that keep a repository from running code and taking the key are
//! `--setting-sources user --strict-mcp-config`; nothing less does. Neither the exit code nor the
//! subtype says alone whether a run went well: a refused key ends as `success`, an interrupted run
//! with code 0.
//!
//! Events tell what to log; the result event tells what came of it and what it cost. One message
//! comes as several events that all repeat its usage; only where no result came is usage summed,
//! once a message.

use std::collections::HashMap;
use std::ffi::OsString;

use serde::Deserialize;
use serde_json::Value;

use super::output::{AgentOutput, PassError, format_tool_call, non_empty_lines, single_line};
use super::rate_limit_reset;
use super::{
    Agent, AgentAnswer, AgentInvocation, AgentPass, AgentRole, PassFolders, REVIEW_SCHEMA,
};
use domain::report::Usage;

/// What the direct provider is reached with. A base address is no credential, but travels with them.
pub(super) const KEYS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
];

/// What the cloud provider is reached with.
pub(super) const CLOUD_KEYS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "ANTHROPIC_BEDROCK_BASE_URL",
];

pub(super) fn build_invocation(
    agent: &Agent,
    pass: &AgentPass,
    desk: &PassFolders,
) -> std::io::Result<AgentInvocation> {
    let mut env = agent
        .base_env()
        .with("HOME", &desk.home)
        .with("CLAUDE_CONFIG_DIR", &desk.settings)
        .with("TMPDIR", &desk.temp_dir)
        .with("CLAUDE_CODE_TMPDIR", &desk.temp_dir)
        .with("CLAUDE_CODE_MAX_RETRIES", agent.retries.to_string())
        .with("DISABLE_AUTOUPDATER", "1")
        .with("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    if let Some(region) = &agent.cloud_region {
        env = env
            .with("CLAUDE_CODE_USE_BEDROCK", "1")
            .with("AWS_REGION", region);
    }
    if rustix::process::geteuid().is_root() {
        // Without it the program refuses to skip permission prompts as root. A run is a sandbox.
        env = env.with("IS_SANDBOX", "1");
    }
    Ok(AgentInvocation {
        args: arguments(
            agent,
            pass,
            desk.write_input_file("system.md", &pass.system)?,
        ),
        env,
        input: pass.prompt.clone(),
    })
}

fn arguments(agent: &Agent, pass: &AgentPass, system: OsString) -> Vec<OsString> {
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
    // What is not in the list of tools need not be forbidden.
    let given: Vec<String> = match pass.role {
        AgentRole::Implement => words(["--permission-mode", "bypassPermissions"]),
        AgentRole::Review => words([
            "--permission-mode",
            "bypassPermissions",
            "--tools",
            "Read,Grep,Glob",
            "--json-schema",
            REVIEW_SCHEMA,
        ]),
        // In this mode reading inside the working directory needs no permission and nothing else
        // is given; a rule for `Read` or `Grep` would open the whole disk. The rule of `Edit` covers
        // every tool that writes files.
        AgentRole::Plan { folder } => {
            let mut given = words(["--permission-mode", "dontAsk"]);
            given.extend(words(["--tools", "Read,Grep,Glob,Write", "--allowedTools"]));
            given.push(format!("Edit(./{folder}/**)"));
            given
        }
    };
    args.extend(given.into_iter().map(Into::into));
    args
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Before what the program tells its own makers about an end in the middle of something.
const NOTE: &str = "[ede_diagnostic]";

/// Reads one run of the program.
#[derive(Debug)]
pub(super) struct Reader {
    /// To a planner, being kept from something is no failure: it may try a file outside of its
    /// folder, and what it did write shows for itself.
    may_be_denied: bool,
    /// What each message of the model used, for a run that ends without a result.
    messages: HashMap<String, TokenCounts>,
    result: Option<Usage>,
    /// When the limit that we met is lifted, in seconds of the epoch.
    reset: Option<u64>,
}

/// The last event of a run of the program.
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
    pub(super) fn new(role: AgentRole) -> Self {
        Self {
            may_be_denied: matches!(role, AgentRole::Plan { .. }),
            messages: HashMap::new(),
            result: None,
            reset: None,
        }
    }

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
                Ok(result) => AgentOutput::finished(self.judge(result)),
                Err(error) => AgentOutput::finished(Err(PassError::Other(format!(
                    "its result was not understood: {error}"
                )))),
            },
            Some("system") => system(event),
            Some("rate_limit_event") => {
                let limit = &event["rate_limit_info"];
                if limit["status"] == "rejected" {
                    self.reset = limit["resetsAt"].as_u64();
                }
                AgentOutput::empty()
            }
            Some("assistant") => {
                self.count(&event["message"]);
                AgentOutput::Log(contents(event).flat_map(spoken).collect())
            }
            Some("user") => AgentOutput::Log(contents(event).filter_map(failed_tool).collect()),
            _ => AgentOutput::empty(),
        }
    }

    fn count(&mut self, message: &Value) {
        // The program's own words about a failure are told as a message, too.
        let by_model = message["model"] != "<synthetic>";
        if let (Some(id), true) = (message["id"].as_str(), by_model) {
            let used = TokenCounts::deserialize(&message["usage"]).unwrap_or_default();
            self.messages.insert(id.to_owned(), used);
        }
    }

    fn judge(&mut self, result: ResultEvent) -> Result<AgentAnswer, PassError> {
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
                "it was not permitted to use {}",
                denied.join(", ")
            ))),
            // The interface failed: refused, overloaded, out of reach.
            ("success", true) => Err(self.refusal(&result)),
            ("error_max_turns", _) => Err(PassError::TurnsExhausted),
            (subtype, _) if result.errors.is_empty() => {
                Err(PassError::Other(subtype.replace('_', " ")))
            }
            _ => {
                let told = result.errors.iter().map(String::as_str);
                let told: Vec<&str> = told.filter(|error| !error.starts_with(NOTE)).collect();
                Err(match told.is_empty() {
                    true => PassError::missing_result(),
                    false => PassError::Other(told.join("; ")),
                })
            }
        }
    }

    fn refusal(&self, result: &ResultEvent) -> PassError {
        let words = result.result.as_deref().unwrap_or_default().trim();
        // Older versions tell the end of a limit behind a bar.
        if let Some((said, epoch)) = words.split_once('|')
            && said.contains("limit reached")
        {
            return PassError::rate_limited(
                said,
                epoch
                    .trim()
                    .parse()
                    .ok()
                    .map(rate_limit_reset::from_epoch_seconds),
            );
        }
        // An answer that the model would not or could not finish is none of the provider's troubles.
        let by_model =
            result.stop_reason.as_deref() == Some("refusal") || words.contains("output token");
        match result.api_error_status {
            Some(401) => PassError::access_denied(),
            // With an API key it prints no moment, but what the provider says may hold one.
            Some(429) => {
                let told = self.reset.map(rate_limit_reset::from_epoch_seconds);
                PassError::rate_limited(
                    words,
                    told.or_else(|| rate_limit_reset::parse_claude(words)),
                )
            }
            Some(_) => PassError::Provider(words.to_owned()),
            None if words.contains("API Error") && !by_model => {
                PassError::Provider(words.to_owned())
            }
            None => PassError::Other(words.to_owned()),
        }
    }
}

fn system(event: &Value) -> AgentOutput {
    match event["subtype"].as_str() {
        Some("init") => {
            let model = event["model"].as_str().unwrap_or("unknown");
            AgentOutput::Log(vec![format!("agent started with model {model}")])
        }
        // Retrying for minutes would not change it.
        Some("api_retry") if event["error"] == "authentication_failed" => {
            AgentOutput::Abort(PassError::access_denied())
        }
        Some("api_retry") => {
            let line = format!(
                "provider: {} (attempt {} of {})",
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

/// What the agent says and does, as lines.
fn spoken(content: &Value) -> Vec<String> {
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
