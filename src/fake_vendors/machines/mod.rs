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
use super::github::{process, search_path};
use super::state::{Shelf, lock};

const PLAYER: &str = include_str!("box.sh");

/// How long a started player may take to write its pid file.
const CLAIM_GRACE_MS: i64 = 5_000;

/// What a program that was killed ends with.
const KILLED: i32 = 137;

/// How long a program may go on after it was asked to end.
const STOP_GRACE_MS: i64 = 10_000;

/// A machine as its host keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unit {
    pub id: String,
    pub name: String,
    pub image: String,
    pub region: String,
    pub env: BTreeMap<String, String>,
    pub command: Vec<String>,
    /// Metadata or labels.
    pub stamps: BTreeMap<String, String>,
    /// The request that it was made with.
    pub config: Value,
    pub created: i64,
    /// When its program was started; none for one that was only made.
    pub started: Option<i64>,
    /// When it was asked to end.
    pub stopping: Option<i64>,
    /// How it ended, where that is not for its program to say.
    pub fate: Option<Fate>,
    /// It is gone; only that it was there is remembered.
    #[serde(default)]
    pub removed: bool,
}

/// An end from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    Killed,
    OutOfMemory,
    /// No process is behind it, and it goes on for ever.
    Planted,
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Created,
    Starting,
    Running,
    Ended { code: i32, out_of_memory: bool },
}

/// A machine as tests look at it.
#[derive(Clone, Debug)]
pub struct MachineSnapshot {
    pub id: String,
    pub name: String,
    pub image: String,
    /// What its program was given.
    pub env: BTreeMap<String, String>,
    pub stamps: BTreeMap<String, String>,
    /// The request that it was made with.
    pub config: Value,
    pub running: bool,
    pub exit: Option<i32>,
}

/// All machines of one host.
pub(crate) struct Yard {
    shelf: Shelf<Vec<Unit>>,
    root: PathBuf,
    bin: PathBuf,
    path: String,
    children: Mutex<Vec<Child>>,
}

impl Yard {
    /// `name` is the host's; `bin` holds what an image would.
    pub fn open(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let root = dir.join(name);
        std::fs::create_dir_all(&root)?;
        Ok(Self {
            shelf: Shelf::open(dir.join(format!("{name}.json")))?,
            root,
            bin: dir.join("bin"),
            path: search_path()?,
            children: Mutex::default(),
        })
    }

    pub fn settle(&self) -> anyhow::Result<()> {
        self.shelf.settle()
    }

    pub fn units(&self) -> Vec<Unit> {
        let mut units = self.shelf.read(Clone::clone);
        units.retain(|unit| !unit.removed);
        units
    }

    /// The names of all that ever were there, oldest first.
    pub fn made(&self) -> Vec<String> {
        let named = |units: &Vec<Unit>| units.iter().map(|unit| unit.name.clone()).collect();
        self.shelf.read(named)
    }

    pub fn unit(&self, id: &str) -> Option<Unit> {
        let units = self.units().into_iter();
        { units }.find(|unit| unit.id == id || unit.name == id)
    }

    /// Adds a machine. It is on disk before it can be started: a host that dies in between would leave
    /// a program that it knows nothing of.
    pub fn put(&self, unit: Unit) {
        self.shelf.commit(|units| units.push(unit));
    }

    fn change(&self, id: &str, edit: impl FnOnce(&mut Unit)) {
        self.shelf.commit(|units| {
            if let Some(unit) = units.iter_mut().find(|unit| unit.id == id) {
                edit(unit);
            }
        });
    }

    fn dir(&self, unit: &Unit) -> PathBuf {
        self.root.join(&unit.id)
    }

    /// Starts a machine's program.
    pub fn start(&self, unit: &Unit) -> anyhow::Result<()> {
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
        let child = process::start(&script, &dir, &self.path)?;
        lock(&self.children).push(child);
        let now = clock::now_ms();
        self.change(&unit.id, |unit| unit.started = Some(now));
        Ok(())
    }

    pub fn doing(&self, unit: &Unit) -> Doing {
        lock(&self.children).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let ended = |code, out_of_memory| Doing::Ended {
            code,
            out_of_memory,
        };
        match unit.fate {
            Some(Fate::Planted) => return Doing::Running,
            Some(Fate::Killed) => return ended(KILLED, false),
            Some(Fate::OutOfMemory) => return ended(KILLED, true),
            None => {}
        }
        let Some(started) = unit.started else {
            return Doing::Created;
        };
        let dir = self.dir(unit);
        if let Ok(code) = std::fs::read_to_string(dir.join("exit")) {
            return ended(code.trim().parse().unwrap_or(KILLED), false);
        }
        let now = clock::now_ms();
        match process::player(&dir) {
            Some(pid) if unit.stopping.is_some_and(|at| now > at + STOP_GRACE_MS) => {
                process::signal_session(pid, Signal::KILL);
                ended(KILLED, false)
            }
            Some(_) => Doing::Running,
            None if !dir.join("pid").exists() && now < started + CLAIM_GRACE_MS => Doing::Starting,
            None => match std::fs::read_to_string(dir.join("exit")) {
                Ok(code) => ended(code.trim().parse().unwrap_or(KILLED), false),
                Err(_) => ended(KILLED, false),
            },
        }
    }

    /// Asks a machine's program to end.
    pub fn stop(&self, unit: &Unit) {
        let now = clock::now_ms();
        self.change(&unit.id, |unit| {
            unit.stopping.get_or_insert(now);
            if unit.fate == Some(Fate::Planted) {
                unit.fate = Some(Fate::Killed);
            }
        });
        if let Some(pid) = process::player(&self.dir(unit)) {
            process::signal_session(pid, Signal::TERM);
        }
    }

    /// Ends a machine's program from outside.
    pub fn end(&self, unit: &Unit, fate: Fate) {
        self.change(&unit.id, |unit| unit.fate = Some(fate));
        if let Some(pid) = process::player(&self.dir(unit)) {
            process::signal_session(pid, Signal::KILL);
        }
    }

    /// Ends a machine and forgets it, with all its files.
    pub fn remove(&self, unit: &Unit) {
        if let Some(pid) = process::player(&self.dir(unit)) {
            process::signal_session(pid, Signal::KILL);
        }
        self.shelf.change(|units| {
            let units = units.iter_mut().filter(|known| known.id == unit.id);
            units.for_each(|unit| {
                unit.removed = true;
                unit.env.clear();
                unit.config = Value::Null;
            });
        });
        // Its log is kept by nobody; what still holds a file open loses only the name.
        let _ = std::fs::remove_dir_all(self.dir(unit));
    }

    pub fn log(&self, unit: &Unit) -> String {
        let log = std::fs::read(self.dir(unit).join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub fn kill_all(&self) {
        for unit in self.units() {
            if let Some(pid) = process::player(&self.dir(&unit)) {
                process::kill_session(pid);
            }
        }
    }

    pub fn snapshots(&self) -> Vec<MachineSnapshot> {
        let units = self.units().into_iter();
        units
            .map(|unit| {
                let doing = self.doing(&unit);
                MachineSnapshot {
                    running: matches!(doing, Doing::Running | Doing::Starting),
                    exit: match doing {
                        Doing::Ended { code, .. } => Some(code),
                        _ => None,
                    },
                    id: unit.id,
                    name: unit.name,
                    image: unit.image,
                    env: unit.env,
                    stamps: unit.stamps,
                    config: unit.config,
                }
            })
            .collect()
    }

    /// A machine of somebody else.
    pub fn plant(&self, id: &str, name: &str, stamps: &[(&str, &str)]) {
        let stamps = stamps.iter();
        let unit = Unit {
            id: id.to_owned(),
            name: name.to_owned(),
            image: "somebody/else:1".to_owned(),
            region: "iad".to_owned(),
            env: BTreeMap::new(),
            command: Vec::new(),
            stamps: stamps
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            config: Value::Null,
            created: clock::now_ms(),
            started: Some(clock::now_ms()),
            stopping: None,
            fate: Some(Fate::Planted),
            removed: false,
        };
        self.shelf.commit(|units| units.push(unit));
    }
}

/// Names and values of a JSON object of strings.
pub(crate) fn strings(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A list of words.
pub(crate) fn words(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
