//! Messages, streamed.

use serde_json::{Value, json};

use super::{ModelTurn, sse_events};

/// Whether the answer must be given by a tool that holds it to a form.
pub fn wants_structured_output(asked: &Value) -> bool {
    let tools = asked["tools"].as_array().into_iter().flatten();
    let mut names = tools.filter_map(|tool| tool["name"].as_str());
    names.any(|name| name == "StructuredOutput")
}

pub fn render_turn(turn: &ModelTurn, number: usize, asked: &Value) -> String {
    let (text, tool, stop) = match turn {
        ModelTurn::Text(form) if wants_structured_output(asked) => {
            let form = serde_json::from_str(form).unwrap();
            (
                "I looked at it.",
                Some(("StructuredOutput", form)),
                "tool_use",
            )
        }
        ModelTurn::Text(text) => (text.as_str(), None, "end_turn"),
        ModelTurn::WriteFile { path, text } => {
            let input = json!({"file_path": path, "content": text});
            ("I write.", Some(("Write", input)), "tool_use")
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
    let mut said = vec![json!({"type": "message_start", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "content": [],
        "model": asked["model"], "stop_reason": null, "stop_sequence": null, "usage": usage,
    }})];
    said.extend(block(
        0,
        json!({"type": "text", "text": ""}),
        json!({"type": "text_delta", "text": text}),
    ));
    if let Some((name, input)) = tool {
        said.extend(block(
            1,
            json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input.to_string()}),
        ));
    }
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    said.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    said.push(json!({"type": "message_stop"}));
    sse_events(&said)
}

fn block(index: usize, begun: Value, delta: Value) -> [Value; 3] {
    [
        json!({"type": "content_block_start", "index": index, "content_block": begun}),
        json!({"type": "content_block_delta", "index": index, "delta": delta}),
        json!({"type": "content_block_stop", "index": index}),
    ]
}
