//! Fake model behind an agent. It implements the APIs of three vendors on loopback and plays a script,
//! so that real agent programs run without a real model.
//!
//! Every call plays the next turn of the script, whichever program calls; the last turn repeats forever.
//! A call that asks for structured review output takes no turn and is approved.

mod anthropic;
mod gemini;
mod openai;

pub use openai::RATE_LIMIT_RESET;

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::task::JoinHandle;
use warp::Filter;
use warp::http::{HeaderMap, Response};

use crate::route_server;

/// Response of the model to one call.
#[derive(Debug, Clone)]
pub enum ModelTurn {
    Text(String),
    /// Writes a file, named from the root or from the working directory.
    WriteFile {
        path: String,
        text: String,
    },
    /// Reads a file.
    ReadFile(String),
    /// Runs a shell command.
    RunCommand(String),
    /// Responds with this status, these headers and this message.
    HttpError(u16, Vec<(&'static str, String)>, &'static str),
    /// The response stops early, with this stop reason.
    TruncatedResponse(&'static str),
    /// Never responds.
    Hang,
}

impl ModelTurn {
    pub fn text(text: &str) -> Self {
        ModelTurn::Text(text.to_owned())
    }

    pub fn write_file(path: impl AsRef<std::path::Path>, text: &str) -> Self {
        ModelTurn::WriteFile {
            path: path.as_ref().to_string_lossy().into_owned(),
            text: text.to_owned(),
        }
    }

    pub fn read_file(path: impl AsRef<std::path::Path>) -> Self {
        ModelTurn::ReadFile(path.as_ref().to_string_lossy().into_owned())
    }

    pub fn run_command(command: &str) -> Self {
        ModelTurn::RunCommand(command.to_owned())
    }

    pub fn http_error(status: u16, message: &'static str) -> Self {
        ModelTurn::HttpError(status, Vec::new(), message)
    }
}

/// Request that the model received.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub path: String,
    /// Credential of the request, from whichever header.
    pub key: String,
    pub body: Value,
}

impl ModelRequest {
    /// Whether the request body contains a text.
    pub fn contains(&self, text: &str) -> bool {
        self.body.to_string().contains(text)
    }
}

struct ScriptState {
    turns: Vec<ModelTurn>,
    played: usize,
    requests: Vec<ModelRequest>,
}

/// Running fake model.
pub struct FakeModel {
    pub url: String,
    state: Arc<Mutex<ScriptState>>,
    server: JoinHandle<()>,
}

/// Renders one turn in a vendor's format. `number` identifies the call.
type RenderTurn = fn(turn: &ModelTurn, number: usize, request: &Value) -> String;

impl FakeModel {
    pub async fn start(turns: impl IntoIterator<Item = ModelTurn>) -> Self {
        let state = Arc::new(Mutex::new(ScriptState {
            turns: turns.into_iter().collect(),
            played: 0,
            requests: Vec::new(),
        }));
        let shared = state.clone();
        let routes = warp::path::full()
            .and(warp::header::headers_cloned())
            .and(warp::body::bytes())
            .then(
                move |path: warp::path::FullPath, headers, body: bytes::Bytes| {
                    let request = ModelRequest {
                        path: path.as_str().to_owned(),
                        key: key(&headers),
                        body: serde_json::from_slice(&body).unwrap_or_default(),
                    };
                    respond(shared.clone(), request)
                },
            );
        let (url, server) = route_server::start(routes).await;
        Self { url, state, server }
    }

    /// Replaces the script.
    pub fn set_turns(&self, turns: impl IntoIterator<Item = ModelTurn>) {
        let mut state = self.state.lock().unwrap();
        state.turns = turns.into_iter().collect();
        state.played = 0;
    }

    /// All model requests so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state.lock().unwrap().requests.clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn key(headers: &HeaderMap) -> String {
    let names = ["x-api-key", "authorization", "x-goog-api-key"];
    let credential = names.iter().find_map(|name| headers.get(*name));
    credential
        .map_or("", |value| value.to_str().unwrap())
        .to_owned()
}

async fn respond(state: Arc<Mutex<ScriptState>>, request: ModelRequest) -> Response<String> {
    let render: RenderTurn = match request.path.as_str() {
        "/v1/messages" => anthropic::render_turn,
        // The cloud's own stream format is not implemented; its errors are the same.
        path if path.starts_with("/model/") => anthropic::render_turn,
        path if path.ends_with("/responses") => openai::render_turn,
        path if path.ends_with(":streamGenerateContent") => gemini::render_turn,
        _ => return response(404, "application/json", "{}".to_owned()),
    };
    let body = request.body.clone();
    let (turn, number) = {
        let mut state = state.lock().unwrap();
        state.requests.push(request);
        let number = state.requests.len();
        if anthropic::wants_structured_output(&body) {
            (
                ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
                number,
            )
        } else {
            let at = state.played.min(state.turns.len() - 1);
            state.played += 1;
            (state.turns[at].clone(), number)
        }
    };
    match &turn {
        ModelTurn::HttpError(status, headers, _) => {
            let mut error = response(*status, "application/json", render(&turn, number, &body));
            for (name, value) in headers {
                error.headers_mut().insert(*name, value.parse().unwrap());
            }
            error
        }
        ModelTurn::Hang => std::future::pending().await,
        _ => response(200, "text/event-stream", render(&turn, number, &body)),
    }
}

fn response(status: u16, kind: &str, body: String) -> Response<String> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(body)
        .unwrap()
}

/// Named server-sent events.
fn sse_events(events: &[Value]) -> String {
    let events = events.iter();
    events
        .map(|event| {
            let name = event["type"].as_str().unwrap();
            format!("event: {name}\ndata: {event}\n\n")
        })
        .collect()
}
