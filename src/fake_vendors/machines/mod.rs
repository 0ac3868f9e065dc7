//! Machines that really run: what the two stand-in hosts have in common.
//!
//! A machine is a folder and a process of its own. What it is doing is read from these whenever
//! somebody asks, so that a town that was killed finds its machines again as they are.

pub(crate) mod docker;
pub(crate) mod fly;

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

const PLAYER: &str = include_str!("box.sh");

/// How long a started player may take to write its pid file.
const CLAIM_GRACE_MS: i64 = 5_000;

/// What a program that was killed ends with.
const KILLED: i32 = 137;

/// How long a program may go on after it was asked to end.
const STOP_GRACE_MS: i64 = 10_000;

/// A machine as its host keeps it.
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
    /// The request that it was made with.
    #[serde(rename = "config")]
    pub create_request: Value,
    #[serde(rename = "created")]
    pub created_at: i64,
    /// When its program was started; none for one that was only made.
    #[serde(rename = "started")]
    pub started_at: Option<i64>,
    /// When it was asked to end.
    #[serde(rename = "stopping")]
    pub stop_requested_at: Option<i64>,
    /// How it ended, where that is not for its program to say.
    #[serde(rename = "fate")]
    pub state_override: Option<StateOverride>,
    /// It is gone; only that it was there is remembered.
    #[serde(default)]
    pub removed: bool,
}

/// An end from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StateOverride {
    Killed,
    OutOfMemory,
    /// No process is behind it, and it goes on for ever.
    #[serde(rename = "Planted")]
    AlwaysRunning,
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FakeMachineState {
    Created,
    Starting,
    Running,
    Exited { code: i32, out_of_memory: bool },
}

/// A machine as tests look at it.
#[derive(Clone, Debug)]
pub struct MachineSnapshot {
    pub id: String,
    pub name: String,
    pub image: String,
    /// What its program was given.
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// The request that it was made with.
    pub create_request: Value,
    pub running: bool,
    pub exit_code: Option<i32>,
}

/// All machines of one host.
pub(crate) struct MachineHost {
    shelf: PersistedModel<Vec<FakeMachine>>,
    root: PathBuf,
    bin: PathBuf,
    path: String,
    children: Mutex<Vec<Child>>,
}

impl MachineHost {
    /// `name` is the host's; `bin` holds what an image would.
    pub fn open(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let root = dir.join(name);
        std::fs::create_dir_all(&root)?;
        Ok(Self {
            shelf: PersistedModel::open(dir.join(format!("{name}.json")))?,
            root,
            bin: dir.join("bin"),
            path: search_path()?,
            children: Mutex::default(),
        })
    }

    pub fn flush(&self) -> anyhow::Result<()> {
        self.shelf.flush()
    }

    pub fn machines(&self) -> Vec<FakeMachine> {
        let mut units = self.shelf.read(Clone::clone);
        units.retain(|unit| !unit.removed);
        units
    }

    /// The names of all that ever were there, oldest first.
    pub fn created_names(&self) -> Vec<String> {
        let named = |units: &Vec<FakeMachine>| units.iter().map(|unit| unit.name.clone()).collect();
        self.shelf.read(named)
    }

    pub fn find(&self, id: &str) -> Option<FakeMachine> {
        let units = self.machines().into_iter();
        { units }.find(|unit| unit.id == id || unit.name == id)
    }

    /// Adds a machine. It is on disk before it can be started: a host that dies in between would leave
    /// a program that it knows nothing of.
    pub fn add(&self, unit: FakeMachine) {
        self.shelf.update_and_flush(|units| units.push(unit));
    }

    fn change(&self, id: &str, edit: impl FnOnce(&mut FakeMachine)) {
        self.shelf.update_and_flush(|units| {
            if let Some(unit) = units.iter_mut().find(|unit| unit.id == id) {
                edit(unit);
            }
        });
    }

    fn dir(&self, unit: &FakeMachine) -> PathBuf {
        self.root.join(&unit.id)
    }

    /// Starts a machine's program.
    pub fn start(&self, unit: &FakeMachine) -> anyhow::Result<()> {
        let dir = self.dir(unit);
        for folder in ["home", "tmp"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        let own = [
            ("PATH", format!("{}:{}", self.bin.display(), self.path)),
            ("HOME", dir.join("home").display().to_string()),
            ("TMPDIR", dir.join("tmp").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        let mut env = unit.env.clone();
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let pairs: String = env
            .iter()
            .map(|(name, value)| format!("{name}={}\0", value.replace('\0', "")))
            .collect();
        std::fs::write(dir.join("env"), pairs)?;
        let words = unit.command.iter();
        let words: String = words.map(|word| format!("{word}\0")).collect();
        std::fs::write(dir.join("command"), words)?;
        let script = dir.join("box.sh");
        std::fs::write(&script, PLAYER)?;
        let child = detached_process::spawn_session(&script, &dir, &self.path)?;
        lock(&self.children).push(child);
        let now = clock::now_ms();
        self.change(&unit.id, |unit| unit.started_at = Some(now));
        Ok(())
    }

    pub fn state(&self, unit: &FakeMachine) -> FakeMachineState {
        lock(&self.children).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let ended = |code, out_of_memory| FakeMachineState::Exited {
            code,
            out_of_memory,
        };
        match unit.state_override {
            Some(StateOverride::AlwaysRunning) => return FakeMachineState::Running,
            Some(StateOverride::Killed) => return ended(KILLED, false),
            Some(StateOverride::OutOfMemory) => return ended(KILLED, true),
            None => {}
        }
        let Some(started) = unit.started_at else {
            return FakeMachineState::Created;
        };
        let dir = self.dir(unit);
        if let Ok(code) = std::fs::read_to_string(dir.join("exit")) {
            return ended(code.trim().parse().unwrap_or(KILLED), false);
        }
        let now = clock::now_ms();
        match detached_process::running_pid(&dir) {
            Some(pid)
                if unit
                    .stop_requested_at
                    .is_some_and(|at| now > at + STOP_GRACE_MS) =>
            {
                detached_process::signal_session(pid, Signal::KILL);
                ended(KILLED, false)
            }
            Some(_) => FakeMachineState::Running,
            None if !dir.join("pid").exists() && now < started + CLAIM_GRACE_MS => {
                FakeMachineState::Starting
            }
            None => match std::fs::read_to_string(dir.join("exit")) {
                Ok(code) => ended(code.trim().parse().unwrap_or(KILLED), false),
                Err(_) => ended(KILLED, false),
            },
        }
    }

    /// Asks a machine's program to end.
    pub fn stop(&self, unit: &FakeMachine) {
        let now = clock::now_ms();
        self.change(&unit.id, |unit| {
            unit.stop_requested_at.get_or_insert(now);
            if unit.state_override == Some(StateOverride::AlwaysRunning) {
                unit.state_override = Some(StateOverride::Killed);
            }
        });
        if let Some(pid) = detached_process::running_pid(&self.dir(unit)) {
            detached_process::signal_session(pid, Signal::TERM);
        }
    }

    /// Ends a machine's program from outside.
    pub fn kill(&self, unit: &FakeMachine, fate: StateOverride) {
        self.change(&unit.id, |unit| unit.state_override = Some(fate));
        if let Some(pid) = detached_process::running_pid(&self.dir(unit)) {
            detached_process::signal_session(pid, Signal::KILL);
        }
    }

    /// Ends a machine and forgets it, with all its files.
    pub fn remove(&self, unit: &FakeMachine) {
        if let Some(pid) = detached_process::running_pid(&self.dir(unit)) {
            detached_process::signal_session(pid, Signal::KILL);
        }
        self.shelf.update(|units| {
            let units = units.iter_mut().filter(|known| known.id == unit.id);
            units.for_each(|unit| {
                unit.removed = true;
                unit.env.clear();
                unit.create_request = Value::Null;
            });
        });
        // Its log is kept by nobody; what still holds a file open loses only the name.
        let _ = std::fs::remove_dir_all(self.dir(unit));
    }

    pub fn log(&self, unit: &FakeMachine) -> String {
        let log = std::fs::read(self.dir(unit).join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub fn kill_all(&self) {
        for unit in self.machines() {
            if let Some(pid) = detached_process::running_pid(&self.dir(&unit)) {
                detached_process::kill_session(pid);
            }
        }
    }

    pub fn snapshots(&self) -> Vec<MachineSnapshot> {
        let units = self.machines().into_iter();
        units
            .map(|unit| {
                let doing = self.state(&unit);
                MachineSnapshot {
                    running: matches!(
                        doing,
                        FakeMachineState::Running | FakeMachineState::Starting
                    ),
                    exit_code: match doing {
                        FakeMachineState::Exited { code, .. } => Some(code),
                        _ => None,
                    },
                    id: unit.id,
                    name: unit.name,
                    image: unit.image,
                    env: unit.env,
                    labels: unit.labels,
                    create_request: unit.create_request,
                }
            })
            .collect()
    }

    /// A machine of somebody else.
    pub fn add_foreign_machine(&self, id: &str, name: &str, stamps: &[(&str, &str)]) {
        let stamps = stamps.iter();
        let unit = FakeMachine {
            id: id.to_owned(),
            name: name.to_owned(),
            image: "somebody/else:1".to_owned(),
            region: "iad".to_owned(),
            env: BTreeMap::new(),
            command: Vec::new(),
            labels: stamps
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            create_request: Value::Null,
            created_at: clock::now_ms(),
            started_at: Some(clock::now_ms()),
            stop_requested_at: None,
            state_override: Some(StateOverride::AlwaysRunning),
            removed: false,
        };
        self.shelf.update_and_flush(|units| units.push(unit));
    }
}

/// Names and values of a JSON object of strings.
pub(crate) fn string_map(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A list of words.
pub(crate) fn string_list(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
