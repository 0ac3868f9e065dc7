//! Anthropic Messages API, streamed.

use serde_json::{Value, json};

use super::{ModelTurn, sse_events};

/// Whether the request offers the tool for structured output.
pub fn wants_structured_output(request: &Value) -> bool {
    let tools = request["tools"].as_array().into_iter().flatten();
    let mut names = tools.filter_map(|tool| tool["name"].as_str());
    names.any(|name| name == "StructuredOutput")
}

pub fn render_turn(turn: &ModelTurn, number: usize, request: &Value) -> String {
    let (text, tool, stop) = match turn {
        ModelTurn::Text(structured) if wants_structured_output(request) => {
            let structured = serde_json::from_str(structured).unwrap();
            (
                "I looked at it.",
                Some(("StructuredOutput", structured)),
                "tool_use",
            )
        }
        ModelTurn::Text(text) => (text.as_str(), None, "end_turn"),
        ModelTurn::WriteFile { path, text } => {
            let input = json!({"file_path": path, "content": text});
            ("I write.", Some(("Write", input)), "tool_use")
        }
        ModelTurn::ReadFile(path) => {
            let input = json!({"file_path": path});
            ("I read.", Some(("Read", input)), "tool_use")
        }
        ModelTurn::RunCommand(command) => {
            let input = json!({"command": command, "description": "Does it"});
            ("I run.", Some(("Bash", input)), "tool_use")
        }
        ModelTurn::TruncatedResponse(reason) => ("And then", None, *reason),
        ModelTurn::HttpError(status, _, message) => {
            let kind = match status {
                401 => "authentication_error",
                403 => "permission_error",
                429 => "rate_limit_error",
                529 => "overloaded_error",
                _ => "invalid_request_error",
            };
            let error = json!({"type": kind, "message": message});
            return json!({"type": "error", "error": error}).to_string();
        }
        ModelTurn::Hang => unreachable!("it is never answered"),
    };
    let usage = json!({"input_tokens": 100, "cache_creation_input_tokens": 50,
        "cache_read_input_tokens": 20, "output_tokens": 42});
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "content": [],
        "model": request["model"], "stop_reason": null, "stop_sequence": null, "usage": usage,
    }})];
    events.extend(block(
        0,
        json!({"type": "text", "text": ""}),
        json!({"type": "text_delta", "text": text}),
    ));
    if let Some((name, input)) = tool {
        events.extend(block(
            1,
            json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input.to_string()}),
        ));
    }
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    sse_events(&events)
}

fn block(index: usize, start: Value, delta: Value) -> [Value; 3] {
    [
        json!({"type": "content_block_start", "index": index, "content_block": start}),
        json!({"type": "content_block_delta", "index": index, "delta": delta}),
        json!({"type": "content_block_stop", "index": index}),
    ]
}
