//! OpenAI Responses API, streamed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{ModelTurn, sse_events};

/// Time until the rate limit resets.
pub const RATE_LIMIT_RESET: Duration = Duration::from_secs(60_000);

/// Reset time in seconds since the Unix epoch.
fn reset_at() -> u64 {
    let reset = SystemTime::now() + RATE_LIMIT_RESET;
    let since_epoch = reset.duration_since(UNIX_EPOCH).unwrap();
    since_epoch.as_secs()
}

pub fn render_turn(turn: &ModelTurn, number: usize, request: &Value) -> String {
    let item = match turn {
        ModelTurn::Text(text) => json!({
            "type": "message", "id": format!("msg_{number}"), "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        ModelTurn::WriteFile { path, text } => {
            let script = format!("cat > '{path}' <<'END'\n{}\nEND", text.trim_end());
            command(&script, number, request)
        }
        ModelTurn::ReadFile(path) => command(&format!("cat '{path}'"), number, request),
        ModelTurn::RunCommand(line) => command(line, number, request),
        ModelTurn::HttpError(429, headers, message) if !headers.is_empty() => {
            return json!({"error": {"type": "usage_limit_reached", "message": message,
                "plan_type": "plus", "resets_in_seconds": RATE_LIMIT_RESET.as_secs(), "resets_at": reset_at()}})
            .to_string();
        }
        ModelTurn::HttpError(_, _, message) => {
            return json!({"error": {"message": message, "type": "invalid_request_error"}})
                .to_string();
        }
        ModelTurn::TruncatedResponse(_) | ModelTurn::Hang => {
            unreachable!("no test of this vendor has it")
        }
    };
    let id = format!("resp_{number}");
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 20},
        "output_tokens": 42, "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 142,
    });
    sse_events(&[
        json!({"type": "response.created", "response": {"id": id}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": id, "usage": usage}}),
    ])
}

/// Command call through the shell tool if it is offered; newer models script their tools.
fn command(line: &str, number: usize, request: &Value) -> Value {
    let tools = request["tools"].as_array().into_iter().flatten();
    let has_tool = tools
        .filter_map(|tool| tool["name"].as_str())
        .any(|name| name == "exec_command");
    let input = json!({"cmd": line});
    let (id, call) = (format!("fc_{number}"), format!("call_{number}"));
    if has_tool {
        json!({"type": "function_call", "id": id, "call_id": call, "name": "exec_command",
            "arguments": input.to_string(), "status": "completed"})
    } else {
        let script = format!("const done = await tools.exec_command({input}); text(done.output);");
        json!({"type": "custom_tool_call", "id": id, "call_id": call, "name": "exec",
            "input": script, "status": "completed"})
    }
}
