//! Fake Docker Engine API.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::image_build::{self, BuiltImage};
use super::{FakeMachine, FakeMachineState, MachineHost, string_list, string_map};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::lock;

/// Image that exists from the start.
const IMAGE: &str = "agent-implement-runner:local";

/// Fake Docker engine. Clones share their state.
#[derive(Clone)]
pub struct FakeDockerEngine {
    host: Arc<MachineHost>,
    images: Arc<Mutex<Images>>,
}

/// Public image that a build can be based on.
const PUBLIC_IMAGE: &str = "node:22-bookworm-slim";

/// Local images with their labels, and images that a pull can fetch.
#[derive(Default)]
struct Images {
    local: BTreeMap<String, BTreeMap<String, String>>,
    registry: Vec<String>,
    built: Vec<BuiltImage>,
    /// Output of the next build that fails, by the instruction that fails.
    failing_instruction: Option<(String, String)>,
}

/// Labels of a runner image of this version.
fn runner_labels() -> BTreeMap<String, String> {
    [
        ("agent_implement_runner", "1"),
        ("agent_implement_version", env!("CARGO_PKG_VERSION")),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

impl FakeDockerEngine {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let images = Images {
            local: [(IMAGE.to_owned(), runner_labels())].into(),
            registry: vec![PUBLIC_IMAGE.to_owned()],
            ..Images::default()
        };
        Ok(Self {
            host: Arc::new(MachineHost::open(dir, "docker")?),
            images: Arc::new(Mutex::new(images)),
        })
    }

    /// Returns the runner image that exists from the start.
    pub fn image(&self) -> &'static str {
        IMAGE
    }

    /// Adds an image that only exists in the registry and can be pulled.
    pub fn add_registry_image(&self, image: &str) {
        lock(&self.images).registry.push(image.to_owned());
    }

    /// Adds a local image without the label of a runner image.
    pub fn add_unrelated_image(&self, image: &str) {
        self.add_image(image, &[]);
    }

    /// Adds a local image with labels.
    pub fn add_image(&self, image: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        lock(&self.images)
            .local
            .insert(image.to_owned(), labels.collect());
    }

    /// Removes a local image.
    pub fn remove_image(&self, image: &str) {
        lock(&self.images).local.remove(image);
    }

    /// Returns the images that were built.
    pub fn built_images(&self) -> Vec<BuiltImage> {
        lock(&self.images).built.clone()
    }

    /// Makes the next build fail at an instruction, with this output.
    pub fn fail_build_at(&self, instruction: &str, output: &str) {
        lock(&self.images).failing_instruction = Some((instruction.to_owned(), output.to_owned()));
    }

    /// Returns the containers.
    pub fn host(&self) -> &MachineHost {
        &self.host
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
            ("POST", ["images", "create"]) => self.pull(request),
            ("POST", ["build"]) => self.build(request),
            ("GET", ["images", name @ .., "json"]) => self.image_json(&name.join("/")),
            (method, ["containers", id, rest @ ..]) => match self.host.find(id) {
                Some(container) => self.container_request(method, rest, &container, request),
                None => error_response(404, &format!("No such container: {id}")),
            },
            _ => error_response(404, "page not found"),
        }
    }

    fn container_request(
        &self,
        method: &str,
        rest: &[&str],
        container: &FakeMachine,
        request: &HttpRequest,
    ) -> HttpResponse {
        let state = self.host.state(container);
        let is_active = matches!(
            state,
            FakeMachineState::Running | FakeMachineState::Starting
        );
        match (method, rest) {
            ("GET", ["json"]) => HttpResponse::json(200, &self.inspect_json(container)),
            ("GET", ["logs"]) => HttpResponse::new(
                200,
                "application/vnd.docker.multiplexed-stream",
                encode_frames(&self.host.log(&container.id)),
            ),
            ("POST", ["start"]) if state != FakeMachineState::Created => HttpResponse::empty(304),
            ("POST", ["start"]) => match self.host.start(container) {
                Ok(()) => HttpResponse::empty(204),
                Err(error) => error_response(500, &format!("fake vendor: {error:#}")),
            },
            ("POST", ["stop"]) if !is_active => HttpResponse::empty(304),
            ("POST", ["stop"]) => {
                self.host.stop(container);
                HttpResponse::empty(204)
            }
            ("DELETE", [])
                if is_active && request.query_param("force").as_deref() != Some("true") =>
            {
                error_response(409, "cannot remove a running container")
            }
            ("DELETE", []) => {
                self.host.remove(&container.id);
                HttpResponse::empty(204)
            }
            _ => error_response(404, "page not found"),
        }
    }

    fn create(&self, request: &HttpRequest) -> HttpResponse {
        let Some(body) = request.json() else {
            return error_response(400, "invalid JSON");
        };
        let image = body["Image"].as_str().unwrap_or_default().to_owned();
        let has_tag = image
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains(':'));
        let full_name = if has_tag {
            image.clone()
        } else {
            format!("{image}:latest")
        };
        if !lock(&self.images).local.contains_key(&full_name) {
            return error_response(404, &format!("No such image: {image}"));
        }
        let name = request.query_param("name").unwrap_or_default();
        if let Some(other) = self
            .host
            .find(&name)
            .filter(|container| container.name == name)
        {
            return error_response(
                409,
                &format!(
                    "Conflict. The container name \"/{name}\" is already in use by container \"{}\".",
                    other.id
                ),
            );
        }
        let mounts = match Mount::read_all(&body["HostConfig"]["Mounts"]) {
            Ok(mounts) => mounts,
            Err(message) => return error_response(400, &message),
        };
        let env = string_list(&body["Env"]).into_iter();
        let env: BTreeMap<String, String> = env
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                let value = mounts.iter().fold(value.to_owned(), Mount::resolve_in);
                Some((name.to_owned(), value))
            })
            .collect();
        let container = FakeMachine {
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
        self.host.add(container.clone());
        HttpResponse::json(201, &json!({"Id": container.id, "Warnings": []}))
    }

    /// Pulls an image. Like the real engine, it reports an unknown image inside a 200 response.
    fn pull(&self, request: &HttpRequest) -> HttpResponse {
        let param = |name| request.query_param(name).unwrap_or_default();
        let image = format!("{}:{}", param("fromImage"), param("tag"));
        let mut images = lock(&self.images);
        let mut lines = vec![json!({"status": format!("Pulling from {image}")})];
        if images.registry.contains(&image) {
            images.local.insert(image, runner_labels());
            lines.push(json!({"status": "Download complete"}));
        } else {
            let error = format!("pull access denied for {image}, repository does not exist");
            lines.push(json!({"errorDetail": {"message": error}, "error": error}));
        }
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        HttpResponse::new(200, "application/json", lines)
    }

    /// Builds an image. Like the real engine, it reports a failed step inside a 200 response.
    fn build(&self, request: &HttpRequest) -> HttpResponse {
        let mut images = lock(&self.images);
        let failing = images.failing_instruction.take();
        let is_known = |image: &str| {
            images.local.contains_key(image) || images.registry.iter().any(|known| known == image)
        };
        match image_build::build(request, is_known, failing.as_ref()) {
            Ok((output, built)) => {
                if let Some(built) = built {
                    images.local.insert(built.tag.clone(), built.labels.clone());
                    images.built.push(built);
                }
                HttpResponse::new(200, "application/json", output)
            }
            Err((status, message)) => error_response(status, &message),
        }
    }

    fn image_json(&self, name: &str) -> HttpResponse {
        let images = lock(&self.images);
        let Some(labels) = images.local.get(name) else {
            return error_response(404, &format!("No such image: {name}"));
        };
        let body = json!({"Id": "sha256:0", "RepoTags": [name], "Config": {"Labels": labels}});
        HttpResponse::json(200, &body)
    }

    fn list(&self, request: &HttpRequest) -> HttpResponse {
        let filters = request.query_param("filters").unwrap_or_default();
        let filters: Value = serde_json::from_slice(filters.as_bytes()).unwrap_or_default();
        let labels = string_list(&filters["label"]);
        let all = request.query_param("all").as_deref() == Some("true");
        let has_labels = |container: &&FakeMachine| {
            labels.iter().all(|label| match label.split_once('=') {
                Some((name, value)) => container.labels.get(name).is_some_and(|held| held == value),
                None => container.labels.contains_key(label),
            })
        };
        let containers = self.host.machines();
        let listed = containers
            .iter()
            .filter(has_labels)
            .filter(|container| all || self.host.state(container) == FakeMachineState::Running)
            .map(|container| {
                json!({
                    "Id": container.id,
                    "Names": [format!("/{}", container.name)],
                    "Image": container.image,
                    "Created": container.created_at / 1_000,
                    "State": status_name(self.host.state(container)),
                    "Labels": container.labels,
                })
            });
        HttpResponse::json(200, &listed.collect())
    }

    fn inspect_json(&self, container: &FakeMachine) -> Value {
        let state = self.host.state(container);
        let (code, out_of_memory) = match state {
            FakeMachineState::Exited {
                code,
                out_of_memory,
            } => (code, out_of_memory),
            _ => (0, false),
        };
        json!({
            "Id": container.id,
            "Name": format!("/{}", container.name),
            "Created": clock::iso(container.created_at),
            "State": {
                "Status": status_name(state),
                "Running": status_name(state) == "running",
                "ExitCode": code,
                "OOMKilled": out_of_memory,
            },
            "Config": {"Image": container.image, "Labels": container.labels},
            "HostConfig": container.create_request["HostConfig"],
        })
    }
}

/// Bind mount of a container.
struct Mount {
    source: String,
    target: String,
}

impl Mount {
    /// Reads the mounts of a new container. Like the real engine, refuses a source that does not exist.
    fn read_all(list: &Value) -> Result<Vec<Self>, String> {
        let mounts = list.as_array().into_iter().flatten().map(|mount| {
            let text = |name: &str| mount[name].as_str().unwrap_or_default().to_owned();
            let (source, target) = (text("Source"), text("Target"));
            match Path::new(&source).is_dir() {
                true => Ok(Self { source, target }),
                false => Err(format!(
                    "invalid mount config for type \"bind\": bind source path does not exist: {source}"
                )),
            }
        });
        mounts.collect()
    }

    /// Replaces the path of the mount in a variable: a container here is a process that sees the files of
    /// its host.
    fn resolve_in(value: String, mount: &Self) -> String {
        value.replace(&mount.target, &mount.source)
    }
}

fn status_name(state: FakeMachineState) -> &'static str {
    match state {
        FakeMachineState::Created => "created",
        FakeMachineState::Starting | FakeMachineState::Running => "running",
        FakeMachineState::Exited { .. } => "exited",
    }
}

/// Encodes a log as the engine does for containers without a terminal: one frame per line.
fn encode_frames(log: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in log.split_inclusive('\n') {
        let length = u32::try_from(line.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&[1, 0, 0, 0]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(line.as_bytes());
    }
    bytes
}

fn error_response(status: u16, message: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({ "message": message }))
}
