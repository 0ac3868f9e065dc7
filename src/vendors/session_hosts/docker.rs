//! Containers of a Docker engine, or of Podman's engine of the same speech.
//!
//! A container is shut in as far as a run can bear it: nothing of its root can be written, its work
//! and temporary files stand in memory, it is nobody's user and can become none, it has no
//! capability, and its memory, processes and processors are limited. It sees nothing of the machine's
//! files, and never the engine's socket: who reaches that is root. (facts 4.1)
//!
//! The run is the container's first process. One before it, an init or an image's own entrypoint, would be
//! of the same user and keep the environment that the run leaves behind, for the agent to read.

use serde::Deserialize;
use serde_json::{Value, json};

use super::MachineStartOutcome;
use super::log_tail::{REQUESTED_LINES, tail};
use crate::http::{
    Client, Method, Request, Response, VendorError, percent_encode, run_blocking_if_large,
};
use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachinePhase, MachineSpec,
    MachineState,
};
use domain::time::Timestamp;

/// Whom the program runs as: nobody that the machine knows.
const USER: &str = "1000:1000";

/// The one place that can be written besides the temporary folder.
const HOME: &str = "/home/agent";

/// Options of the two. The temporary one holds work trees and what is built in them, so programs in
/// it may run; both count against the container's memory.
const TMP_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=1777";
const HOME_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=0700,uid=1000,gid=1000";

/// Most processes and threads at a time.
const PROCESSES: u32 = 1_024;

/// How the container calls the machine that it runs on, as on other systems.
const HOST_NAME: &str = "host.docker.internal";

/// What stands for that machine's address. Podman knows it since 4.7; before, it refuses a container
/// for it and gives every one a name of its own for the machine, `host.containers.internal`.
const HOST_GATEWAY_IP: &str = "host-gateway";

/// Seconds a program may take to end when it is asked to.
const STOP_SECONDS: u32 = 10;

/// A client of one engine.
#[derive(Clone)]
pub struct Docker {
    client: Client,
    /// Asks for what may take minutes.
    patient: Client,
    base: String,
}

impl Docker {
    /// The engine that both clients reach at `base`; `patient` waits for an image to be fetched.
    pub fn new(client: Client, patient: Client, base: &str) -> Self {
        Self {
            client,
            patient,
            base: base.trim_end_matches('/').to_owned(),
        }
    }

    pub(super) async fn start(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let mut answer = self.create(spec, &body(spec)).await?;
        if answer.status() == 404 {
            if let Err(reason) = self.pull(&spec.image).await? {
                return Ok(MachineStartOutcome::Refused {
                    status: Some(404),
                    reason: format!(
                        "the image {} is not there and could not be fetched: {reason}",
                        spec.image
                    ),
                });
            }
            answer = self.create(spec, &body(spec)).await?;
        }
        if answer.status() != 201 && said(&answer).contains(HOST_GATEWAY_IP) {
            answer = self.create(spec, &without_host(body(spec))).await?;
        }
        if answer.status() == 409 {
            return self.adopt(spec, instance, &answer).await;
        }
        if answer.status() == 500 {
            return Err(answer.status_error(500, &said(&answer)));
        }
        if answer.status() != 201 {
            return Ok(refused(&answer));
        }
        let made: Created = answer.json()?;
        self.begin(&made.id, instance).await
    }

    async fn create(&self, spec: &MachineSpec, body: &Value) -> Result<Response, VendorError> {
        let url = self.url(&format!(
            "/containers/create?name={}",
            percent_encode(&spec.name)
        ));
        let request = Request::new("creating the container", Method::POST, url)
            .json(body)
            .accept_status(400)
            .accept_status(404)
            .accept_status(409)
            .accept_status(500);
        self.client.send(&request).await
    }

    /// A container of this name that is ours goes on, and is started when it was not yet.
    async fn adopt(
        &self,
        spec: &MachineSpec,
        instance: &str,
        answer: &Response,
    ) -> Result<MachineStartOutcome, VendorError> {
        let ours = self.list(instance).await?.into_iter();
        match { ours }.find(|machine| machine.name == spec.name) {
            Some(machine) => self.begin(&machine.id, instance).await,
            None => Ok(refused(answer)),
        }
    }

    async fn begin(&self, id: &str, instance: &str) -> Result<MachineStartOutcome, VendorError> {
        let url = self.url(&format!("/containers/{}/start", percent_encode(id)));
        let request = Request::new("starting the container", Method::POST, url)
            .accept_status(304)
            .accept_status(400)
            .accept_status(404);
        let answer = self.client.send(&request).await?;
        if matches!(answer.status(), 400 | 404) {
            return Ok(refused(&answer));
        }
        match self.inspect(id, instance).await? {
            Some(machine) => Ok(MachineStartOutcome::Started(Box::new(machine))),
            None => Err(answer.decode_error("the container is gone as soon as it was started")),
        }
    }

    /// Fetches an image. Whatever goes wrong with that is said inside of a success.
    async fn pull(&self, image: &str) -> Result<Result<(), String>, VendorError> {
        let (name, tag) = image_parts(image);
        let url = self.url(&format!(
            "/images/create?fromImage={}&tag={}",
            percent_encode(name),
            percent_encode(tag)
        ));
        let request = Request::new("fetching the image", Method::POST, url)
            .safe()
            .accept_status(400)
            .accept_status(403)
            .accept_status(404);
        let answer = self.patient.send(&request).await?;
        if answer.status() != 200 {
            return Ok(Err(said(&answer)));
        }
        let told = answer.text();
        let error = told
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|line| line["error"].as_str().map(str::to_owned));
        Ok(error.map_or(Ok(()), Err))
    }

    /// The labels of an image that is there; none when it is not.
    pub(super) async fn image_labels(&self, image: &str) -> Result<Option<EnvVarMap>, VendorError> {
        let name: Vec<_> = image.split('/').map(percent_encode).collect();
        let url = self.url(&format!("/images/{}/json", name.join("/")));
        let request = Request::get("looking at the image", url).accept_status(404);
        let answer = self.client.send(&request).await?;
        if answer.status() == 404 {
            return Ok(None);
        }
        let found: FoundImage = answer.json()?;
        let labels = found.config.and_then(|config| config.labels);
        Ok(Some(labels.unwrap_or_default()))
    }

    pub(super) async fn list(&self, instance: &str) -> Result<Vec<Machine>, VendorError> {
        let filters = json!({"label": [MachineLabels::instance_selector(instance)]}).to_string();
        let url = self.url(&format!(
            "/containers/json?all=true&filters={}",
            percent_encode(&filters)
        ));
        let answer = self
            .client
            .send(&Request::get("listing the containers", url))
            .await?;
        let listed: Vec<Listed> = answer.json()?;
        Ok(listed
            .into_iter()
            .filter_map(|container| container.ours(instance))
            .collect())
    }

    pub(super) async fn inspect(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<Machine>, VendorError> {
        let url = self.url(&format!("/containers/{}/json", percent_encode(id)));
        let request = Request::get("looking at the container", url).accept_status(404);
        let answer = self.client.send(&request).await?;
        if answer.status() == 404 {
            return Ok(None);
        }
        Ok(answer.json::<Inspected>()?.ours(instance))
    }

    pub(super) async fn stop(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!(
            "/containers/{}/stop?t={STOP_SECONDS}",
            percent_encode(id)
        ));
        let request = Request::new("stopping the container", Method::POST, url)
            .safe()
            .accept_status(304)
            .accept_status(404);
        self.client.send(&request).await.map(drop)
    }

    pub(super) async fn destroy(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!(
            "/containers/{}?force=true&v=true",
            percent_encode(id)
        ));
        let request = Request::new("removing the container", Method::DELETE, url)
            .safe()
            .accept_status(404);
        let answer = self.client.send(&request).await;
        match answer {
            // Somebody is at it already.
            Err(error) if error.status() == Some(409) => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub(super) async fn log_tail(&self, id: &str) -> Result<Option<String>, VendorError> {
        let url = self.url(&format!(
            "/containers/{}/logs?stdout=true&stderr=true&tail={REQUESTED_LINES}",
            percent_encode(id)
        ));
        let request = Request::get("reading the container's log", url).accept_status(404);
        let answer = self.client.send(&request).await?;
        if answer.status() == 404 {
            return Ok(None);
        }
        let bytes = answer.body().len();
        let log = run_blocking_if_large(bytes, move || {
            tail(&answer.redacted(&unframed(answer.body())))
        })
        .await;
        Ok((!log.is_empty()).then_some(log))
    }

    fn url(&self, rest: &str) -> String {
        format!("{}{rest}", self.base)
    }
}

fn body(spec: &MachineSpec) -> Value {
    let environment: Vec<String> = spec
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        // The user that nobody knows has a home all the same.
        .chain([format!("HOME={HOME}")])
        .collect();
    let memory = i64::from(spec.memory_mb) << 20;
    json!({
        "Image": spec.image,
        "Entrypoint": [],
        "Cmd": super::SESSION_COMMAND,
        "Env": environment,
        "User": USER,
        "WorkingDir": HOME,
        "Labels": spec.labels.to_map(),
        "HostConfig": {
            "ReadonlyRootfs": true,
            "Tmpfs": {"/tmp": TMP_OPTIONS, HOME: HOME_OPTIONS},
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": false,
            "PidsLimit": PROCESSES,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": i64::from(spec.cpus) * 1_000_000_000,
            "ExtraHosts": [format!("{HOST_NAME}:{HOST_GATEWAY_IP}")],
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": false,
        },
    })
}

/// The same container, for an engine that cannot name the machine it runs on.
fn without_host(mut body: Value) -> Value {
    body["HostConfig"]["ExtraHosts"] = json!([]);
    body
}

fn refused(answer: &Response) -> MachineStartOutcome {
    let error = answer.status_error(answer.status(), &said(answer));
    MachineStartOutcome::Refused {
        status: Some(answer.status()),
        reason: error.to_string(),
    }
}

fn said(answer: &Response) -> String {
    let body: Value = serde_json::from_str(&answer.text()).unwrap_or_default();
    body["message"].as_str().unwrap_or_default().to_owned()
}

/// The name of an image, and its tag. A colon before the last slash belongs to the registry's port.
fn image_parts(image: &str) -> (&str, &str) {
    let last = image.rfind('/').map_or(0, |slash| slash + 1);
    if image.contains('@') {
        return (image, "");
    }
    match image[last..].find(':') {
        Some(colon) => (&image[..last + colon], &image[last + colon + 1..]),
        None => (image, "latest"),
    }
}

/// The text of a log in frames: eight bytes (stream, three zeroes, length) before each piece. A log
/// without frames, of a container with a terminal, is taken as it is.
fn unframed(log: &[u8]) -> String {
    let mut text = Vec::with_capacity(log.len());
    let mut rest = log;
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let [stream, 0, 0, 0, length @ ..] = *head else {
            break;
        };
        if stream > 2 {
            break;
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (piece, after) = tail.split_at(length.min(tail.len()));
        text.extend_from_slice(piece);
        rest = after;
    }
    if rest.len() == log.len() {
        text.extend_from_slice(rest);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// For the fuzzer: what is kept of a log as the engine sends it.
pub fn container_log_tail(log: &[u8]) -> String {
    tail(&unframed(log))
}

#[derive(Deserialize)]
struct FoundImage {
    #[serde(rename = "Config")]
    config: Option<ImageConfig>,
}

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(rename = "Labels")]
    labels: Option<EnvVarMap>,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "Id")]
    id: String,
}

/// A container in a list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    state: String,
    #[serde(default)]
    created: u64,
    #[serde(default)]
    labels: Option<EnvVarMap>,
}

impl Listed {
    fn ours(self, instance: &str) -> Option<Machine> {
        let stamps = MachineLabels::read(self.labels.as_ref()?, instance)?;
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        Some(Machine {
            host: HostKind::Local,
            name: name.trim_start_matches('/').to_owned(),
            state: state(&self.state),
            exit: None,
            region: None,
            log_url: None,
            created_at: Timestamp::from_millis(self.created.saturating_mul(1_000)),
            id: self.id,
            labels: stamps,
        })
    }
}

/// A container looked at.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    created: String,
    state: InspectedState,
    config: InspectedConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedState {
    #[serde(default)]
    status: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedConfig {
    #[serde(default)]
    labels: Option<EnvVarMap>,
}

impl Inspected {
    fn ours(self, instance: &str) -> Option<Machine> {
        let stamps = MachineLabels::read(self.config.labels.as_ref()?, instance)?;
        let state = state(&self.state.status);
        let over = state.phase() == MachinePhase::Stopped;
        let exit = over.then_some(MachineExit {
            code: Some(self.state.exit_code),
            out_of_memory: self.state.oom_killed,
        });
        Some(Machine {
            host: HostKind::Local,
            name: self.name.trim_start_matches('/').to_owned(),
            state,
            exit,
            region: None,
            log_url: None,
            created_at: Timestamp::parse(&self.created).unwrap_or_default(),
            id: self.id,
            labels: stamps,
        })
    }
}

/// The engine's words in those that sessions have everywhere.
fn state(word: &str) -> MachineState {
    MachineState::new(match word {
        "running" | "paused" | "restarting" => "started",
        "exited" | "dead" => "stopped",
        "removing" => "destroying",
        other => other,
    })
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
