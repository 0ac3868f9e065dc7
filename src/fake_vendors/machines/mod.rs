//! Machines that really run: the shared part of the fake Fly Machines API, Docker engine and Kubernetes cluster.
//!
//! A machine is a folder and a process session. Its state is read from these on every request, so
//! machines keep their state across a restart of the fake vendors.

pub(crate) mod docker;
pub(crate) mod fly;
pub(crate) mod image_build;
pub(crate) mod kubernetes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock;
use super::github::{detached_process, search_path};
use super::persistence::{PersistedModel, lock};

const MACHINE_SCRIPT: &str = include_str!("box.sh");

/// Maximum time from the start of the script to its pid file, in milliseconds.
const PID_FILE_TIMEOUT_MS: i64 = 5_000;

/// Exit code of a killed program.
const KILLED_EXIT_CODE: i32 = 137;

/// Maximum time from a stop request to a kill, in milliseconds.
const STOP_TIMEOUT_MS: i64 = 10_000;

/// Stored machine or container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FakeMachine {
    pub id: String,
    pub name: String,
    pub image: String,
    pub region: String,
    pub env: BTreeMap<String, String>,
    pub command: Vec<String>,
    /// Metadata or labels.
    #[serde(rename = "stamps")]
    pub labels: BTreeMap<String, String>,
    /// Body of the create request.
    #[serde(rename = "config")]
    pub create_request: Value,
    #[serde(rename = "created")]
    pub created_at: i64,
    /// Start of the program, in milliseconds since the epoch; `None` before the start.
    #[serde(rename = "started")]
    pub started_at: Option<i64>,
    /// Time of the first stop request, in milliseconds since the epoch.
    #[serde(rename = "stopping")]
    pub stop_requested_at: Option<i64>,
    /// State forced by a test or the API; otherwise the state follows from the process.
    #[serde(rename = "fate")]
    pub state_override: Option<StateOverride>,
    /// Whether the machine was removed. Its name is kept.
    #[serde(default)]
    pub removed: bool,
}

/// Machine state that does not follow from its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StateOverride {
    Killed,
    OutOfMemory,
    /// No process; the machine counts as running until it is stopped.
    #[serde(rename = "Planted")]
    AlwaysRunning,
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FakeMachineState {
    Created,
    Starting,
    Running,
    Exited { code: i32, out_of_memory: bool },
}

/// Machine or container as tests see it.
#[derive(Clone, Debug)]
pub struct MachineSnapshot {
    /// Machine or container ID.
    pub id: String,
    /// Machine or container name.
    pub name: String,
    /// Image it was created from.
    pub image: String,
    /// Environment that it was created with.
    pub env: BTreeMap<String, String>,
    /// Metadata (Fly), labels (Docker), or labels and annotations (Kubernetes).
    pub labels: BTreeMap<String, String>,
    /// Body of the create request.
    pub create_request: Value,
    /// Whether its program is starting or running.
    pub running: bool,
    /// Exit code, if its program has exited.
    pub exit_code: Option<i32>,
}

/// All machines of one fake host.
pub struct MachineHost {
    store: PersistedModel<Vec<FakeMachine>>,
    root: PathBuf,
    bin: PathBuf,
    path: String,
    children: Mutex<Vec<Child>>,
}

impl MachineHost {
    /// Opens a host. `name` is its folder; `dir/bin` contains the programs that an image would contain.
    pub(crate) fn open(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let root = dir.join(name);
        std::fs::create_dir_all(&root)?;
        Ok(Self {
            store: PersistedModel::open(dir.join(format!("{name}.json")))?,
            root,
            bin: dir.join("bin"),
            path: search_path()?,
            children: Mutex::default(),
        })
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.store.flush()
    }

    pub(crate) fn machines(&self) -> Vec<FakeMachine> {
        let mut machines = self.store.read(Clone::clone);
        machines.retain(|machine| !machine.removed);
        machines
    }

    /// Returns the names of all machines ever created, oldest first.
    pub fn created_names(&self) -> Vec<String> {
        let names_of = |machines: &Vec<FakeMachine>| {
            machines
                .iter()
                .map(|machine| machine.name.clone())
                .collect()
        };
        self.store.read(names_of)
    }

    pub(crate) fn find(&self, id: &str) -> Option<FakeMachine> {
        let machines = self.machines().into_iter();
        { machines }.find(|machine| machine.id == id || machine.name == id)
    }

    /// Adds a machine. It is on disk before its program can start: otherwise a crash in between would
    /// leave an unknown process behind.
    pub(crate) fn add(&self, machine: FakeMachine) {
        self.store
            .update_and_flush(|machines| machines.push(machine));
    }

    fn update(&self, id: &str, edit: impl FnOnce(&mut FakeMachine)) {
        self.store.update_and_flush(|machines| {
            let mut present = machines.iter_mut().filter(|machine| !machine.removed);
            if let Some(machine) = present.find(|machine| machine.id == id) {
                edit(machine);
            }
        });
    }

    fn dir(&self, machine: &FakeMachine) -> PathBuf {
        self.root.join(&machine.id)
    }

    /// Starts a machine's program.
    pub(crate) fn start(&self, machine: &FakeMachine) -> anyhow::Result<()> {
        let dir = self.dir(machine);
        for folder in ["home", "tmp"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        let overrides = [
            ("PATH", format!("{}:{}", self.bin.display(), self.path)),
            ("HOME", dir.join("home").display().to_string()),
            ("TMPDIR", dir.join("tmp").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        let mut env = machine.env.clone();
        env.extend(overrides.map(|(name, value)| (name.to_owned(), value)));
        let pairs: String = env
            .iter()
            .map(|(name, value)| format!("{name}={}\0", value.replace('\0', "")))
            .collect();
        std::fs::write(dir.join("env"), pairs)?;
        let command_words = machine.command.iter();
        let command_words: String = command_words.map(|word| format!("{word}\0")).collect();
        std::fs::write(dir.join("command"), command_words)?;
        let script = dir.join("box.sh");
        std::fs::write(&script, MACHINE_SCRIPT)?;
        let child = detached_process::spawn_session(&script, &dir, &self.path)?;
        lock(&self.children).push(child);
        let now = clock::now_ms();
        self.update(&machine.id, |machine| machine.started_at = Some(now));
        Ok(())
    }

    pub(crate) fn state(&self, machine: &FakeMachine) -> FakeMachineState {
        lock(&self.children).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let exited = |code, out_of_memory| FakeMachineState::Exited {
            code,
            out_of_memory,
        };
        match machine.state_override {
            Some(StateOverride::AlwaysRunning) => return FakeMachineState::Running,
            Some(StateOverride::Killed) => return exited(KILLED_EXIT_CODE, false),
            Some(StateOverride::OutOfMemory) => return exited(KILLED_EXIT_CODE, true),
            None => {}
        }
        let Some(started) = machine.started_at else {
            return FakeMachineState::Created;
        };
        let dir = self.dir(machine);
        if let Ok(code) = std::fs::read_to_string(dir.join("exit")) {
            return exited(code.trim().parse().unwrap_or(KILLED_EXIT_CODE), false);
        }
        let now = clock::now_ms();
        match detached_process::running_pid(&dir) {
            Some(pid)
                if machine
                    .stop_requested_at
                    .is_some_and(|at| now > at + STOP_TIMEOUT_MS) =>
            {
                detached_process::signal_session(pid, Signal::KILL);
                exited(KILLED_EXIT_CODE, false)
            }
            Some(_) => FakeMachineState::Running,
            None if !dir.join("pid").exists() && now < started + PID_FILE_TIMEOUT_MS => {
                FakeMachineState::Starting
            }
            None => match std::fs::read_to_string(dir.join("exit")) {
                Ok(code) => exited(code.trim().parse().unwrap_or(KILLED_EXIT_CODE), false),
                Err(_) => exited(KILLED_EXIT_CODE, false),
            },
        }
    }

    /// Requests the stop of a machine's program.
    pub(crate) fn stop(&self, machine: &FakeMachine) {
        let now = clock::now_ms();
        self.update(&machine.id, |machine| {
            machine.stop_requested_at.get_or_insert(now);
            if machine.state_override == Some(StateOverride::AlwaysRunning) {
                machine.state_override = Some(StateOverride::Killed);
            }
        });
        if let Some(pid) = detached_process::running_pid(&self.dir(machine)) {
            detached_process::signal(pid, Signal::TERM);
        }
    }

    /// Kills a machine's program, like a crash of its host.
    pub fn kill(&self, id: &str) {
        self.kill_as(id, StateOverride::Killed);
    }

    /// Kills a machine's program as the out-of-memory killer does.
    pub fn kill_out_of_memory(&self, id: &str) {
        self.kill_as(id, StateOverride::OutOfMemory);
    }

    fn kill_as(&self, id: &str, state: StateOverride) {
        let Some(machine) = self.find(id) else {
            return;
        };
        self.update(&machine.id, |machine| machine.state_override = Some(state));
        if let Some(pid) = detached_process::running_pid(&self.dir(&machine)) {
            detached_process::signal_session(pid, Signal::KILL);
        }
    }

    /// Kills a machine's program and removes the machine with all its files.
    pub fn remove(&self, id: &str) {
        let Some(machine) = self.find(id) else {
            return;
        };
        if let Some(pid) = detached_process::running_pid(&self.dir(&machine)) {
            detached_process::signal_session(pid, Signal::KILL);
        }
        self.store.update(|machines| {
            let machines = machines
                .iter_mut()
                .filter(|candidate| candidate.id == machine.id);
            machines.for_each(|machine| {
                machine.removed = true;
                machine.env.clear();
                machine.create_request = Value::Null;
            });
        });
        // Processes that still have a file open lose only its name.
        let _ = std::fs::remove_dir_all(self.dir(&machine));
    }

    /// Returns a machine's log; empty if there is no such machine.
    pub fn log(&self, id: &str) -> String {
        let file = self.find(id).map(|machine| self.dir(&machine).join("log"));
        let log = file
            .and_then(|file| std::fs::read(file).ok())
            .unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn kill_all(&self) {
        for machine in self.machines() {
            if let Some(pid) = detached_process::running_pid(&self.dir(&machine)) {
                detached_process::kill_session(pid);
            }
        }
    }

    /// Returns every machine, including those that the service did not create.
    pub fn snapshots(&self) -> Vec<MachineSnapshot> {
        let machines = self.machines().into_iter();
        machines
            .map(|machine| {
                let state = self.state(&machine);
                MachineSnapshot {
                    running: matches!(
                        state,
                        FakeMachineState::Running | FakeMachineState::Starting
                    ),
                    exit_code: match state {
                        FakeMachineState::Exited { code, .. } => Some(code),
                        _ => None,
                    },
                    id: machine.id,
                    name: machine.name,
                    image: machine.image,
                    env: machine.env,
                    labels: machine.labels,
                    create_request: machine.create_request,
                }
            })
            .collect()
    }

    /// Adds a machine that the service did not create.
    pub fn add_foreign_machine(&self, id: &str, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter();
        let machine = FakeMachine {
            id: id.to_owned(),
            name: name.to_owned(),
            image: "somebody/else:1".to_owned(),
            region: "iad".to_owned(),
            env: BTreeMap::new(),
            command: Vec::new(),
            labels: labels
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            create_request: Value::Null,
            created_at: clock::now_ms(),
            started_at: Some(clock::now_ms()),
            stop_requested_at: None,
            state_override: Some(StateOverride::AlwaysRunning),
            removed: false,
        };
        self.store
            .update_and_flush(|machines| machines.push(machine));
    }
}

/// Collects the string members of a JSON object.
pub(crate) fn string_map(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Collects the strings of a JSON array.
pub(crate) fn string_list(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
