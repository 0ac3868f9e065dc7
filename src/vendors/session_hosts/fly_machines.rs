//! Fly Machines: one virtual machine a session.
//!
//! A machine is never restarted by its host (`restart: no`) and never removed by it either
//! (`auto_destroy: false`): how its program ended is read first. Its name is made from the dispatch
//! id, so that the host itself refuses a second one.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::MachineStartOutcome;
use super::log_tail::tail;
use crate::http::{Client, Method, Request, Response, VendorError, percent_encode};
use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachineSpec, MachineState,
};
use domain::machine_size::MachineSize;
use domain::secret::Secret;
use domain::time::Timestamp;

/// Hosts of the API that have their logs and pages elsewhere.
const PUBLIC_APIS: [&str; 2] = ["https://api.machines.dev", "http://_api.internal:4280"];
const PUBLIC_LOGS: &str = "https://api.fly.io";
const PUBLIC_PAGES: &str = "https://fly.io";

/// How long the host is left alone when it takes no more requests: its limits are so many a second.
const LIMIT_PAUSE: Duration = Duration::from_secs(2);

/// How long a program may take to end when it is asked to.
const STOP_TIMEOUT: &str = "10s";

/// What a host says that has no room, whatever the status. (seen with 409, 412 and 422)
const NO_ROOM: [&str; 4] = [
    "insufficient",
    "could not reserve",
    "no capacity",
    "at capacity",
];

/// A client of one application's machines.
#[derive(Clone)]
pub struct FlyMachines {
    client: Client,
    api: String,
    app: String,
    region: String,
    token: Secret,
}

impl FlyMachines {
    /// The machines of `app`; new ones are made in `region`.
    pub fn new(client: Client, api: &str, app: &str, region: &str, token: Secret) -> Self {
        Self {
            client,
            api: api.trim_end_matches('/').to_owned(),
            app: app.to_owned(),
            region: region.to_owned(),
            token,
        }
    }

    pub(super) async fn start(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let asked = MachineSize {
            cpus: spec.cpus,
            memory_mb: spec.memory_mb,
        };
        let size = match asked.smallest_available() {
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
        let answer = self.client.send(&request).await?;
        let status = answer.status();
        if (200..300).contains(&status) {
            let made: Wire = answer.json()?;
            // What was just made need not repeat its metadata.
            let machine = self.machine(made, spec.labels.clone());
            return Ok(MachineStartOutcome::Started(Box::new(machine)));
        }
        let said = said(&answer);
        let lower = said.to_lowercase();
        if NO_ROOM.iter().any(|words| lower.contains(words)) {
            return Ok(MachineStartOutcome::NoCapacity(said));
        }
        if matches!(status, 409 | 422) {
            let ours = self.list(instance).await?.into_iter();
            if let Some(machine) = { ours }.find(|machine| machine.name == spec.name) {
                return Ok(MachineStartOutcome::Started(Box::new(machine)));
            }
        }
        match answer.status_error(status, &said) {
            passing if !passing.is_permanent() => Err(passing),
            lasting => Ok(MachineStartOutcome::Refused {
                status: Some(status),
                reason: lasting.to_string(),
            }),
        }
    }

    pub(super) async fn list(&self, instance: &str) -> Result<Vec<Machine>, VendorError> {
        let request = self.request(Request::get("listing the machines", self.url("")));
        let machines: Vec<Wire> = self.client.send(&request).await?.json()?;
        Ok(machines
            .into_iter()
            .filter_map(|machine| self.ours(machine, instance))
            .collect())
    }

    pub(super) async fn inspect(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<Machine>, VendorError> {
        let url = self.url(&format!("/{}", percent_encode(id)));
        let request = self
            .request(Request::get("looking at the machine", url))
            .accept_status(404);
        let answer = self.client.send(&request).await?;
        if answer.status() == 404 {
            return Ok(None);
        }
        Ok(self.ours(answer.json()?, instance))
    }

    pub(super) async fn stop(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!("/{}/stop", percent_encode(id)));
        let request = Request::new("stopping the machine", Method::POST, url).safe();
        let body = json!({"signal": "SIGTERM", "timeout": STOP_TIMEOUT});
        let request = self.request(request).json(&body).accept_status(404);
        self.client.send(&request).await.map(drop)
    }

    pub(super) async fn destroy(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!("/{}?force=true", percent_encode(id)));
        let request = Request::new("destroying the machine", Method::DELETE, url).safe();
        let request = self.request(request).accept_status(404);
        self.client.send(&request).await.map(drop)
    }

    pub(super) async fn log_tail(&self, id: &str) -> Result<Option<String>, VendorError> {
        let base = self.elsewhere(PUBLIC_LOGS);
        let (app, instance) = (percent_encode(&self.app), percent_encode(id));
        let url = format!("{base}/api/v1/apps/{app}/logs?instance={instance}");
        let request = self
            .request(Request::get("reading the machine's log", url))
            .accept_status(404);
        let answer = self.client.send(&request).await?;
        if answer.status() == 404 {
            return Ok(None);
        }
        let lines: LogPage =
            serde_json::from_str(&answer.text()).map_err(|error| answer.decode_error(error))?;
        let lines: Vec<String> = lines
            .data
            .into_iter()
            .map(|line| line.attributes.message)
            .collect();
        let log = tail(&lines.join("\n"));
        Ok((!log.is_empty()).then_some(log))
    }

    fn log_url(&self, id: &str) -> Option<String> {
        let (app, id) = (percent_encode(&self.app), percent_encode(id));
        PUBLIC_APIS
            .contains(&self.api.as_str())
            .then(|| format!("{PUBLIC_PAGES}/apps/{app}/machines/{id}"))
    }

    fn ours(&self, wire: Wire, instance: &str) -> Option<Machine> {
        let config = wire.config.as_ref().or(wire.incomplete_config.as_ref())?;
        let stamps = MachineLabels::read(config.metadata.as_ref()?, instance)?;
        Some(self.machine(wire, stamps))
    }

    fn machine(&self, wire: Wire, stamps: MachineLabels) -> Machine {
        Machine {
            host: HostKind::Vm,
            exit: wire.exit(),
            state: MachineState::new(wire.state),
            region: wire.region.filter(|region| !region.is_empty()),
            log_url: self.log_url(&wire.id),
            created_at: Timestamp::parse(&wire.created_at).unwrap_or_default(),
            id: wire.id,
            name: wire.name,
            labels: stamps,
        }
    }

    /// Another host of the same vendor, unless the API is a stand-in that is all of them.
    fn elsewhere<'s>(&'s self, public: &'s str) -> &'s str {
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
        // Newer tokens bring their own scheme along.
        if token.starts_with("FlyV1 ") {
            request.authorization(token)
        } else {
            request.bearer(token)
        }
    }
}

fn config(spec: &MachineSpec, size: MachineSize) -> Value {
    json!({
        "image": spec.image,
        "init": {"cmd": super::SESSION_COMMAND},
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

/// The vendor's words in a refusal.
fn said(answer: &Response) -> String {
    let body: Value = serde_json::from_str(&answer.text()).unwrap_or_default();
    let words: Vec<&str> = ["error", "status"]
        .iter()
        .filter_map(|field| body[*field].as_str())
        .filter(|text| !text.is_empty())
        .collect();
    words.join("; ")
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

/// A machine as the vendor writes it.
#[derive(Deserialize)]
struct Wire {
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

impl Wire {
    /// Of the latest exit; earlier ones are of earlier starts.
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
