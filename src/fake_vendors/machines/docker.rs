//! The stand-in of a Docker engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{
    FakeMachine, FakeMachineState, MachineHost, MachineSnapshot, StateOverride, string_list,
    string_map,
};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::lock;

/// The image that is there from the start.
const IMAGE: &str = "agent-implement-runner:local";

/// The stand-in engine. Clones are the same one.
#[derive(Clone)]
pub struct FakeDockerEngine {
    yard: Arc<MachineHost>,
    images: Arc<Mutex<Images>>,
}

/// What is at hand, and what a registry would give.
#[derive(Default)]
struct Images {
    here: Vec<String>,
    registry: Vec<String>,
    /// Those of `here` that were not made for runs.
    foreign: Vec<String>,
}

impl FakeDockerEngine {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let images = Images {
            here: vec![IMAGE.to_owned()],
            registry: Vec::new(),
            foreign: Vec::new(),
        };
        Ok(Self {
            yard: Arc::new(MachineHost::open(dir, "docker")?),
            images: Arc::new(Mutex::new(images)),
        })
    }

    pub fn image(&self) -> &'static str {
        IMAGE
    }

    /// An image that is not here yet and can be fetched.
    pub fn add_registry_image(&self, image: &str) {
        lock(&self.images).registry.push(image.to_owned());
    }

    /// An image that is here and was not made for runs.
    pub fn add_unrelated_image(&self, image: &str) {
        let mut images = lock(&self.images);
        images.here.push(image.to_owned());
        images.foreign.push(image.to_owned());
    }

    /// Every container, whoever made it.
    pub fn containers(&self) -> Vec<MachineSnapshot> {
        self.yard.snapshots()
    }

    /// The names of all that ever were here, oldest first.
    pub fn created_names(&self) -> Vec<String> {
        self.yard.created_names()
    }

    /// A container of somebody else.
    pub fn add_foreign_container(&self, id: &str, name: &str, labels: &[(&str, &str)]) {
        self.yard.add_foreign_machine(id, name, labels);
    }

    /// Ends a container's program from outside.
    pub fn kill(&self, id: &str) {
        if let Some(unit) = self.yard.find(id) {
            self.yard.kill(&unit, StateOverride::Killed);
        }
    }

    /// Ends a container's program for using too much memory.
    pub fn kill_out_of_memory(&self, id: &str) {
        if let Some(unit) = self.yard.find(id) {
            self.yard.kill(&unit, StateOverride::OutOfMemory);
        }
    }

    /// Takes a container away without a trace.
    pub fn remove(&self, id: &str) {
        if let Some(unit) = self.yard.find(id) {
            self.yard.remove(&unit);
        }
    }

    pub fn log(&self, id: &str) -> String {
        let unit = self.yard.find(id);
        unit.map(|unit| self.yard.log(&unit)).unwrap_or_default()
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.yard.flush()
    }

    pub(crate) fn kill_all(&self) {
        self.yard.kill_all();
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if segments
            .first()
            .is_some_and(|first| first.starts_with("v1."))
        {
            segments.remove(0);
        }
        match (request.method.as_str(), &segments[..]) {
            ("GET", ["_ping"]) => HttpResponse::text(200, "OK").header("api-version", "1.44"),
            ("GET", ["containers", "json"]) => self.list(request),
            ("POST", ["containers", "create"]) => self.create(request),
            ("POST", ["images", "create"]) => self.fetch(request),
            ("GET", ["images", name @ .., "json"]) => self.image_json(&name.join("/")),
            (method, ["containers", id, rest @ ..]) => match self.yard.find(id) {
                Some(unit) => self.one(method, rest, &unit, request),
                None => refused(404, &format!("No such container: {id}")),
            },
            _ => refused(404, "page not found"),
        }
    }

    fn one(
        &self,
        method: &str,
        rest: &[&str],
        unit: &FakeMachine,
        request: &HttpRequest,
    ) -> HttpResponse {
        let doing = self.yard.state(unit);
        let at_work = matches!(
            doing,
            FakeMachineState::Running | FakeMachineState::Starting
        );
        match (method, rest) {
            ("GET", ["json"]) => HttpResponse::json(200, &self.inspected(unit)),
            ("GET", ["logs"]) => HttpResponse::new(
                200,
                "application/vnd.docker.multiplexed-stream",
                framed(&self.yard.log(unit)),
            ),
            ("POST", ["start"]) if doing != FakeMachineState::Created => HttpResponse::empty(304),
            ("POST", ["start"]) => match self.yard.start(unit) {
                Ok(()) => HttpResponse::empty(204),
                Err(error) => refused(500, &format!("sandbox: {error:#}")),
            },
            ("POST", ["stop"]) if !at_work => HttpResponse::empty(304),
            ("POST", ["stop"]) => {
                self.yard.stop(unit);
                HttpResponse::empty(204)
            }
            ("DELETE", [])
                if at_work && request.query_param("force").as_deref() != Some("true") =>
            {
                refused(409, "cannot remove a running container")
            }
            ("DELETE", []) => {
                self.yard.remove(unit);
                HttpResponse::empty(204)
            }
            _ => refused(404, "page not found"),
        }
    }

    fn create(&self, request: &HttpRequest) -> HttpResponse {
        let Some(body) = request.json() else {
            return refused(400, "invalid JSON");
        };
        let image = body["Image"].as_str().unwrap_or_default().to_owned();
        let tag = image
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains(':'));
        let full = if tag {
            image.clone()
        } else {
            format!("{image}:latest")
        };
        if !lock(&self.images).here.contains(&full) {
            return refused(404, &format!("No such image: {image}"));
        }
        let name = request.query_param("name").unwrap_or_default();
        if let Some(other) = self.yard.find(&name).filter(|unit| unit.name == name) {
            return refused(
                409,
                &format!(
                    "Conflict. The container name \"/{name}\" is already in use by container \"{}\".",
                    other.id
                ),
            );
        }
        let env = string_list(&body["Env"]).into_iter();
        let env: BTreeMap<String, String> = env
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            })
            .collect();
        let unit = FakeMachine {
            id: format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..)),
            name,
            image,
            region: String::new(),
            env,
            command: string_list(&body["Cmd"]),
            labels: string_map(&body["Labels"]),
            create_request: body,
            created_at: clock::now_ms(),
            started_at: None,
            stop_requested_at: None,
            state_override: None,
            removed: false,
        };
        self.yard.add(unit.clone());
        HttpResponse::json(201, &json!({"Id": unit.id, "Warnings": []}))
    }

    /// What cannot be fetched is refused as the engine does it: sometimes inside of a success.
    fn fetch(&self, request: &HttpRequest) -> HttpResponse {
        let part = |name| request.query_param(name).unwrap_or_default();
        let image = format!("{}:{}", part("fromImage"), part("tag"));
        let mut images = lock(&self.images);
        let mut lines = vec![json!({"status": format!("Pulling from {image}")})];
        if images.registry.contains(&image) {
            images.here.push(image);
            lines.push(json!({"status": "Download complete"}));
        } else {
            let error = format!("pull access denied for {image}, repository does not exist");
            lines.push(json!({"errorDetail": {"message": error}, "error": error}));
        }
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        HttpResponse::new(200, "application/json", lines)
    }

    fn image_json(&self, name: &str) -> HttpResponse {
        let images = lock(&self.images);
        if !images.here.iter().any(|image| image == name) {
            return refused(404, &format!("No such image: {name}"));
        }
        let labels = match images.foreign.iter().any(|image| image == name) {
            true => json!({}),
            false => json!({"agent_implement_runner": "1"}),
        };
        let body = json!({"Id": "sha256:0", "RepoTags": [name], "Config": {"Labels": labels}});
        HttpResponse::json(200, &body)
    }

    fn list(&self, request: &HttpRequest) -> HttpResponse {
        let filters = request.query_param("filters").unwrap_or_default();
        let filters: Value = serde_json::from_str(&filters).unwrap_or_default();
        let labels = string_list(&filters["label"]);
        let all = request.query_param("all").as_deref() == Some("true");
        let fits = |unit: &&FakeMachine| {
            labels.iter().all(|label| match label.split_once('=') {
                Some((name, value)) => unit.labels.get(name).is_some_and(|has| has == value),
                None => unit.labels.contains_key(label),
            })
        };
        let units = self.yard.machines();
        let shown = units
            .iter()
            .filter(fits)
            .filter(|unit| all || self.yard.state(unit) == FakeMachineState::Running)
            .map(|unit| {
                json!({
                    "Id": unit.id,
                    "Names": [format!("/{}", unit.name)],
                    "Image": unit.image,
                    "Created": unit.created_at / 1_000,
                    "State": state(self.yard.state(unit)),
                    "Labels": unit.labels,
                })
            });
        HttpResponse::json(200, &shown.collect())
    }

    fn inspected(&self, unit: &FakeMachine) -> Value {
        let doing = self.yard.state(unit);
        let (code, out_of_memory) = match doing {
            FakeMachineState::Exited {
                code,
                out_of_memory,
            } => (code, out_of_memory),
            _ => (0, false),
        };
        json!({
            "Id": unit.id,
            "Name": format!("/{}", unit.name),
            "Created": clock::iso(unit.created_at),
            "State": {
                "Status": state(doing),
                "Running": state(doing) == "running",
                "ExitCode": code,
                "OOMKilled": out_of_memory,
            },
            "Config": {"Image": unit.image, "Labels": unit.labels},
            "HostConfig": unit.create_request["HostConfig"],
        })
    }
}

fn state(doing: FakeMachineState) -> &'static str {
    match doing {
        FakeMachineState::Created => "created",
        FakeMachineState::Starting | FakeMachineState::Running => "running",
        FakeMachineState::Exited { .. } => "exited",
    }
}

/// A log as the engine sends it of a container without a terminal: in frames, a line each.
fn framed(log: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in log.split_inclusive('\n') {
        let length = u32::try_from(line.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&[1, 0, 0, 0]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(line.as_bytes());
    }
    bytes
}

fn refused(status: u16, message: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({ "message": message }))
}
