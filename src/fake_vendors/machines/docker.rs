//! The stand-in of a Docker engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Doing, Fate, MachineSnapshot, Unit, Yard, strings, words};
use crate::clock;
use crate::http::{Reply, Request};
use crate::state::lock;

/// The image that is there from the start.
const IMAGE: &str = "agent-implement-runner:local";

/// The stand-in engine. Clones are the same one.
#[derive(Clone)]
pub struct DockerEngine {
    yard: Arc<Yard>,
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

impl DockerEngine {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let images = Images {
            here: vec![IMAGE.to_owned()],
            registry: Vec::new(),
            foreign: Vec::new(),
        };
        Ok(Self {
            yard: Arc::new(Yard::open(dir, "docker")?),
            images: Arc::new(Mutex::new(images)),
        })
    }

    pub fn image(&self) -> &'static str {
        IMAGE
    }

    /// An image that is not here yet and can be fetched.
    pub fn publish(&self, image: &str) {
        lock(&self.images).registry.push(image.to_owned());
    }

    /// An image that is here and was not made for runs.
    pub fn add_foreign(&self, image: &str) {
        let mut images = lock(&self.images);
        images.here.push(image.to_owned());
        images.foreign.push(image.to_owned());
    }

    /// Every container, whoever made it.
    pub fn all(&self) -> Vec<MachineSnapshot> {
        self.yard.snapshots()
    }

    /// The names of all that ever were here, oldest first.
    pub fn made(&self) -> Vec<String> {
        self.yard.made()
    }

    /// A container of somebody else.
    pub fn plant(&self, id: &str, name: &str, labels: &[(&str, &str)]) {
        self.yard.plant(id, name, labels);
    }

    /// Ends a container's program from outside.
    pub fn kill(&self, id: &str) {
        if let Some(unit) = self.yard.unit(id) {
            self.yard.end(&unit, Fate::Killed);
        }
    }

    /// Ends a container's program for using too much memory.
    pub fn starve(&self, id: &str) {
        if let Some(unit) = self.yard.unit(id) {
            self.yard.end(&unit, Fate::OutOfMemory);
        }
    }

    /// Takes a container away without a trace.
    pub fn lose(&self, id: &str) {
        if let Some(unit) = self.yard.unit(id) {
            self.yard.remove(&unit);
        }
    }

    pub fn log(&self, id: &str) -> String {
        let unit = self.yard.unit(id);
        unit.map(|unit| self.yard.log(&unit)).unwrap_or_default()
    }

    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.yard.settle()
    }

    pub(crate) fn kill_all(&self) {
        self.yard.kill_all();
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let segments = request.segments();
        let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if segments
            .first()
            .is_some_and(|first| first.starts_with("v1."))
        {
            segments.remove(0);
        }
        match (request.method.as_str(), &segments[..]) {
            ("GET", ["_ping"]) => Reply::text(200, "OK").header("api-version", "1.44"),
            ("GET", ["containers", "json"]) => self.list(request),
            ("POST", ["containers", "create"]) => self.create(request),
            ("POST", ["images", "create"]) => self.fetch(request),
            ("GET", ["images", name @ .., "json"]) => self.image_json(&name.join("/")),
            (method, ["containers", id, rest @ ..]) => match self.yard.unit(id) {
                Some(unit) => self.one(method, rest, &unit, request),
                None => refused(404, &format!("No such container: {id}")),
            },
            _ => refused(404, "page not found"),
        }
    }

    fn one(&self, method: &str, rest: &[&str], unit: &Unit, request: &Request) -> Reply {
        let doing = self.yard.doing(unit);
        let at_work = matches!(doing, Doing::Running | Doing::Starting);
        match (method, rest) {
            ("GET", ["json"]) => Reply::json(200, &self.inspected(unit)),
            ("GET", ["logs"]) => Reply::new(
                200,
                "application/vnd.docker.multiplexed-stream",
                framed(&self.yard.log(unit)),
            ),
            ("POST", ["start"]) if doing != Doing::Created => Reply::empty(304),
            ("POST", ["start"]) => match self.yard.start(unit) {
                Ok(()) => Reply::empty(204),
                Err(error) => refused(500, &format!("sandbox: {error:#}")),
            },
            ("POST", ["stop"]) if !at_work => Reply::empty(304),
            ("POST", ["stop"]) => {
                self.yard.stop(unit);
                Reply::empty(204)
            }
            ("DELETE", []) if at_work && request.param("force").as_deref() != Some("true") => {
                refused(409, "cannot remove a running container")
            }
            ("DELETE", []) => {
                self.yard.remove(unit);
                Reply::empty(204)
            }
            _ => refused(404, "page not found"),
        }
    }

    fn create(&self, request: &Request) -> Reply {
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
        let name = request.param("name").unwrap_or_default();
        if let Some(other) = self.yard.unit(&name).filter(|unit| unit.name == name) {
            return refused(
                409,
                &format!(
                    "Conflict. The container name \"/{name}\" is already in use by container \"{}\".",
                    other.id
                ),
            );
        }
        let env = words(&body["Env"]).into_iter();
        let env: BTreeMap<String, String> = env
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            })
            .collect();
        let unit = Unit {
            id: format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..)),
            name,
            image,
            region: String::new(),
            env,
            command: words(&body["Cmd"]),
            stamps: strings(&body["Labels"]),
            config: body,
            created: clock::now_ms(),
            started: None,
            stopping: None,
            fate: None,
            removed: false,
        };
        self.yard.put(unit.clone());
        Reply::json(201, &json!({"Id": unit.id, "Warnings": []}))
    }

    /// What cannot be fetched is refused as the engine does it: sometimes inside of a success.
    fn fetch(&self, request: &Request) -> Reply {
        let part = |name| request.param(name).unwrap_or_default();
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
        Reply::new(200, "application/json", lines)
    }

    fn image_json(&self, name: &str) -> Reply {
        let images = lock(&self.images);
        if !images.here.iter().any(|image| image == name) {
            return refused(404, &format!("No such image: {name}"));
        }
        let labels = match images.foreign.iter().any(|image| image == name) {
            true => json!({}),
            false => json!({"agent_implement_runner": "1"}),
        };
        let body = json!({"Id": "sha256:0", "RepoTags": [name], "Config": {"Labels": labels}});
        Reply::json(200, &body)
    }

    fn list(&self, request: &Request) -> Reply {
        let filters = request.param("filters").unwrap_or_default();
        let filters: Value = serde_json::from_str(&filters).unwrap_or_default();
        let labels = words(&filters["label"]);
        let all = request.param("all").as_deref() == Some("true");
        let fits = |unit: &&Unit| {
            labels.iter().all(|label| match label.split_once('=') {
                Some((name, value)) => unit.stamps.get(name).is_some_and(|has| has == value),
                None => unit.stamps.contains_key(label),
            })
        };
        let units = self.yard.units();
        let shown = units
            .iter()
            .filter(fits)
            .filter(|unit| all || self.yard.doing(unit) == Doing::Running)
            .map(|unit| {
                json!({
                    "Id": unit.id,
                    "Names": [format!("/{}", unit.name)],
                    "Image": unit.image,
                    "Created": unit.created / 1_000,
                    "State": state(self.yard.doing(unit)),
                    "Labels": unit.stamps,
                })
            });
        Reply::json(200, &shown.collect())
    }

    fn inspected(&self, unit: &Unit) -> Value {
        let doing = self.yard.doing(unit);
        let (code, out_of_memory) = match doing {
            Doing::Ended {
                code,
                out_of_memory,
            } => (code, out_of_memory),
            _ => (0, false),
        };
        json!({
            "Id": unit.id,
            "Name": format!("/{}", unit.name),
            "Created": clock::iso(unit.created),
            "State": {
                "Status": state(doing),
                "Running": state(doing) == "running",
                "ExitCode": code,
                "OOMKilled": out_of_memory,
            },
            "Config": {"Image": unit.image, "Labels": unit.stamps},
            "HostConfig": unit.config["HostConfig"],
        })
    }
}

fn state(doing: Doing) -> &'static str {
    match doing {
        Doing::Created => "created",
        Doing::Starting | Doing::Running => "running",
        Doing::Ended { .. } => "exited",
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

fn refused(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "message": message }))
}
