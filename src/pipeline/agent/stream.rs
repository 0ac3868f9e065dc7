//! Reading the `stream-json` of `claude`: one JSON object to a line.
//!
//! Events tell what to log; only the result event tells what came of it and what it cost. One
//! message comes as several events that all repeat its usage, so usage is never summed.

use serde::Deserialize;
use serde_json::Value;

use crate::domain::report::Usage;
use crate::pipeline::text;

/// How much of one thing the agent says is logged?
const MAX_LOGGED: usize = 400;

/// What a line of the stream says.
#[derive(Debug)]
pub(super) enum Said {
    Lines(Vec<String>),
    /// The provider refuses our key; retrying for minutes would not change it.
    AccessDenied,
    Result(Box<ResultEvent>),
}

/// The last event of a run of the program.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
pub(super) struct ResultEvent {
    pub subtype: String,
    pub is_error: bool,
    pub num_turns: u64,
    pub result: Option<String>,
    pub errors: Vec<String>,
    pub api_error_status: Option<u16>,
    pub permission_denials: Vec<Value>,
    pub structured_output: Option<Value>,
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

impl ResultEvent {
    pub(super) fn usage(&self) -> Usage {
        let tokens = &self.usage;
        Usage {
            turns: self.num_turns,
            input_tokens: tokens.input_tokens
                + tokens.cache_creation_input_tokens
                + tokens.cache_read_input_tokens,
            output_tokens: tokens.output_tokens,
            cost_usd: self.total_cost_usd,
        }
    }
}

/// Reads one line.
pub(super) fn read(line: &str) -> Said {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        let line = line.trim();
        return Said::Lines(if line.is_empty() {
            Vec::new()
        } else {
            vec![text::cut(line, MAX_LOGGED)]
        });
    };
    match event["type"].as_str() {
        Some("result") => match ResultEvent::deserialize(&event) {
            Ok(result) => Said::Result(Box::new(result)),
            Err(error) => Said::Result(Box::new(ResultEvent {
                subtype: "unreadable".to_owned(),
                is_error: true,
                errors: vec![format!("its result was not understood: {error}")],
                ..ResultEvent::default()
            })),
        },
        Some("system") => system(&event),
        Some("assistant") => Said::Lines(contents(&event).flat_map(spoken).collect()),
        Some("user") => Said::Lines(contents(&event).flat_map(failed_tool).collect()),
        _ => Said::Lines(Vec::new()),
    }
}

fn system(event: &Value) -> Said {
    match event["subtype"].as_str() {
        Some("init") => {
            let model = event["model"].as_str().unwrap_or("unknown");
            Said::Lines(vec![format!("agent started with model {model}")])
        }
        Some("api_retry") if event["error"] == "authentication_failed" => Said::AccessDenied,
        Some("api_retry") => Said::Lines(vec![format!(
            "provider: {} (attempt {} of {})",
            event["error"].as_str().unwrap_or("unknown"),
            event["attempt"],
            event["max_retries"],
        )]),
        _ => Said::Lines(Vec::new()),
    }
}

fn contents(event: &Value) -> impl Iterator<Item = &Value> {
    event["message"]["content"].as_array().into_iter().flatten()
}

/// What the agent says and does, as lines.
fn spoken(content: &Value) -> Vec<String> {
    match content["type"].as_str() {
        Some("text") => content["text"]
            .as_str()
            .unwrap_or_default()
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| text::cut(line, MAX_LOGGED))
            .collect(),
        Some("tool_use") => {
            let name = content["name"].as_str().unwrap_or("tool");
            let input = &content["input"];
            // The telling argument of the common tools; else all of them.
            let told = ["command", "file_path", "pattern", "path", "url"]
                .iter()
                .find_map(|key| input[*key].as_str().map(str::to_owned))
                .unwrap_or_else(|| input.to_string());
            vec![text::cut(
                &format!("{name}: {}", told.replace('\n', " ⏎ ")),
                MAX_LOGGED,
            )]
        }
        _ => Vec::new(),
    }
}

fn failed_tool(content: &Value) -> Option<String> {
    (content["is_error"] == true).then(|| {
        let told = content["content"].as_str().unwrap_or("the tool failed");
        text::cut(&told.replace('\n', " ⏎ "), MAX_LOGGED)
    })
}
