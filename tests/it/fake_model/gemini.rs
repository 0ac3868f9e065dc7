//! Gemini `streamGenerateContent`.

use serde_json::{Value, json};

use super::ModelTurn;

pub fn render_turn(turn: &ModelTurn, _number: usize, _request: &Value) -> String {
    let part = match turn {
        ModelTurn::Text(text) => json!({"text": text}),
        ModelTurn::WriteFile { path, text } => {
            let args = json!({"file_path": path, "content": text});
            json!({"functionCall": {"name": "write_file", "args": args}})
        }
        ModelTurn::ReadFile(path) => {
            let args = json!({"file_path": path});
            json!({"functionCall": {"name": "read_file", "args": args}})
        }
        ModelTurn::RunCommand(command) => {
            let args = json!({"command": command, "description": "Does it"});
            json!({"functionCall": {"name": "run_shell_command", "args": args}})
        }
        ModelTurn::HttpError(status, _, message) => {
            let error = json!({"code": status, "message": message, "status": "REFUSED"});
            return json!({ "error": error }).to_string();
        }
        ModelTurn::TruncatedResponse(_) | ModelTurn::Hang => {
            unreachable!("no test of this vendor has it")
        }
    };
    let answer = json!({
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 42,
            "totalTokenCount": 142, "cachedContentTokenCount": 20},
    });
    format!("data: {answer}\r\n\r\n")
}
