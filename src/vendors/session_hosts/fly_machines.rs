//! Fly Machines: one virtual machine per session.
//!
//! The host never restarts a machine (`restart: no`) and never removes it (`auto_destroy: false`), so
//! that the exit of its program can be read. A machine's name is derived from the dispatch id, so that
//! the host rejects a second machine of the same dispatch.
//!
//! Rightly ours: Fly publishes no client for Rust, and these are six requests.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::MachineStartOutcome;
use crate::http::{Availability, Client, Method, Request, Response, VendorError, percent_encode};
use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachineSpec, MachineState,
};
use domain::machine_size::MachineSize;
use domain::sanitize::log_tail;
use domain::secret::Secret;
use domain::time::Timestamp;

/// API addresses of the public service, whose logs and web pages have other addresses.
const PUBLIC_APIS: [&str; 2] = ["https://api.machines.dev", "http://_api.internal:4280"];
/// Address of the log API of the public service.
const PUBLIC_LOGS: &str = "https://api.fly.io";
/// Address of the web pages of the public service.
const PUBLIC_WEB: &str = "https://fly.io";

/// Pause after a 429 without `Retry-After`. The host's limits are per second.
const LIMIT_PAUSE: Duration = Duration::from_secs(2);

/// Time between SIGTERM and SIGKILL when a machine is stopped.
const STOP_TIMEOUT: &str = "10s";

/// Phrases in the host's error message that mean lack of capacity, with any status (observed: 409, 412
/// and 422).
const NO_CAPACITY_PHRASES: [&str; 4] = [
    "insufficient",
    "could not reserve",
    "no capacity",
    "at capacity",
];

/// Client of one application's machines.
#[derive(Clone)]
pub struct FlyMachines {
    client: Client,
    api: String,
    app: String,
    region: String,
    token: Secret,
}

impl FlyMachines {
    /// Creates a client of the machines of `app`. New machines are created in `region`.
    pub fn new(client: Client, api: &str, app: &str, region: &str, token: Secret) -> Self {
        Self {
            client,
            api: api.trim_end_matches('/').to_owned(),
            app: app.to_owned(),
            region: region.to_owned(),
            token,
        }
    }

    pub(super) fn availability(&self) -> Availability {
        self.client.availability()
    }

    pub(super) async fn start(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let requested = MachineSize {
            cpus: spec.cpus,
            memory_mb: spec.memory_mb,
        };
        let size = match requested.smallest_available() {
            Ok(size) => size,
            Err(too_large) => {
                return Ok(MachineStartOutcome::Refused {
                    status: None,
                    reason: too_large.to_string(),
                });
            }
        };
        let request = self
            .request(Request::new(
                "creating the machine",
                Method::POST,
                self.url(""),
            ))
            .json(&json!({
                "name": spec.name,
                "region": self.region,
                "config": config(spec, size),
            }))
            .accept_status(409)
            .accept_status(412)
            .accept_status(422)
            .accept_status(503);
        let response = self.client.send(&request).await?;
        let status = response.status();
        if (200..300).contains(&status) {
            let created: WireMachine = response.json()?;
            // The response to a creation may lack the metadata.
            let machine = self.machine(created, spec.labels.clone());
            return Ok(MachineStartOutcome::Started(Box::new(machine)));
        }
        let message = error_message(&response);
        let lower = message.to_lowercase();
        if NO_CAPACITY_PHRASES
            .iter()
            .any(|phrase| lower.contains(phrase))
        {
            return Ok(MachineStartOutcome::NoCapacity(message));
        }
        if matches!(status, 409 | 422) {
            let own = self.list(instance).await?.into_iter();
            if let Some(machine) = { own }.find(|machine| machine.name == spec.name) {
                return Ok(MachineStartOutcome::Started(Box::new(machine)));
            }
        }
        match response.status_error(status, &message) {
            transient if !transient.is_permanent() => Err(transient),
            permanent => Ok(MachineStartOutcome::Refused {
                status: Some(status),
                reason: permanent.to_string(),
            }),
        }
    }

    pub(super) async fn list(&self, instance: &str) -> Result<Vec<Machine>, VendorError> {
        let request = self.request(Request::get("listing the machines", self.url("")));
        let machines: Vec<WireMachine> = self.client.send(&request).await?.json()?;
        Ok(machines
            .into_iter()
            .filter_map(|machine| self.own_machine(machine, instance))
            .collect())
    }

    pub(super) async fn inspect(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<Machine>, VendorError> {
        let url = self.url(&format!("/{}", percent_encode(id)));
        let request = self
            .request(Request::get("inspecting the machine", url))
            .accept_status(404);
        let response = self.client.send(&request).await?;
        if response.status() == 404 {
            return Ok(None);
        }
        Ok(self.own_machine(response.json()?, instance))
    }

    pub(super) async fn stop(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!("/{}/stop", percent_encode(id)));
        let request = Request::new("stopping the machine", Method::POST, url).safe();
        let body = json!({"signal": "SIGTERM", "timeout": STOP_TIMEOUT});
        self.send_change(request.json(&body)).await
    }

    pub(super) async fn destroy(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!("/{}?force=true", percent_encode(id)));
        self.send_change(Request::new("destroying the machine", Method::DELETE, url).safe())
            .await
    }

    /// Sends a change of a machine, which may be gone. One that somebody has leased, or that changes its state, accepts
    /// none for the moment.
    async fn send_change(&self, request: Request) -> Result<(), VendorError> {
        let request = [404, 409, 412, 423]
            .into_iter()
            .fold(self.request(request), Request::accept_status);
        let response = self.client.send(&request).await?;
        match response.status() {
            409 | 412 | 423 => Err(response.refused_for_now()),
            _ => Ok(()),
        }
    }

    pub(super) async fn log_tail(&self, id: &str) -> Result<Option<String>, VendorError> {
        let base = self.public_or_api(PUBLIC_LOGS);
        let (app, instance) = (percent_encode(&self.app), percent_encode(id));
        let url = format!("{base}/api/v1/apps/{app}/logs?instance={instance}");
        let request = self
            .request(Request::get("reading the machine's log", url))
            .accept_status(404);
        let response = self.client.send(&request).await?;
        if response.status() == 404 {
            return Ok(None);
        }
        let lines: LogPage = serde_json::from_slice(response.text().as_bytes())
            .map_err(|error| response.decode_error(error))?;
        let lines: Vec<String> = lines
            .data
            .into_iter()
            .map(|line| line.attributes.message)
            .collect();
        let log =
            response.sanitized_with(&lines.join("\n"), |log| Cow::Owned(log_tail(log.lines())));
        Ok((!log.is_empty()).then_some(log))
    }

    fn log_url(&self, id: &str) -> Option<String> {
        let (app, id) = (percent_encode(&self.app), percent_encode(id));
        PUBLIC_APIS
            .contains(&self.api.as_str())
            .then(|| format!("{PUBLIC_WEB}/apps/{app}/machines/{id}"))
    }

    fn own_machine(&self, wire: WireMachine, instance: &str) -> Option<Machine> {
        let config = wire.config.as_ref().or(wire.incomplete_config.as_ref())?;
        let labels = MachineLabels::read(config.metadata.as_ref()?, instance)?;
        Some(self.machine(wire, labels))
    }

    fn machine(&self, wire: WireMachine, labels: MachineLabels) -> Machine {
        Machine {
            host: HostKind::Vm,
            exit: wire.exit(),
            problem: None,
            state: MachineState::new(wire.state),
            region: wire.region.filter(|region| !region.is_empty()),
            log_url: self.log_url(&wire.id),
            created_at: Timestamp::parse(&wire.created_at).unwrap_or_default(),
            id: wire.id,
            name: wire.name,
            labels,
        }
    }

    /// Returns `public` if the API is the public service. A self-hosted or fake API serves everything at
    /// its own address.
    fn public_or_api<'s>(&'s self, public: &'s str) -> &'s str {
        if PUBLIC_APIS.contains(&self.api.as_str()) {
            public
        } else {
            &self.api
        }
    }

    fn url(&self, rest: &str) -> String {
        format!(
            "{}/v1/apps/{}/machines{rest}",
            self.api,
            percent_encode(&self.app)
        )
    }

    fn request(&self, request: Request) -> Request {
        let request = request.default_pause(LIMIT_PAUSE);
        let token = self.token.expose();
        // Newer tokens contain their authorization scheme.
        if token.starts_with("FlyV1 ") {
            request.authorization(token)
        } else {
            request.bearer(token)
        }
    }
}

fn config(spec: &MachineSpec, size: MachineSize) -> Value {
    let [program, arguments @ ..] = super::SESSION_COMMAND;
    json!({
        "image": spec.image,
        // An entrypoint of the image would keep the environment.
        "init": {"entrypoint": [program], "cmd": arguments},
        "env": spec.environment,
        "guest": {
            "cpu_kind": "shared",
            "cpus": size.cpus,
            "memory_mb": size.memory_mb,
        },
        "restart": {"policy": "no"},
        "auto_destroy": false,
        "metadata": spec.labels.to_map(),
    })
}

/// Returns the vendor's error message of a response.
fn error_message(response: &Response) -> String {
    let body: Value = serde_json::from_slice(response.text().as_bytes()).unwrap_or_default();
    let parts: Vec<&str> = ["error", "status"]
        .iter()
        .filter_map(|field| body[*field].as_str())
        .filter(|text| !text.is_empty())
        .collect();
    parts.join("; ")
}

#[derive(Deserialize)]
struct LogPage {
    #[serde(default)]
    data: Vec<LogLine>,
}

#[derive(Deserialize)]
struct LogLine {
    attributes: LogAttributes,
}

#[derive(Deserialize)]
struct LogAttributes {
    #[serde(default)]
    message: String,
}

/// Machine as the API represents it.
#[derive(Deserialize)]
struct WireMachine {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    created_at: String,
    #[serde(default)]
    config: Option<WireConfig>,
    #[serde(default)]
    incomplete_config: Option<WireConfig>,
    #[serde(default)]
    events: Vec<WireEvent>,
}

#[derive(Deserialize)]
struct WireConfig {
    #[serde(default)]
    metadata: Option<EnvVarMap>,
}

#[derive(Deserialize)]
struct WireEvent {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    timestamp: i64,
    #[serde(default)]
    request: Value,
}

impl WireMachine {
    /// Returns the latest exit. Earlier exit events belong to earlier starts.
    fn exit(&self) -> Option<MachineExit> {
        let exits = self.events.iter().filter(|event| event.kind == "exit");
        let latest = exits.max_by_key(|event| event.timestamp)?;
        let event = [
            latest.request.pointer("/exit_event"),
            latest.request.pointer("/MonitorEvent/exit_event"),
        ];
        let event = event.into_iter().flatten().next();
        let code = event.and_then(|event| event["exit_code"].as_i64());
        Some(MachineExit {
            code: code.and_then(|code| i32::try_from(code).ok()),
            out_of_memory: event.is_some_and(|event| event["oom_killed"] == true),
        })
    }
}
