//! The stand-in of Fly Machines.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    FakeMachine, FakeMachineState, MachineHost, MachineSnapshot, StateOverride, string_list,
    string_map,
};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};

/// The one application there is.
const APP: &str = "sandbox-sessions";
const TOKEN: &str = "fly-token-of-the-sandbox";

/// Machines are sold in steps of this many megabytes.
const MEMORY_STEP: u64 = 256;

/// The stand-in provider of virtual machines. Clones are the same one.
#[derive(Clone)]
pub struct FakeFlyMachines {
    yard: Arc<MachineHost>,
    full: Arc<AtomicBool>,
}

impl FakeFlyMachines {
    /// Machines that it had taken when it was killed, and not begun, begin now: this host starts what
    /// it makes.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let yard = MachineHost::open(dir, "fly")?;
        for unit in yard
            .machines()
            .iter()
            .filter(|unit| unit.started_at.is_none())
        {
            yard.start(unit)?;
        }
        Ok(Self {
            yard: Arc::new(yard),
            full: Arc::default(),
        })
    }

    pub fn app(&self) -> &'static str {
        APP
    }

    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Every machine, whoever made it.
    pub fn machines(&self) -> Vec<MachineSnapshot> {
        self.yard.snapshots()
    }

    /// The names of all that ever were here, oldest first.
    pub fn created_names(&self) -> Vec<String> {
        self.yard.created_names()
    }

    /// A machine of somebody else in the same application.
    pub fn add_foreign_machine(&self, id: &str, name: &str, metadata: &[(&str, &str)]) {
        self.yard.add_foreign_machine(id, name, metadata);
    }

    /// While on, no machine can be made for want of room.
    pub fn set_out_of_capacity(&self, on: bool) {
        self.full.store(on, Ordering::Relaxed);
    }

    /// Ends a machine's program as a crash of its host would.
    pub fn kill(&self, id: &str) {
        if let Some(unit) = self.yard.find(id) {
            self.yard.kill(&unit, StateOverride::Killed);
        }
    }

    /// Ends a machine's program for using too much memory.
    pub fn kill_out_of_memory(&self, id: &str) {
        if let Some(unit) = self.yard.find(id) {
            self.yard.kill(&unit, StateOverride::OutOfMemory);
        }
    }

    /// Takes a machine away without a trace.
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

    pub(crate) fn rate_limited_response(left: Duration) -> HttpResponse {
        let refusal = refused(429, "rate limit exceeded");
        refusal.header("retry-after", left.as_secs().max(1))
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let bearer = format!("Bearer {TOKEN}");
        if request.header("authorization") != Some(bearer.as_str()) {
            return refused(401, "unauthorized");
        }
        let segments = request.segments();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), &segments[..]) {
            (_, ["v1", "apps", app, "machines", ..]) if *app != APP => {
                refused(404, "app not found")
            }
            ("GET", ["v1", "apps", _, "machines"]) => {
                let machines = self.yard.machines();
                let machines = machines.iter().map(|unit| self.shape(unit));
                HttpResponse::json(200, &machines.collect())
            }
            ("POST", ["v1", "apps", _, "machines"]) => self.create(request),
            (method, ["v1", "apps", _, "machines", id, rest @ ..]) => {
                match self.yard.find(id).filter(|unit| unit.id == *id) {
                    Some(unit) => self.one(method, rest, &unit, request),
                    None => refused(404, "machine not found"),
                }
            }
            ("GET", ["api", "v1", "apps", app, "logs"]) if *app == APP => self.logs(request),
            _ => refused(404, "not found"),
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
        let over = matches!(
            doing,
            FakeMachineState::Exited { .. } | FakeMachineState::Created
        );
        match (method, rest) {
            ("GET", []) => HttpResponse::json(200, &self.shape(unit)),
            ("POST", ["stop"]) => {
                self.yard.stop(unit);
                HttpResponse::json(200, &json!({"ok": true}))
            }
            ("DELETE", []) if over || request.query_param("force").as_deref() == Some("true") => {
                self.yard.remove(unit);
                HttpResponse::json(200, &json!({"ok": true}))
            }
            ("DELETE", []) => refused(
                412,
                "failed_precondition: unable to destroy machine, not currently stopped",
            ),
            _ => refused(405, "method not allowed"),
        }
    }

    fn create(&self, request: &HttpRequest) -> HttpResponse {
        let Some(body) = request.json() else {
            return refused(400, "invalid JSON");
        };
        let config = &body["config"];
        let (cpus, memory) = (
            config["guest"]["cpus"].as_u64().unwrap_or(1),
            config["guest"]["memory_mb"].as_u64().unwrap_or(MEMORY_STEP),
        );
        if let Some(why) = unsold(cpus, memory) {
            return refused(422, &why);
        }
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        if let Some(other) = self.yard.find(&name).filter(|unit| unit.name == name) {
            return refused(
                409,
                &format!(
                    "already_exists: unique machine name violation, machine ID {} already exists with name \"{name}\"",
                    other.id
                ),
            );
        }
        if self.full.load(Ordering::Relaxed) {
            return HttpResponse::json(
                412,
                &json!({
                    "error": "could not reserve resource for machine: insufficient memory available to fulfill request",
                    "status": "insufficient_capacity",
                }),
            );
        }
        let unit = FakeMachine {
            id: format!("{:014x}", fastrand::u64(..) >> 8),
            name,
            image: config["image"].as_str().unwrap_or_default().to_owned(),
            region: body["region"].as_str().unwrap_or("iad").to_owned(),
            env: string_map(&config["env"]),
            command: string_list(&config["init"]["cmd"]),
            labels: string_map(&config["metadata"]),
            create_request: body,
            created_at: clock::now_ms(),
            started_at: None,
            stop_requested_at: None,
            state_override: None,
            removed: false,
        };
        self.yard.add(unit.clone());
        if let Err(error) = self.yard.start(&unit) {
            return refused(500, &format!("sandbox: {error:#}"));
        }
        HttpResponse::json(200, &self.shape(&unit))
    }

    fn shape(&self, unit: &FakeMachine) -> Value {
        let doing = self.yard.state(unit);
        let state = match doing {
            FakeMachineState::Created => "created",
            FakeMachineState::Starting => "starting",
            FakeMachineState::Running if unit.stop_requested_at.is_some() => "stopping",
            FakeMachineState::Running => "started",
            FakeMachineState::Exited { .. } => "stopped",
        };
        let mut events = vec![json!({
            "type": "launch", "status": "created", "source": "user", "timestamp": unit.created_at,
        })];
        if let FakeMachineState::Exited {
            code,
            out_of_memory,
        } = doing
        {
            events.push(json!({
                "type": "exit", "status": "stopped", "source": "flyd", "timestamp": clock::now_ms(),
                "request": {"exit_event": {
                    "exit_code": code, "oom_killed": out_of_memory, "requested_stop": unit.stop_requested_at.is_some(),
                }},
            }));
        }
        json!({
            "id": unit.id,
            "name": unit.name,
            "state": state,
            "region": unit.region,
            "created_at": clock::iso(unit.created_at),
            "updated_at": clock::iso(unit.created_at),
            "config": {
                "image": unit.image,
                "metadata": unit.labels,
                "guest": unit.create_request["config"]["guest"],
                "restart": unit.create_request["config"]["restart"],
            },
            "events": events,
        })
    }

    fn logs(&self, request: &HttpRequest) -> HttpResponse {
        let id = request.query_param("instance").unwrap_or_default();
        let log = self.log(&id);
        let lines = log.lines().map(|line| {
            json!({"id": "1", "attributes": {
                "message": line, "instance": id, "level": "info", "timestamp": clock::iso(clock::now_ms()),
            }})
        });
        let lines: Vec<Value> = lines.collect();
        HttpResponse::json(200, &json!({"data": lines, "meta": {"next_token": ""}}))
    }
}

/// Why there is no shared machine of this size.
fn unsold(cpus: u64, memory: u64) -> Option<String> {
    let (least, most) = (cpus * 256, cpus * 2_048);
    if !matches!(cpus, 1 | 2 | 4 | 6 | 8) {
        Some(format!(
            "invalid config.guest.cpus: {cpus}, must be one of 1, 2, 4, 6, 8"
        ))
    } else if !memory.is_multiple_of(MEMORY_STEP) {
        Some(format!(
            "invalid config.guest.memory_mb: {memory}, must be in 256 MiB increment"
        ))
    } else if memory < least {
        Some(format!(
            "invalid config.guest.memory_mb, minimum required {least} MiB"
        ))
    } else {
        (memory > most).then(|| format!("max config.guest.memory_mb: {most}"))
    }
}

fn refused(status: u16, error: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_that_was_taken_and_not_begun_begins_with_its_host() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("bin")).unwrap();
        let host = FakeFlyMachines::open(dir.path()).unwrap();
        let taken = FakeMachine {
            id: "a1".to_owned(),
            name: "agent-1".to_owned(),
            image: "image".to_owned(),
            region: "iad".to_owned(),
            env: Default::default(),
            command: vec!["sleep".to_owned(), "60".to_owned()],
            labels: Default::default(),
            create_request: json!({}),
            created_at: clock::now_ms(),
            started_at: None,
            stop_requested_at: None,
            state_override: None,
            removed: false,
        };
        host.yard.add(taken);
        drop(host);
        let again = FakeFlyMachines::open(dir.path()).unwrap();
        assert!(again.machines()[0].running);
        again.kill_all();
    }
}
