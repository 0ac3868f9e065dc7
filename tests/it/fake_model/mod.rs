//! A stand-in for the model behind an agent: it speaks the three vendors' interfaces on loopback
//! and plays a script, so that real agent programs can be run without a real model.
//!
//! Every call takes the next turn of the script, whichever program asks; the last turn is played
//! for ever. A call that asks for a review's answer in a form is no turn of it and is approved.

mod anthropic;
mod gemini;
mod openai;

pub use openai::RATE_LIMIT_RESET;

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use warp::Filter;
use warp::http::{HeaderMap, Response};

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub enum ModelTurn {
    Text(String),
    /// Writes a file, named from the root or from the working directory.
    WriteFile {
        path: String,
        text: String,
    },
    /// Runs a command in a shell.
    RunCommand(String),
    /// The interface refuses with this status, these headers and this message.
    HttpError(u16, Vec<(&'static str, String)>, &'static str),
    /// The answer stops in the middle, for this reason of the vendor's.
    TruncatedResponse(&'static str),
    /// Nothing is ever answered.
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

    pub fn run_command(command: &str) -> Self {
        ModelTurn::RunCommand(command.to_owned())
    }

    pub fn http_error(status: u16, message: &'static str) -> Self {
        ModelTurn::HttpError(status, Vec::new(), message)
    }
}

/// What the model was asked.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub path: String,
    /// The credential that came with it, in whichever header.
    pub key: String,
    pub body: Value,
}

impl ModelRequest {
    /// Whether a text stands anywhere in what was asked.
    pub fn contains(&self, text: &str) -> bool {
        self.body.to_string().contains(text)
    }
}

struct Stage {
    turns: Vec<ModelTurn>,
    played: usize,
    asked: Vec<ModelRequest>,
}

/// A running stand-in.
pub struct FakeModel {
    pub url: String,
    stage: Arc<Mutex<Stage>>,
    server: JoinHandle<()>,
}

/// How one turn is said in a vendor's words; `number` tells calls apart.
type Dialect = fn(turn: &ModelTurn, number: usize, asked: &Value) -> String;

impl FakeModel {
    pub async fn start(turns: impl IntoIterator<Item = ModelTurn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stage = Arc::new(Mutex::new(Stage {
            turns: turns.into_iter().collect(),
            played: 0,
            asked: Vec::new(),
        }));
        let shared = stage.clone();
        let routes = warp::path::full()
            .and(warp::header::headers_cloned())
            .and(warp::body::bytes())
            .then(
                move |path: warp::path::FullPath, headers, body: bytes::Bytes| {
                    let asked = ModelRequest {
                        path: path.as_str().to_owned(),
                        key: key(&headers),
                        body: serde_json::from_slice(&body).unwrap_or_default(),
                    };
                    answer(shared.clone(), asked)
                },
            );
        let server = tokio::spawn(warp::serve(routes).incoming(listener).run());
        Self { url, stage, server }
    }

    /// Gives it another script.
    pub fn set_turns(&self, turns: impl IntoIterator<Item = ModelTurn>) {
        let mut stage = self.stage.lock().unwrap();
        stage.turns = turns.into_iter().collect();
        stage.played = 0;
    }

    /// What it was asked, without what no turn was played for.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.stage.lock().unwrap().asked.clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn key(headers: &HeaderMap) -> String {
    let names = ["x-api-key", "authorization", "x-goog-api-key"];
    let found = names.iter().find_map(|name| headers.get(*name));
    found.map_or("", |value| value.to_str().unwrap()).to_owned()
}

async fn answer(stage: Arc<Mutex<Stage>>, asked: ModelRequest) -> Response<String> {
    let dialect: Dialect = match asked.path.as_str() {
        "/v1/messages" => anthropic::render_turn,
        // The cloud's own stream is not spoken here; its refusals are alike.
        path if path.starts_with("/model/") => anthropic::render_turn,
        path if path.ends_with("/responses") => openai::render_turn,
        path if path.ends_with(":streamGenerateContent") => gemini::render_turn,
        _ => return response(404, "application/json", "{}".to_owned()),
    };
    let body = asked.body.clone();
    let (turn, number) = {
        let mut stage = stage.lock().unwrap();
        stage.asked.push(asked);
        let number = stage.asked.len();
        if anthropic::wants_structured_output(&body) {
            (
                ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
                number,
            )
        } else {
            let at = stage.played.min(stage.turns.len() - 1);
            stage.played += 1;
            (stage.turns[at].clone(), number)
        }
    };
    match &turn {
        ModelTurn::HttpError(status, headers, _) => {
            let mut refusal = response(*status, "application/json", dialect(&turn, number, &body));
            for (name, value) in headers {
                refusal.headers_mut().insert(*name, value.parse().unwrap());
            }
            refusal
        }
        ModelTurn::Hang => std::future::pending().await,
        _ => response(200, "text/event-stream", dialect(&turn, number, &body)),
    }
}

fn response(status: u16, kind: &str, body: String) -> Response<String> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(body)
        .unwrap()
}

/// Named events, one after the other.
fn sse_events(events: &[Value]) -> String {
    let events = events.iter();
    events
        .map(|event| {
            let name = event["type"].as_str().unwrap();
            format!("event: {name}\ndata: {event}\n\n")
        })
        .collect()
}
