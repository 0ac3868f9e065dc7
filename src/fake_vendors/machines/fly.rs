//! Fake Fly Machines API.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{FakeMachine, FakeMachineState, MachineHost, string_list, string_map};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};

/// The only app.
const APP: &str = "sandbox-sessions";
const TOKEN: &str = "fly-token-of-the-sandbox";

/// Step of a machine's memory, in megabytes.
const MEMORY_STEP_MB: u64 = 256;

/// Fake Fly Machines API. Clones share their state.
#[derive(Clone)]
pub struct FakeFlyMachines {
    host: Arc<MachineHost>,
    out_of_capacity: Arc<AtomicBool>,
}

impl FakeFlyMachines {
    /// Opens the host. Machines that were created but not started before a crash are started now.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let host = MachineHost::open(dir, "fly")?;
        for machine in host
            .machines()
            .iter()
            .filter(|machine| machine.started_at.is_none())
        {
            host.start(machine)?;
        }
        Ok(Self {
            host: Arc::new(host),
            out_of_capacity: Arc::default(),
        })
    }

    /// Returns the name of the only app.
    pub fn app(&self) -> &'static str {
        APP
    }

    /// Returns the accepted API token.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Returns the machines.
    pub fn host(&self) -> &MachineHost {
        &self.host
    }

    /// Sets whether creating a machine fails for lack of capacity.
    pub fn set_out_of_capacity(&self, on: bool) {
        self.out_of_capacity.store(on, Ordering::Relaxed);
    }

    pub(crate) fn rate_limited_response(left: Duration) -> HttpResponse {
        let response = error_response(429, "rate limit exceeded");
        response.header("retry-after", left.as_secs().max(1))
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let bearer = format!("Bearer {TOKEN}");
        if request.header("authorization") != Some(bearer.as_str()) {
            return error_response(401, "unauthorized");
        }
        let segments = request.segments();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), &segments[..]) {
            (_, ["v1", "apps", app, "machines", ..]) if *app != APP => {
                error_response(404, "app not found")
            }
            ("GET", ["v1", "apps", _, "machines"]) => {
                let machines = self.host.machines();
                let machines = machines.iter().map(|machine| self.machine_json(machine));
                HttpResponse::json(200, &machines.collect())
            }
            ("POST", ["v1", "apps", _, "machines"]) => self.create(request),
            (method, ["v1", "apps", _, "machines", id, rest @ ..]) => {
                match self.host.find(id).filter(|machine| machine.id == *id) {
                    Some(machine) => self.machine_request(method, rest, &machine, request),
                    None => error_response(404, "machine not found"),
                }
            }
            ("GET", ["api", "v1", "apps", app, "logs"]) if *app == APP => self.logs(request),
            _ => error_response(404, "not found"),
        }
    }

    fn machine_request(
        &self,
        method: &str,
        rest: &[&str],
        machine: &FakeMachine,
        request: &HttpRequest,
    ) -> HttpResponse {
        let state = self.host.state(machine);
        let is_stopped = matches!(
            state,
            FakeMachineState::Exited { .. } | FakeMachineState::Created
        );
        match (method, rest) {
            ("GET", []) => HttpResponse::json(200, &self.machine_json(machine)),
            ("POST", ["stop"]) => {
                self.host.stop(machine);
                HttpResponse::json(200, &json!({"ok": true}))
            }
            ("DELETE", [])
                if is_stopped || request.query_param("force").as_deref() == Some("true") =>
            {
                self.host.remove(&machine.id);
                HttpResponse::json(200, &json!({"ok": true}))
            }
            ("DELETE", []) => error_response(
                412,
                "failed_precondition: unable to destroy machine, not currently stopped",
            ),
            _ => error_response(405, "method not allowed"),
        }
    }

    fn create(&self, request: &HttpRequest) -> HttpResponse {
        let Some(body) = request.json() else {
            return error_response(400, "invalid JSON");
        };
        let config = &body["config"];
        let (cpus, memory) = (
            config["guest"]["cpus"].as_u64().unwrap_or(1),
            config["guest"]["memory_mb"]
                .as_u64()
                .unwrap_or(MEMORY_STEP_MB),
        );
        if let Some(message) = size_error(cpus, memory) {
            return error_response(422, &message);
        }
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        if let Some(other) = self.host.find(&name).filter(|machine| machine.name == name) {
            return error_response(
                409,
                &format!(
                    "already_exists: unique machine name violation, machine ID {} already exists with name \"{name}\"",
                    other.id
                ),
            );
        }
        if self.out_of_capacity.load(Ordering::Relaxed) {
            return HttpResponse::json(
                412,
                &json!({
                    "error": "could not reserve resource for machine: insufficient memory available to fulfill request",
                    "status": "insufficient_capacity",
                }),
            );
        }
        let machine = FakeMachine {
            id: format!("{:014x}", fastrand::u64(..) >> 8),
            name,
            image: config["image"].as_str().unwrap_or_default().to_owned(),
            region: body["region"].as_str().unwrap_or("iad").to_owned(),
            env: string_map(&config["env"]),
            command: [
                string_list(&config["init"]["entrypoint"]),
                string_list(&config["init"]["cmd"]),
            ]
            .concat(),
            labels: string_map(&config["metadata"]),
            create_request: body,
            created_at: clock::now_ms(),
            started_at: None,
            stop_requested_at: None,
            state_override: None,
            removed: false,
        };
        self.host.add(machine.clone());
        if let Err(error) = self.host.start(&machine) {
            return error_response(500, &format!("fake vendor: {error:#}"));
        }
        HttpResponse::json(200, &self.machine_json(&machine))
    }

    fn machine_json(&self, machine: &FakeMachine) -> Value {
        let state = self.host.state(machine);
        let state_name = match state {
            FakeMachineState::Created => "created",
            FakeMachineState::Starting => "starting",
            FakeMachineState::Running if machine.stop_requested_at.is_some() => "stopping",
            FakeMachineState::Running => "started",
            FakeMachineState::Exited { .. } => "stopped",
        };
        let mut events = vec![json!({
            "type": "launch", "status": "created", "source": "user", "timestamp": machine.created_at,
        })];
        if let FakeMachineState::Exited {
            code,
            out_of_memory,
        } = state
        {
            events.push(json!({
                "type": "exit", "status": "stopped", "source": "flyd", "timestamp": clock::now_ms(),
                "request": {"exit_event": {
                    "exit_code": code, "oom_killed": out_of_memory, "requested_stop": machine.stop_requested_at.is_some(),
                }},
            }));
        }
        json!({
            "id": machine.id,
            "name": machine.name,
            "state": state_name,
            "region": machine.region,
            "created_at": clock::iso(machine.created_at),
            "updated_at": clock::iso(machine.created_at),
            "config": {
                "image": machine.image,
                "metadata": machine.labels,
                "guest": machine.create_request["config"]["guest"],
                "restart": machine.create_request["config"]["restart"],
            },
            "events": events,
        })
    }

    fn logs(&self, request: &HttpRequest) -> HttpResponse {
        let id = request.query_param("instance").unwrap_or_default();
        let log = self.host.log(&id);
        let lines = log.lines().map(|line| {
            json!({"id": "1", "attributes": {
                "message": line, "instance": id, "level": "info", "timestamp": clock::iso(clock::now_ms()),
            }})
        });
        let lines: Vec<Value> = lines.collect();
        HttpResponse::json(200, &json!({"data": lines, "meta": {"next_token": ""}}))
    }
}

/// Returns the error for a size that Fly does not offer as a shared machine.
fn size_error(cpus: u64, memory: u64) -> Option<String> {
    let (least, most) = (cpus * 256, cpus * 2_048);
    if !matches!(cpus, 1 | 2 | 4 | 6 | 8) {
        Some(format!(
            "invalid config.guest.cpus: {cpus}, must be one of 1, 2, 4, 6, 8"
        ))
    } else if !memory.is_multiple_of(MEMORY_STEP_MB) {
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

fn error_response(status: u16, error: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn starts_a_machine_that_was_created_but_not_started_before_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("bin")).unwrap();
        let host = FakeFlyMachines::open(dir.path()).unwrap();
        let created = FakeMachine {
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
        host.host.add(created);
        drop(host);
        let reopened = FakeFlyMachines::open(dir.path()).unwrap();
        assert!(reopened.host.snapshots()[0].running);
        reopened.host.kill_all();
    }
}
