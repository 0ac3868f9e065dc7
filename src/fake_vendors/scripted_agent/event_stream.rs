//! Event stream of the real agent CLI, one JSON object per line.

use std::io::Write;

use serde_json::{Map, Value, json};

use crate::clock;

const TOOLS: &[&str] = &[
    "Task",
    "Bash",
    "Edit",
    "NotebookEdit",
    "Read",
    "TaskStop",
    "WebFetch",
    "WebSearch",
    "Write",
];

/// Writer of events. In the formats `text` and `json` only the result is written.
pub(super) struct EventStream<'a> {
    out: &'a mut dyn Write,
    format: String,
    session: String,
    model: String,
    started: i64,
    messages: usize,
    tools_used: usize,
    pub permission_denials: Vec<Value>,
}

/// Outcome of a call.
pub(super) enum CallOutcome {
    Success {
        text: String,
        structured: Option<Value>,
    },
    /// Error of the model API, reported with subtype `success` and `is_error`.
    ApiError {
        status: Option<u16>,
        text: String,
    },
    TooManyTurns(usize),
}

impl<'a> EventStream<'a> {
    pub(super) fn new(out: &'a mut dyn Write, format: &str, model: Option<&str>) -> Self {
        Self {
            out,
            format: format.to_owned(),
            session: clock::uuid(),
            model: model.unwrap_or("claude-opus-4-8").to_owned(),
            started: clock::now_ms(),
            messages: 0,
            tools_used: 0,
            permission_denials: Vec::new(),
        }
    }

    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    fn emit(&mut self, event: &Value) -> std::io::Result<()> {
        if self.format == "stream-json" {
            writeln!(self.out, "{event}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(super) fn init(
        &mut self,
        cwd: &str,
        tools: Option<Vec<&str>>,
        mode: &str,
        key_source: &str,
        mcp: &[String],
    ) -> std::io::Result<()> {
        let servers: Vec<Value> = mcp
            .iter()
            .map(|name| json!({"name": name, "status": "connected"}))
            .collect();
        let event = json!({
            "type": "system", "subtype": "init", "cwd": cwd, "session_id": self.session,
            "tools": tools.unwrap_or_else(|| TOOLS.to_vec()), "mcp_servers": servers, "model": self.model,
            "permissionMode": mode, "slash_commands": [], "apiKeySource": key_source,
            "claude_code_version": "2.1.197", "output_style": "default", "agents": [], "skills": [],
            "plugins": [], "uuid": clock::uuid(),
        });
        self.emit(&event)
    }

    pub(super) fn api_retry(&mut self, status: u16) -> std::io::Result<()> {
        let error = match status {
            401 | 403 => "authentication_failed",
            429 => "rate_limit",
            529 => "overloaded",
            _ => "unknown",
        };
        let event = json!({
            "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 1,
            "retry_delay_ms": 503.2, "error_status": status, "error": error,
            "session_id": self.session, "uuid": clock::uuid(),
        });
        self.emit(&event)
    }

    /// Reports the usage limit that was reached.
    pub(super) fn rate_limit(&mut self, resets_at: u64) -> std::io::Result<()> {
        let event = json!({
            "type": "rate_limit_event",
            "rate_limit_info": {
                "status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour",
                "overageStatus": "rejected", "isUsingOverage": false,
            },
            "session_id": self.session, "uuid": clock::uuid(),
        });
        self.emit(&event)
    }

    /// Writes one API message. Each block is an event; all have the same message ID and usage. Returns
    /// the ID of the tool use, or an empty string.
    pub(super) fn message(
        &mut self,
        text: Option<&str>,
        tool: Option<(&str, &Value)>,
    ) -> std::io::Result<String> {
        self.messages += 1;
        if let Some(text) = text {
            self.block(json!({"type": "text", "text": text}))?;
        }
        let mut id = String::new();
        if let Some((name, input)) = tool {
            self.tools_used += 1;
            id = format!("toolu_{:04}", self.tools_used);
            self.block(json!({"type": "tool_use", "id": id, "name": name, "input": input}))?;
        }
        Ok(id)
    }

    fn block(&mut self, content: Value) -> std::io::Result<()> {
        let event = json!({
            "type": "assistant",
            "message": {
                "id": format!("msg_{:04}", self.messages), "type": "message", "role": "assistant",
                "model": self.model, "content": [content], "stop_reason": null, "stop_sequence": null,
                "usage": {"input_tokens": 100, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 20, "output_tokens": 1, "service_tier": "standard"},
                "context_management": null,
            },
            "parent_tool_use_id": null, "session_id": self.session, "uuid": clock::uuid(),
            "request_id": format!("req_{}", self.messages),
        });
        self.emit(&event)
    }

    pub(super) fn tool_result(
        &mut self,
        id: &str,
        result: Result<String, String>,
    ) -> std::io::Result<()> {
        let (content, is_error) = match result {
            Ok(content) => (content, false),
            Err(content) => (content, true),
        };
        let event = json!({
            "type": "user",
            "message": {"role": "user", "content": [{"tool_use_id": id, "type": "tool_result", "content": content, "is_error": is_error}]},
            "parent_tool_use_id": null, "session_id": self.session, "uuid": clock::uuid(),
            "timestamp": clock::iso(clock::now_ms()),
            "tool_use_result": {"stdout": content, "stderr": "", "interrupted": false, "isImage": false},
        });
        self.emit(&event)
    }

    /// Writes the result event and returns the exit code.
    pub(super) fn finish(&mut self, outcome: CallOutcome) -> std::io::Result<u8> {
        let mut event = self.totals();
        let mut set = |key: &str, value: Value| event.insert(key.to_owned(), value);
        let (code, text) = match outcome {
            CallOutcome::Success { text, structured } => {
                set("subtype", json!("success"));
                set("is_error", json!(false));
                set("api_error_status", Value::Null);
                set("result", json!(text));
                if let Some(output) = structured {
                    set("structured_output", output);
                }
                set("terminal_reason", json!("completed"));
                (0, text)
            }
            CallOutcome::ApiError { status, text } => {
                set("subtype", json!("success"));
                set("is_error", json!(true));
                set("api_error_status", json!(status));
                set("result", json!(text));
                set("stop_reason", json!("stop_sequence"));
                set("terminal_reason", json!("completed"));
                (1, text)
            }
            CallOutcome::TooManyTurns(max) => {
                set("subtype", json!("error_max_turns"));
                set("is_error", json!(true));
                set("num_turns", json!(max + 1));
                set("stop_reason", json!("tool_use"));
                set("terminal_reason", json!("max_turns"));
                set(
                    "errors",
                    json!([format!("Reached maximum number of turns ({max})")]),
                );
                (1, format!("Error: Reached max turns ({max})"))
            }
        };
        match self.format.as_str() {
            "text" => writeln!(self.out, "{text}")?,
            _ => writeln!(self.out, "{}", Value::Object(event))?,
        }
        self.out.flush()?;
        Ok(code)
    }

    fn totals(&self) -> Map<String, Value> {
        let turns = self.messages.max(1);
        let cost = (turns as f64 * 18_725.0).round() / 1e7;
        let model = format!("{}[1m]", self.model);
        let totals = json!({
            "type": "result", "subtype": "", "is_error": false,
            "duration_ms": clock::now_ms() - self.started, "duration_api_ms": 20 * turns,
            "num_turns": turns, "stop_reason": "end_turn", "session_id": self.session,
            "total_cost_usd": cost,
            "usage": {
                "input_tokens": 100 * turns, "cache_creation_input_tokens": 50 * turns,
                "cache_read_input_tokens": 20 * turns, "output_tokens": 42 * turns,
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
                "service_tier": "standard",
            },
            "modelUsage": {(model): {
                "inputTokens": 100 * turns, "outputTokens": 42 * turns, "cacheReadInputTokens": 20 * turns,
                "cacheCreationInputTokens": 50 * turns, "webSearchRequests": 0, "costUSD": cost,
                "contextWindow": 1_000_000, "maxOutputTokens": 64_000,
            }},
            "permission_denials": self.permission_denials, "uuid": clock::uuid(),
        });
        match totals {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}
